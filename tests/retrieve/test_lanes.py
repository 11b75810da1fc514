"""What kernels do to 64 numbers at once, beside the same in NumPy."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.retrieve.dense import lanes, sieves
from pipeline.retrieve.dense.frame import Frame
from pipeline.retrieve.dense.products import aligned
from tests.retrieve.cases import make_case

RANDOM = np.random.default_rng(5)


def bits(mask: int) -> npt.NDArray[np.bool_]:
    return np.array([mask >> i & 1 for i in range(64)], bool)


@numba.njit  # type: ignore[untyped-decorator]
def _reaching(values: Any, first: int, least: Any) -> Any:
    return lanes.reaching(values, first, least)


@numba.njit  # type: ignore[untyped-decorator]
def _marked(masks: Any, first: int, number: int) -> Any:
    return lanes.marked(masks, first, number)


@numba.njit  # type: ignore[untyped-decorator]
def _near(
    tile: Any, q: int, word: int, known: Any, start: int, unit: Any, length: Any, lost: Any, least: Any, marks: Any
) -> Any:
    return lanes.near(tile, q, word, known, start, unit, length, lost, least, marks)


@numba.njit  # type: ignore[untyped-decorator]
def _products_of_two(some: Any, q: int, r: int, other: Any) -> Any:
    return lanes.whole_products(some, (q, r), 64, other)


def test_reaching_is_at_least() -> None:
    values = RANDOM.integers(0, 3, 200).astype(np.float32)
    values[70] = np.nan
    for first in (0, 1, 136):
        assert (bits(_reaching(values, first, np.float32(1))) == (values[first : first + 64] >= 1)).all()


@pytest.mark.parametrize("kind", [np.uint16, np.uint64])
def test_marked_is_one_bit(kind: type[np.unsignedinteger[Any]]) -> None:
    masks = RANDOM.integers(0, np.iinfo(kind).max, 130, dtype=kind, endpoint=True)
    for number in (0, 7, np.iinfo(kind).bits - 1):
        expected = masks[66:] >> kind(number) & kind(1) == 1
        assert (bits(_marked(masks, 66, number)) == expected).all()


@pytest.mark.parametrize("by_instruction", [True, False])
@pytest.mark.parametrize("width", [64, 128, 1_536])
def test_products_of_whole_numbers(width: int, by_instruction: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest numbers are among them: nothing overflows or is cut off on the way."""
    if not by_instruction:
        monkeypatch.setattr(lanes, "_SUMS_OF_BYTES", "no processor has it")
    products_of_two = numba.njit(_products_of_two.py_func)
    some = RANDOM.integers(-127, 128, (5, width + 128)).astype(np.int8)
    other = RANDOM.integers(0, 256, width).astype(np.uint8)
    some[0], some[1], other[: width // 2] = 127, -127, 255
    for q, r in ((0, 4), (1, 0), (3, 3), (2, 1)):
        assert products_of_two(some, q, r, other) == tuple(some[[q, r], 64:-64].astype(int) @ other.astype(int))


@pytest.mark.parametrize("kind", [np.float32, np.uint16, np.int32])
def test_near_is_what_reaches_the_threshold_of_a_pool_it_is_in(kind: type[np.generic]) -> None:
    tile = RANDOM.integers(-100, 100, (3, 192)).astype(np.int32)
    products = tile.astype(np.float32)
    given_tile: npt.NDArray[Any] = tile
    if kind is np.float32:
        given_tile = products
    elif kind is np.uint16:
        given_tile = (products.view(np.uint32) >> 16).astype(np.uint16)  # exact: they have 7 bits
    bias, spread = RANDOM.standard_normal((2, 300)).astype(np.float32)
    grains = RANDOM.choice(np.float32([0.5, 2]), 300) if kind is np.int32 else np.ones(300, np.float32)
    unit, length = np.float32(4 if kind is np.int32 else 1), np.float32(1.5)
    rounding = np.float32(0.25 if kind is np.uint16 else 0)
    thresholds = RANDOM.standard_normal((3, 5)).astype(np.float32) * 50
    pools = RANDOM.random((5, 192)) < 0.4
    marks = np.packbits(pools, axis=1, bitorder="little").view(np.uint64)
    for q in range(3):
        for word in range(3):
            here, there = slice(64 * word, 64 * word + 64), slice(10 + 64 * word, 74 + 64 * word)
            product = products[q, here] * (unit * grains[there])
            upper = (product + bias[there]) + (length * spread[there] + rounding * abs(product))
            expected = (pools[:, here] & (upper >= thresholds[q][:, None])).any(axis=0)
            known = (bias, spread, grains)
            found = _near(given_tile, q, word, known, 10, unit, length, rounding, thresholds, marks)
            assert (bits(found) == expected).all()


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.lists(st.integers(0, 30), unique=True), max_size=4))
def test_marks_of_pools(rows: list[int], pools: list[list[int]]) -> None:
    """Pools may have rows that are not here, and be empty."""
    here, candidates = np.array(sorted(rows), np.uint32), np.array([r for p in pools for r in sorted(p)], np.uint32)
    found = np.zeros(len(here), np.uint64)
    sieves.mark(here, candidates, np.cumsum([0, *map(len, pools)]), found)
    assert found.tolist() == [sum(1 << number for number, pool in enumerate(pools) if r in pool) for r in sorted(rows)]


@pytest.mark.parametrize("kind", [np.float32, np.uint16, np.int8])
def test_products_have_their_memory_where_lines_start(kind: type[np.generic]) -> None:
    """Else products of bfloat16 in tiles take 1.6 times as long."""
    for count in (1, 1_000):
        memory = aligned(count, kind)
        assert (len(memory), memory.dtype) == (count, np.dtype(kind))
        assert memory.ctypes.data % 64 == 0


def test_points_of_queries_lie_where_lines_start() -> None:
    case = make_case("random", candidates=40)
    frame = Frame(case.queries, "l2", case.vectors, low=True, whole=True)
    assert [points.points.ctypes.data % 64 for points in frame.rounded.values()] == [0, 0, 0]
