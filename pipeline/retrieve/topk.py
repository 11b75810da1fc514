"""The greatest keys of each query; the kernels are compiled.

The key of a ranked entry is one int64: the sortable bits of its score, then its row. Keys compare like entries in the
one total order (:mod:`pipeline.core.order`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.core.order import Rows, Scores
from pipeline.retrieve.base import Ranking

EMPTY = np.int64(-(1 << 63))
"""Key of a missing entry, below the keys of all scores (it would be a NaN's)."""

Ints = npt.NDArray[np.int64]


def to_keys(scores: npt.NDArray[np.floating[Any]], rows: Rows) -> Ints:
    """Return the keys of scores, which are rounded to float32 and no NaN, and rows."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
    return (bits ^ (bits >> 31 & 0x7FFFFFFF)) << 32 | rows


def from_keys(keys: Ints) -> tuple[Scores, Rows]:
    """Return the scores and rows of keys; an empty key has the score NaN."""
    bits = keys >> 32
    return (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int32).view(np.float32), keys.astype(np.uint32)


class TopK:
    """The greatest ``depth`` keys of each query so far, in memory for ``2 * depth`` of them.

    ``keys`` are int64 ``[queries, 2 * depth]``, unordered; ``counts``, int64, are their numbers, and ``least``, int64,
    the ``depth``-th greatest keys, or :data:`EMPTY` while there are fewer.
    """

    def __init__(self, queries: int, depth: int) -> None:
        self._depth = depth
        self.keys: Ints = np.empty((queries, 2 * depth), np.int64)
        self.counts: Ints = np.zeros(queries, np.int64)
        self.least: Ints = np.full(queries, EMPTY)

    def add(self, owners: npt.NDArray[np.integer], keys: Ints) -> None:
        """Add new keys ``[n]`` of queries ``owners``."""
        add_keys(self.keys, self.counts, self.least, owners, keys)

    def ranking(self) -> Ranking:
        """Return the keys of ranked entries as a ranking."""
        columns = np.arange(2 * self._depth)
        keys = np.sort(np.where(columns < self.counts[:, None], self.keys, EMPTY), axis=1)[:, : -self._depth - 1 : -1]
        scores, rows = from_keys(keys[keys != EMPTY])
        return Ranking.from_counts(np.minimum(self.counts, self._depth), rows, scores)


def merge(rankings: Iterable[Ranking], queries: int, depth: int) -> Ranking:
    """Return the best entries of several rankings of the same queries with disjoint candidates."""
    best = TopK(queries, depth)
    for ranking in rankings:
        best.add(ranking.query, to_keys(ranking.score, ranking.row))
    return best.ranking()


@compiled
def add_keys(lists: Any, counts: Any, least: Any, owners: Any, keys: Any) -> None:
    """Add keys to lists, ``[queries, 2 * depth]``, of which at most the first ``depth`` are then in use."""
    depth = lists.shape[1] // 2
    for entry in range(len(owners)):
        query = owners[entry]
        if keys[entry] > least[query]:
            lists[query, counts[query]] = keys[entry]
            counts[query] += 1
            if counts[query] == 2 * depth:
                least[query] = partition_greatest(lists[query], depth)
                counts[query] = depth
    for query in range(len(counts)):
        count = counts[query]
        if count > depth or (count == depth and least[query] == EMPTY):
            least[query] = partition_greatest(lists[query, :count], depth)
            counts[query] = depth


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
