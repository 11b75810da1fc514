"""Top-k lists under the one total order (:mod:`pipeline.core.order`), on any device.

A score and a row fit one int64: the score's bits made sortable, then the row. Comparing two entries is comparing two
integers, and a list costs eight bytes an entry.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from pipeline.retrieve.base import Ranking

EMPTY = -(1 << 63)
"""No entry: smaller than the key of any score (it would be a NaN's)."""

_MANTISSA, _ROW = 0x7FFFFFFF, 0xFFFFFFFF


def pack(scores: Tensor, rows: Tensor) -> Tensor:
    """Return keys int64 that order as (score, row) do; scores float32 without NaN or negative zero, rows int64."""
    bits = scores.view(torch.int32).long()
    return (bits ^ (bits >> 31 & _MANTISSA)) << 32 | rows


def unpack(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores and rows of keys; the score of an empty key is NaN."""
    bits = keys >> 32
    return (bits ^ (bits >> 31 & _MANTISSA)).int().view(torch.float32), keys & _ROW


class TopK:
    """The best ``depth`` entries of each query so far, in each of some pools.

    New entries wait until there are as many as the lists of a pool hold; then they are merged.
    """

    def __init__(self, queries: int, depth: int, pools: int = 1, device: torch.device | str = "cpu") -> None:
        self.depth = depth
        self._lists = torch.full((pools, queries, depth), EMPTY, device=device)
        self._new: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, queries: Tensor, keys: Tensor, pools: Tensor) -> None:
        """Add entries.

        Args:
            queries: int64 ``[n]``.
            keys: int64 ``[n]``, none of them in such a list already.
            pools: int64 ``[n]``, a bit for each pool the entry is in.
        """
        self._new.append((queries, keys, pools))
        if sum(len(waiting) for waiting, _, _ in self._new) > self._lists[0].numel():
            self.lists()

    def lists(self) -> Tensor:
        """Return the keys of all lists, int64 ``[pools, queries, depth]``, falling; :data:`EMPTY` where one ends."""
        if self._new:
            queries, keys, pools = (torch.cat(column) for column in zip(*self._new, strict=True))
            self._new = []
            order = queries.argsort(stable=True)
            queries, keys, pools = queries[order], keys[order], pools[order]
            for pool, best in enumerate(self._lists):
                new = (pools >> pool & 1).bool() & (keys > best[queries, -1])
                self._merge(best, queries[new], keys[new])
        return self._lists

    def _merge(self, best: Tensor, owner: Tensor, key: Tensor) -> None:
        """Merge entries into the lists of a pool, at most ``depth`` of a query at a time: that bounds memory."""
        while len(owner):
            count = torch.bincount(owner, minlength=len(best))
            place = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
            now = place < self.depth
            wide = torch.nn.functional.pad(best, (0, min(int(count.amax()), self.depth)), value=EMPTY)
            wide[owner[now], self.depth + place[now]] = key[now]
            best.copy_(wide.topk(self.depth).values)
            owner, key = owner[~now], key[~now]

    def put(self, queries: Tensor, lists: Tensor) -> None:
        """Replace the lists of some queries, int64 ``[n]``, by ``[pools, n, depth]``."""
        self.lists()[:, queries] = lists

    def floors(self) -> Tensor:
        """Return what the score of any further entry must exceed before its rounding, float64 ``[pools, queries]``.

        -inf where a list is not full. An entry whose score, rounded to float32, ties with the last one may still enter
        by its row. What rounds to a float32 is more than the float32 before it.
        """
        last = self.lists()[:, :, -1]
        scores = torch.where(last == EMPTY, -torch.inf, unpack(last)[0])
        return torch.nextafter(scores, torch.full_like(scores, -torch.inf)).double()

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the lists of a pool as a ranking."""
        keys = self.lists()[pool].cpu()
        filled = keys != EMPTY
        scores, rows = unpack(keys[filled])
        return Ranking.from_counts(filled.sum(1).numpy(), rows.numpy().astype(np.uint32), scores.numpy())


def merged(rankings: Iterable[Ranking], queries: int, depth: int) -> Ranking:
    """Return the best of several rankings of the same queries, whose candidates differ."""
    best = TopK(queries, depth)
    for part in rankings:
        keys = pack(torch.tensor(part.score), torch.tensor(part.row.astype(np.int64)))
        best.add(torch.tensor(part.query.astype(np.int64)), keys, torch.ones_like(keys))
    return best.ranking()
