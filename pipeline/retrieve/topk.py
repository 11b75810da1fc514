"""The greatest keys of each query, in one or more pools, and what a tile adds to them; the kernels are compiled.

The key of a ranked entry is one int64: the sortable bits of its score, then its row. Keys compare like entries in the
one total order (:mod:`pipeline.core.order`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.core.order import Rows, Scores
from pipeline.retrieve.base import Ranking

GLANCE = 64
"""Estimates that are compared at once."""

MARGIN = 2.0**-22
"""Twice the error of rounding a score to float32."""

EMPTY = np.int64(-(1 << 63))
"""Key of a missing entry, below the keys of all scores (it would be a NaN's)."""

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
"""A bit for each pool."""


class Pairs(NamedTuple):
    """Queries and positions of candidates in their block, int64 ``[n]``, their bounds of ``e``, float32, and pools.

    Columns are arrays; on a GPU, tensors.
    """

    owners: Any
    positions: Any
    uppers: Any
    lowers: Any
    pools: Any


def to_keys(scores: npt.NDArray[np.floating[Any]], rows: Rows) -> Ints:
    """Return the keys of scores, which are rounded to float32 and no NaN, and rows."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
    return (bits ^ (bits >> 31 & 0x7FFFFFFF)) << 32 | rows


def from_keys(keys: Ints) -> tuple[Scores, Rows]:
    """Return the scores and rows of keys; an empty key has the score NaN."""
    bits = keys >> 32
    return (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int32).view(np.float32), keys.astype(np.uint32)


class TopK:
    """The greatest ``depth`` keys, int64 or float32, of each query in each pool so far.

    Memory: ``2 * depth`` keys for each query and pool.

    Attributes:
        keys: ``[pools, queries, 2 * depth]``, unordered.
        counts: int64 ``[pools, queries]``, number of keys.
        least: ``[pools, queries]``, the ``depth``-th greatest key, or ``empty`` while there are fewer.
    """

    def __init__(self, pools: int, queries: int, depth: int, empty: np.generic = EMPTY) -> None:
        """Start with no keys; ``empty`` is below all keys and has their type."""
        self._depth, self._empty = depth, empty
        self.keys: npt.NDArray[Any] = np.empty((pools, queries, 2 * depth), empty.dtype)
        self.counts: Ints = np.zeros((pools, queries), np.int64)
        self.least: npt.NDArray[Any] = np.full((pools, queries), empty)

    def add(self, owners: npt.NDArray[np.integer], keys: npt.NDArray[Any], pools: Bits) -> None:
        """Add new keys ``[n]`` of queries ``owners``, each to the pools whose bits are set."""
        add_keys(self.keys, self.counts, self.least, self._empty, owners, keys, pools)

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the keys of ranked entries of a pool as a ranking."""
        columns = np.arange(2 * self._depth)
        keys = np.sort(np.where(columns < self.counts[pool][:, None], self.keys[pool], self._empty), axis=1)
        keys = keys[:, : -self._depth - 1 : -1]
        scores, rows = from_keys(keys[keys != self._empty])
        return Ranking.from_counts(np.minimum(self.counts[pool], self._depth), rows, scores)


def merge(rankings: Iterable[Ranking], queries: int, depth: int) -> Ranking:
    """Return the best entries of several rankings of the same queries with disjoint candidates."""
    best = TopK(1, queries, depth)
    for ranking in rankings:
        best.add(ranking.query, to_keys(ranking.score, ranking.row), np.ones(len(ranking), np.uint64))
    return best.ranking()


@compiled
def add_keys(lists: Any, counts: Any, least: Any, empty: Any, owners: Any, keys: Any, pools: Any) -> None:
    """Add keys to lists, ``[pools, queries, 2 * depth]``, of which at most the first ``depth`` are then in use."""
    depth = lists.shape[2] // 2
    for entry in range(len(owners)):
        query, left, pool = owners[entry], pools[entry], 0
        while left:
            if left & np.uint64(1) and keys[entry] > least[pool, query]:
                lists[pool, query, counts[pool, query]] = keys[entry]
                counts[pool, query] += 1
                if counts[pool, query] == 2 * depth:
                    least[pool, query] = partition_greatest(lists[pool, query], depth)
                    counts[pool, query] = depth
            left >>= np.uint64(1)
            pool += 1
    for pool in range(counts.shape[0]):
        for query in range(counts.shape[1]):
            count = counts[pool, query]
            if count > depth or (count == depth and least[pool, query] == empty):
                least[pool, query] = partition_greatest(lists[pool, query, :count], depth)
                counts[pool, query] = depth


@compiled
def partition_greatest(values: Any, count: int) -> Any:
    """Move the greatest ``count`` values to the front (Hoare's selection) and return the lowest of them.

    Numba also compiles ``np.partition``, but takes ten times as long.
    """
    low, high, target = 0, len(values) - 1, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    return values[target]


@compiled
def sift(
    values: Any, stride: int, length: Any, spread: Any, fixed: Any, positions: Any, rows: Any,
    members: Any, smallest: Any, queries: Any, limits: Any, offsets: Any, excluded: Any, excluding: Any,
) -> Any:  # fmt: skip
    """Return the pairs of a tile that may be in a ranking, as the columns of :class:`Pairs`.

    Args:
        values: float32, the estimates; those of query ``i`` start at ``i * stride``.
        stride: at least ``m``.
        length: float32 ``[q]``,
        spread: float32 ``[m]``, and
        fixed: float32 ``[m]``; see :class:`~pipeline.retrieve.estimates.Tile`.
        positions: int64 ``[m]``,
        rows: uint32 ``[m]``,
        members: uint64 ``[m]``, and
        smallest: int64 ``[m]``, of the candidates; see :class:`~pipeline.retrieve.estimates.Candidates`.
        queries: int64 ``[q]``.
        limits: float32 ``[pools, queries]``.
        offsets: int64 ``[queries + 1]``,
        excluded: uint32, rows excluded, rising within a query, and
        excluding: uint64, the pools that exclude each.
    """
    pools, count, found = len(limits), len(rows), 0
    size = len(queries) * count
    owners, kept_positions, bits = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint64)
    uppers, lowers, floors = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(pools + 1, np.float32)
    hits, others = np.empty(count, np.int64), np.flatnonzero(smallest < pools - 1)
    most_spread, most_fixed = spread.max(), fixed.max()
    for i in range(len(queries)):
        query, row = queries[i], values[i * stride : i * stride + count]
        set_floors(floors, limits[:, query], length[i] * most_spread + most_fixed)
        for hit in range(glance(row, floors[pools - 1], others, floors, smallest, hits)):
            column = hits[hit]
            error, kept = length[i] * spread[column] + fixed[column], members[column]
            upper = row[column] + error
            place, last = offsets[query], offsets[query + 1]
            if place < last:
                place += np.searchsorted(excluded[place:last], rows[column])
                if place < last and excluded[place] == rows[column]:
                    kept &= ~excluding[place]
            for pool in range(smallest[column], pools):
                if upper < limits[pool, query]:
                    kept &= ~(np.uint64(1) << np.uint64(pool))
            if kept:
                owners[found], kept_positions[found], bits[found] = query, positions[column], kept
                uppers[found], lowers[found] = upper, row[column] - error
                found += 1
    owners, kept_positions, bits = owners[:found].copy(), kept_positions[:found].copy(), bits[:found].copy()
    return owners, kept_positions, uppers[:found].copy(), lowers[:found].copy(), bits


