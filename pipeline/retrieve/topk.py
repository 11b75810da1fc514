"""Top-k merge under the one total order (:mod:`pipeline.core.order`).

A score and a row fit one uint64: the score's bits made sortable, then the row. Comparing two entries is comparing two
integers, and a list costs eight bytes an entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.core.order import Rows, Scores
from pipeline.retrieve.base import Ranking

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

EMPTY = np.uint64(0)
"""No entry: smaller than the key of any score (it would be a NaN's)."""

_SIGN = np.uint32(0x80000000)
_ONE_POOL: Keys = np.empty(0, np.uint64)


def pack(scores: Scores, rows: Rows) -> Keys:
    """Return keys that order as (score, row) do; scores float32 without NaN or negative zero."""
    bits = np.ascontiguousarray(scores, np.float32).view(np.uint32)
    sortable = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return sortable.astype(np.uint64) << np.uint64(32) | rows.astype(np.uint64)


def unpack(keys: Keys) -> tuple[Scores, Rows]:
    """Return the scores and rows of keys; the score of an empty key is NaN."""
    sortable = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(sortable & _SIGN, sortable ^ _SIGN, ~sortable)
    return bits.view(np.float32), keys.astype(np.uint32)


class TopK:
    """The best ``depth`` entries of each query so far, in each of some pools.

    Attributes:
        keys: uint64 ``[pools, queries, depth]``, the least of each list first, the others in no order; :data:`EMPTY`
            where a list is not full.
    """

    def __init__(self, queries: int, depth: int, pools: int = 1) -> None:
        self.keys: Keys = np.zeros((pools, queries, depth), np.uint64)

    def add(self, queries: Positions, keys: Keys, pools: Keys = _ONE_POOL) -> None:
        """Keep the best of what is there and of new entries. Threads may add to different queries at once.

        Args:
            queries: int64 ``[n]``, rising.
            keys: uint64 ``[n]``, none of them in such a list already.
            pools: uint64 ``[n]``, a bit for each pool the entry is in; may be left out where there is one pool.
        """
        if len(keys):
            _merge(self.keys, queries, keys, pools)

    def floors(self, queries: slice | Positions = slice(None)) -> npt.NDArray[np.float64]:
        """Return what the score of any further entry must exceed before its rounding, float64 ``[pools, n]``.

        -inf where a list is not full. An entry whose score, rounded to float32, ties with the last one may still enter
        by its row. What rounds to a float32 is more than the float32 before it.
        """
        last = self.keys[:, queries, 0]
        scores, _ = unpack(last.ravel())
        below = np.nextafter(scores, np.float32(-np.inf)).astype(np.float64).reshape(last.shape)
        return np.where(last == EMPTY, -np.inf, below)

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the lists of a pool as a ranking."""
        falling = np.sort(self.keys[pool], axis=1)[:, ::-1]
        filled = falling != EMPTY
        scores, rows = unpack(falling[filled])
        return Ranking.from_counts(filled.sum(axis=1), rows, scores)


@compiled
def best_first(values: Any, count: int) -> Any:
    """Bring the greatest ``count`` values to the front (Hoare's selection) and return the least of them.

    Numba can compile ``np.partition`` as well, in ten times the time.
    """
    low, high, place = 0, len(values) - 1, count - 1
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
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@compiled
def _merge(lists: Any, queries: Any, keys: Any, pools: Any) -> None:
    """Merge keys into lists uint64 ``[pools, queries, depth]``; arguments as of :meth:`TopK.add`."""
    depth, first = lists.shape[2], 0
    while first < len(keys):
        last = first + 1
        while last < len(keys) and queries[last] == queries[first]:
            last += 1
        room = np.empty(depth + last - first, np.uint64)
        for pool in range(len(lists)):
            best, count = lists[pool, queries[first]], depth
            for i in range(first, last):
                if keys[i] > best[0] and (len(pools) == 0 or pools[i] >> np.uint64(pool) & np.uint64(1)):
                    room[count] = keys[i]
                    count += 1
            if count > depth:
                for i in range(depth):
                    room[i] = best[i]
                best_first(room[:count], depth)
                for i in range(depth):
                    best[i] = room[depth - 1 - i]
        first = last
