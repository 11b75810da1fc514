from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.csr import slices


@given(st.lists(st.integers(0, 50)), st.integers(1, 9), st.integers(0, 100))
def test_slices_are_as_long_as_their_bounds_allow(sizes: list[int], most: int, total: int) -> None:
    found = list(slices(np.array(sizes, np.int64), most, total))
    assert [row for each in found for row in range(each.start, each.stop)] == list(range(len(sizes)))
    for each in found:
        assert len(sizes[each]) == 1 or (len(sizes[each]) <= most and sum(sizes[each]) <= total)
        following = sizes[each.start : each.stop + 1]
        assert each.stop == len(sizes) or len(sizes[each]) == most or sum(following) > total