@compiled
def glance(row: Any, floor: Any, others: Any, floors: Any, smallest: Any, hits: Any) -> Any:
    """Write the columns of a row that reach their floor to ``hits`` and return their number.

    ``floor`` is that of candidates of the largest pool alone; ``others`` are the columns of the rest.
    """
    number, last = 0, len(floors) - 2
    for start in range(0, len(row), GLANCE):
        near, stop = np.int32(0), min(start + GLANCE, len(row))
        if stop == start + GLANCE:  # a fixed number of steps, which become vector operations
            for step in range(GLANCE):
                near += np.int32(row[start + step] >= floor)
        if near or stop < start + GLANCE:
            for column in range(start, stop):
                if row[column] >= floor and smallest[column] == last:
                    hits[number] = column
                    number += 1
    for column in others:
        if row[column] >= floors[smallest[column]]:
            hits[number] = column
            number += 1
    return number


@compiled
def set_floors(floors: Any, least: Any, widest: Any) -> None:
    """Set, for candidates by their smallest pool, the lowest estimate that matters; infinite for those of no pool."""
    floors[-1] = np.inf
    for pool in range(len(least) - 1, -1, -1):
        floors[pool] = min(least[pool] - widest, floors[pool + 1])


@compiled
def reaching(owners: Any, positions: Any, uppers: Any, lowers: Any, bits: Any, limits: Any) -> Any:
    """Return the pairs whose upper bound reaches the limit, float32 ``[pools, queries]``, of one of their pools."""
    kept = np.empty_like(bits)
    for pair in range(len(owners)):
        kept[pair] = bits[pair]
        for pool in range(len(limits)):
            if uppers[pair] < limits[pool, owners[pair]]:
                kept[pair] &= ~(np.uint64(1) << np.uint64(pool))
    chosen = kept != 0
    return owners[chosen], positions[chosen], uppers[chosen], lowers[chosen], kept[chosen]
