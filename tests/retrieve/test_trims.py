"""What a reservoir keeps, and the pairs it leaves to be scored, beside the same in NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import order
from pipeline.retrieve import select
from pipeline.retrieve.dense import trims
from pipeline.retrieve.dense.frame import Frame
from pipeline.retrieve.dense.pairs import Pairs, Visits
from pipeline.retrieve.dense.scan import scores
from pipeline.retrieve.toplists import TopLists, pack

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]


def reached(values: FloatArray, chosen: BoolArray, wanted: int, spare: int) -> float:
    """What so many of the chosen values reach, as the kernel finds it."""
    words = -(-len(values) // 64)
    padded, bits = np.full(64 * words, -np.inf, np.float32), np.zeros(64 * words, bool)
    padded[: len(values)], bits[: len(values)] = values, chosen
    masks = np.packbits(bits, bitorder="little").view(np.uint64)
    return float(trims._reached(padded, masks, values.min(), values.max(), wanted, spare))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-(2.0**100), 2.0**100, width=32), st.booleans()), min_size=1, max_size=200),
    st.integers(1, 200),
    st.integers(0, 20),
)
def test_what_enough_values_reach(drawn: list[tuple[float, bool]], wanted: int, spare: int) -> None:
    drawn[0] = (drawn[0][0], True)
    values, chosen = np.array([value for value, _ in drawn], np.float32), np.array([here for _, here in drawn])
    wanted = min(wanted, int(chosen.sum()))
    found = reached(values, chosen, wanted, spare)
    exact = np.sort(values[chosen])[-wanted]
    assert found <= exact
    assert (values[chosen] >= found).sum() <= wanted + spare or (values[chosen] >= found).sum() == (
        values[chosen] >= exact
    ).sum()


def test_what_enough_values_reach_among_many() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.standard_normal(5_000), rng.standard_cauchy(5_000), np.rint(rng.standard_normal(5_000))):
        single = values.astype(np.float32)
        exact = np.sort(single)[-500]
        found = reached(single, np.ones(len(single), bool), 500, 125)
        assert found <= exact
        assert (single >= found).sum() <= max((single >= exact).sum(), 625)


def in_pools(pools: npt.NDArray[np.uint64], pool: int) -> BoolArray:
    return (pools >> np.uint64(pool) & np.uint64(1)).astype(bool)


@pytest.mark.parametrize("several", [1, 3])
def test_every_entry_is_settled_once_the_likely_ones_first(several: int) -> None:
    rng = np.random.default_rng(several)
    counts, wanted = np.array([0, 5, 130, 64]), np.full((4, several), 20)
    records = rng.standard_normal((4, 192, 3)).astype(np.float32)
    records[:, :, 1] = rng.random((4, 192)) / 10
    records[:, :, 2] = rng.permutation(192)
    masks = rng.integers(1, 8, (4, 192 if several > 1 else 0)).astype(np.uint16)
    thresholds, numbers = np.tile(np.arange(several, dtype=np.float32) / 4 - 1, (4, 1)), np.array([3, 4, 7, 9])
    shift, bound = rng.random(4), rng.random(4)
    room = Pairs.room(2 * counts.sum())
    ahead, behind = trims.settle(0, 4, numbers, 2.0, shift, bound, wanted, thresholds, records, masks, counts, room)
    first, second = room.part(0, ahead), room.part(counts.sum(), counts.sum() + behind)
    assert ahead + behind == counts.sum()
    assert behind > 0
    for q, number in enumerate(numbers):
        here, there = first.queries == number, second.queries == number
        kept = records[q, : counts[q]].astype(float)
        places = kept[:, 2].astype(int).tolist()
        assert sorted([*first.positions[here].tolist(), *second.positions[there].tolist()]) == sorted(places)
        for some, mine in ((first, here), (second, there)):
            own = [places.index(place) for place in some.positions[mine].tolist()]
            np.testing.assert_allclose(some.estimates[mine], 2 * kept[own, 0] + shift[q])
            np.testing.assert_allclose(some.bounds[mine], 2 * kept[own, 1] + bound[q])
            reached = (records[q, own, 0] + records[q, own, 1])[:, None] >= thresholds[q]
            bits = (reached << np.arange(several)).sum(axis=1)
            assert (some.pools[mine] == (masks[q, own] & bits if several > 1 else 1)).all()
        lower, upper = kept[:, 0] - kept[:, 1], kept[:, 0] + kept[:, 1]
        for pool in range(several):
            inside = upper >= thresholds[q, pool]
            if several > 1:
                inside &= in_pools(masks[q, : counts[q]].astype(np.uint64), pool)
            best = np.flatnonzero(inside)[np.argsort(-lower[inside])][:20]
            assert set(np.array(places)[best].tolist()) <= set(first.positions[here].tolist())


def test_what_cannot_come_into_a_ranking_is_dropped() -> None:
    rng = np.random.default_rng(3)
    queries = np.sort(rng.integers(5, 9, 300)).astype(np.int32)
    pairs = Pairs(
        queries,
        rng.permutation(300).astype(np.int32),
        rng.integers(0, 10, 300).astype(float),
        np.ones(300),
        rng.integers(1, 8, 300).astype(np.uint64),
    )
    floors = rng.integers(0, 10, (3, 4)).astype(float)
    floors[:, 2] = -np.inf
    removed = [np.sort(rng.choice(300, size, replace=False)) for size in (0, 250, 3, 0, 0, 90, 1, 200, 0, 0, 300, 5)]
    ends = np.cumsum([0, *map(len, removed)])
    starts = np.stack([ends[4 * pool : 4 * pool + 5] for pool in range(3)])
    expected = []
    for query, position, estimate, _, pools in zip(*(each.tolist() for each in pairs), strict=True):
        stays = [
            pool
            for pool in range(3)
            if pools >> pool & 1
            and estimate + 1 >= floors[pool, query - 5]
            and position not in removed[4 * pool + query - 5]
        ]
        if stays:
            expected.append((query, position, estimate, 1.0, sum(1 << pool for pool in stays)))
    kept = pairs.part(0, trims.drop(pairs, 5, floors, starts, np.concatenate(removed)))
    assert list(zip(*(each.tolist() for each in kept), strict=True)) == expected
    assert 0 < len(expected) < 300


@settings(deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 9))
def test_lists_of_several_pools_keep_the_best_however_they_are_fed(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    owner, pools = np.sort(rng.integers(0, 4, 60)), rng.integers(1, 8, 60).astype(np.uint64)
    values, rows = rng.integers(-3, 3, 60).astype(np.float32), rng.permutation(60).astype(np.uint32)
    lists = TopLists(4, depth, 3)
    for part in np.array_split(np.arange(60), rng.integers(1, 9)):
        lists.add(owner[part], pack(values[part], rows[part]), pools[part])
    for pool in range(3):
        ranking = lists.ranking(slice(4 * pool, 4 * pool + 4))
        for query in range(4):
            own = np.flatnonzero((owner == query) & in_pools(pools, pool))
            best = own[order.best(values[own], rows[own], depth)]
            assert ranking.row[ranking.query == query].tolist() == rows[best].tolist()


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, min_value=-3e38, max_value=3e38), max_size=30))
def test_keys_of_scores_are_those_of_float32(canonical: list[float]) -> None:
    exact = np.array([*canonical, -0.0, 0.0, -1e-50])
    rows = np.arange(100, 100 + 2 * len(exact), dtype=np.uint32)
    positions = np.random.default_rng(0).permutation(len(rows))[: len(exact)]
    expected = pack(exact.astype(np.float32) + np.float32(0.0), rows[positions])
    assert (select.keys_of(exact, rows, positions) == expected).all()


def test_how_far_estimates_are_off() -> None:
    canonical, bounds = np.array([1.0, -7.0, 2.0, 0.0]), np.array([0.5, 0.5, 1.0, 0.0])
    assert select.furthest(canonical, canonical, bounds) == (0.0, 7.0)
    worst, largest = select.furthest(canonical + np.array([0.25, 0.0, -2.0, 0.0]), canonical, bounds)
    assert (worst, largest) == (2.0, 7.0)
    assert select.furthest(np.array([1.0]), np.array([0.0]), np.array([0.0]))[0] == np.inf
    assert select.furthest(*np.empty((3, 0))) == (0.0, 0.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40, unique=True), st.integers(1, 3))
def test_visits_read_candidates_in_a_row_and_name_every_pair(pairs: list[tuple[int, int]], sets: int) -> None:
    queries, positions = (np.array([pair[place] for pair in pairs], np.int64) for place in (0, 1))
    given = list(zip(np.array_split(queries, sets), np.array_split(positions, sets), strict=True))
    found, numbers = [], []
    for places in (range(4), range(4, 7), range(7, 10)):
        packed, query_bits, index_bits = Visits.of(given, 10, places)
        here = [(int(v) >> index_bits >> query_bits, (int(v) >> index_bits) % (1 << query_bits)) for v in packed]
        assert all(position in places for position, _ in here)
        found += here
        numbers += (packed & ((1 << index_bits) - 1)).tolist()
    assert [position for position, _ in found] == sorted(position for _, position in pairs)
    assert sorted(numbers) == list(range(len(pairs)))
    assert [(int(positions[number]), int(queries[number])) for number in numbers] == found


def test_scores_are_the_same_however_candidates_are_shared() -> None:
    rng = np.random.default_rng(8)
    queries, vectors = (rng.standard_normal((count, 70)).astype(np.float32) for count in (6, 400))
    frame = Frame(queries, "l2", vectors)
    block = frame.block((np.arange(400, dtype=np.uint32), vectors))
    owner, position = (each.astype(np.int32) for each in np.divmod(rng.permutation(2_400)[:900], 400))
    cuts = [slice(0, 200), slice(200, 200), slice(200, 900)]
    (alone,) = scores(block, frame, 6, [(owner, position)])
    with ThreadPoolExecutor(3) as threads:
        shared = scores(block, frame, 6, [(owner[cut], position[cut]) for cut in cuts], threads.map)
    assert [len(each) for each in shared] == [200, 0, 700]
    assert np.concatenate(shared).tobytes() == alone.tobytes()
