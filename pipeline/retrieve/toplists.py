"""The running best of each query, kept as one sortable number an entry.

The one total order compares a score, then a row. Both fit one uint64 (the score's bits made sortable, then the row),
so that comparing two entries is comparing two integers, and a list costs eight bytes an entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.order import Rows, Scores
from pipeline.retrieve import select
from pipeline.retrieve.base import Ranking

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

Each = Callable[..., Iterable[Any]]
"""What does something for each of several things: ``map``, or the same of a pool of threads."""

EMPTY = np.uint64(0)
"""No entry: smaller than the key of any score (it would be a NaN's)."""

_EVERY: Keys = np.empty(0, np.uint64)


def pack(scores: Scores, rows: Rows) -> Keys:
    """Return keys that order as (score, row) do; scores float32 without NaN or negative zero."""
    keys: Keys = select.pack(scores, rows)
    return keys


def unpack(keys: Keys) -> tuple[Scores, Rows]:
    """Return the scores and rows of keys; an empty key's score is NaN."""
    scores, rows = select.unpack(keys)
    return scores, rows


class TopLists:
    """The best ``depth`` entries of each query met so far, in each of some pools.

    A list is one query in one pool: query ``q`` in pool ``p`` has list ``p * queries + q``.

    Attributes:
        keys: uint64 ``[pools * queries, depth]``, the least of each list first, the others in no order; :data:`EMPTY`
            where a list is not full.
    """

    def __init__(self, queries: int, depth: int, pools: int = 1) -> None:
        self.keys: Keys = np.zeros((pools * queries, depth), np.uint64)
        self._pools = pools

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, queries: Positions, keys: Keys, pools: Keys = _EVERY) -> None:
        """Keep the best of what is there and of new entries.

        Args:
            queries: int64 ``[n]``, rising.
            keys: uint64 ``[n]``, none of them in such a list already.
            pools: uint64 ``[n]``, a bit for each pool in whose list an entry may be, where there are several.
        """
        if len(keys):
            select.merge(self.keys.reshape(self._pools, -1, self.keys.shape[1]), queries, keys, pools)

    def clear(self, queries: Positions) -> None:
        """Forget what some queries have, in every pool."""
        self.keys.reshape(self._pools, -1, self.keys.shape[1])[:, queries] = EMPTY

    def floors(self, lists: Positions) -> npt.NDArray[np.float64]:
        """Return what the exact score of any further entry must exceed, -inf where a list is not full; any shape.

        An entry whose score, rounded to float32, ties with the last one may still enter by its row. What rounds to a
        float32 is more than the float32 before it.
        """
        last = self.keys[lists, 0]
        scores, _ = unpack(last.ravel())
        below = np.nextafter(scores, np.float32(-np.inf)).astype(np.float64).reshape(last.shape)
        return np.where(last == EMPTY, -np.inf, below)

    def ranking(self, lists: slice = slice(None), shares: int = 1, each: Each = map) -> Ranking:
        """Return lists that follow one another as one ranking.

        Args:
            lists: which of all.
            shares: how many parts of them to sort.
            each: how to sort each of several parts: as ``map`` does, or in threads.
        """
        keys = self.keys[lists]
        list(each(functools.partial(np.ndarray.sort, axis=1), np.array_split(keys, shares)))
        falling = keys[:, ::-1]
        filled = falling != EMPTY
        scores, rows = unpack(falling.ravel() if filled.all() else falling[filled])
        return Ranking.from_counts(filled.sum(axis=1), rows, scores)
