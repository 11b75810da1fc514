"""What holds for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from pipeline.measure.engines import by_chance
from pipeline.studies import kit


@pytest.fixture(autouse=True, scope="module")
def few_random_orders() -> Iterator[None]:
    """Have the random ranking take 50 orders, not 1,000; ``tests/measure/test_chance.py`` has its values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit, "by_chance", partial(by_chance, draws=50))
        yield
