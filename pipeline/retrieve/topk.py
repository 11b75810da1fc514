"""Top-k lists in the one total order (:mod:`pipeline.core.order`), on any device.

The key of an entry is one int64: the sortable bits of its score, then its row. Entries compare like integers and take
eight bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from pipeline.retrieve.base import Ranking

EMPTY = -(1 << 63)
"""Key of a missing entry, below the keys of all scores (it would be a NaN's)."""

_MANTISSA, _ROW = 0x7FFFFFFF, 0xFFFFFFFF


def pack(scores: Tensor, rows: Tensor) -> Tensor:
    """Return int64 keys that sort like (score, row); scores are float32 without NaN or negative zero, rows int64."""
    bits = scores.view(torch.int32).long()
    return (bits ^ (bits >> 31 & _MANTISSA)) << 32 | rows


def unpack(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores and rows of keys; an empty key has the score NaN."""
    bits = keys >> 32
    return (bits ^ (bits >> 31 & _MANTISSA)).int().view(torch.float32), keys & _ROW


class TopK:
    """The best ``depth`` entries of each query so far, in one or more pools.

    New entries are merged when they are as many as the lists of a pool.
    """

    def __init__(self, queries: int, depth: int, pools: int = 1, device: torch.device | str = "cpu") -> None:
        self.depth = depth
        self._lists = torch.full((pools, queries, depth), EMPTY, device=device)
        self._new: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, queries: Tensor, keys: Tensor, pools: Tensor) -> None:
        """Add entries.

        Args:
            queries: int64 ``[n]``.
            keys: int64 ``[n]``, not yet in the lists.
            pools: int64 ``[n]``, a bit for each pool of the entry.
        """
        self._new.append((queries, keys, pools))
        if sum(len(waiting) for waiting, _, _ in self._new) > self._lists[0].numel():
            self.lists()

    def lists(self) -> Tensor:
        """Return all lists, int64 ``[pools, queries, depth]``: keys in descending order, then :data:`EMPTY`."""
        if self._new:
            queries, keys, pools = (torch.cat(column) for column in zip(*self._new, strict=True))
            self._new = []
            order = queries.argsort(stable=True)
            queries, keys, pools = queries[order], keys[order], pools[order]
            for pool, best in enumerate(self._lists):
                enters = (pools >> pool & 1).bool() & (keys > best[queries, -1])
                self._merge(best, queries[enters], keys[enters])
        return self._lists

    def _merge(self, best: Tensor, owners: Tensor, keys: Tensor) -> None:
        """Merge entries into the lists of a pool, at most ``depth`` of a query at a time, to bound memory."""
        while len(owners):
            count = torch.bincount(owners, minlength=len(best))
            position = torch.arange(len(owners), device=owners.device) - (count.cumsum(0) - count)[owners]
            fits = position < self.depth
            padded = torch.nn.functional.pad(best, (0, min(int(count.amax()), self.depth)), value=EMPTY)
            padded[owners[fits], self.depth + position[fits]] = keys[fits]
            best.copy_(padded.topk(self.depth).values)
            owners, keys = owners[~fits], keys[~fits]

    def replace(self, queries: Tensor, lists: Tensor) -> None:
        """Replace the lists of queries, int64 ``[n]``, by ``lists``, int64 ``[pools, n, depth]``."""
        self.lists()[:, queries] = lists

    def floors(self) -> Tensor:
        """Return lower bounds of the scores, before rounding, of further entries, float64 ``[pools, queries]``.

        -inf if a list is not full. An entry whose score, rounded to float32, ties with the last one may still enter by
        its row, and scores that round to a float32 exceed the float32 before it.
        """
        worst = self.lists()[:, :, -1]
        scores = torch.where(worst == EMPTY, -torch.inf, unpack(worst)[0])
        return torch.nextafter(scores, torch.full_like(scores, -torch.inf)).double()

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the lists of a pool as a ranking."""
        keys = self.lists()[pool].cpu()
        filled = keys != EMPTY
        scores, rows = unpack(keys[filled])
        return Ranking.from_counts(filled.sum(1).numpy(), rows.numpy().astype(np.uint32), scores.numpy())


def merge(rankings: Iterable[Ranking], queries: int, depth: int) -> Ranking:
    """Return the best entries of several rankings of the same queries with disjoint candidates."""
    best = TopK(queries, depth)
    for ranking in rankings:
        keys = pack(torch.tensor(ranking.score), torch.tensor(ranking.row.astype(np.int64)))
        best.add(torch.tensor(ranking.query.astype(np.int64)), keys, torch.ones_like(keys))
    return best.ranking()
