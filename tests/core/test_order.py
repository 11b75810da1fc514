"""The total order of rankings, and lists in CSR form."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.csr import slices
from pipeline.core.order import best, tied_share


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**6)), unique_by=lambda e: e[1]), st.integers(0, 12))
def test_best_is_a_sort_by_score_then_row_both_falling(entries: list[tuple[int, int]], k: int) -> None:
    scores = np.array([score for score, _ in entries], np.float32)
    rows = np.array([row for _, row in entries], np.uint32)
    expected = sorted(range(len(entries)), key=lambda i: entries[i], reverse=True)[:k]
    assert best(scores, rows, k).tolist() == expected


def test_tied_share_counts_entries_with_an_equal_neighbour_in_their_query() -> None:
    queries = np.array([0, 0, 0, 0, 1, 1], np.uint32)
    scores = np.array([3, 2, 2, 1, 1, 0], np.float32)
    assert tied_share(queries, scores) == 2 / 6
    assert tied_share(queries[:1], scores[:1]) == 0.0


@given(st.lists(st.integers(0, 50)), st.integers(1, 9), st.integers(0, 100))
def test_slices_are_as_long_as_their_bounds_allow(sizes: list[int], most: int, total: int) -> None:
    parts = list(slices(np.array(sizes, np.int64), most, total))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert len(sizes[part]) == 1 or (len(sizes[part]) <= most and sum(sizes[part]) <= total)
        longer = sizes[part.start : part.stop + 1]
        assert part.stop == len(sizes) or len(sizes[part]) == most or sum(longer) > total
