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

    A list has room for twice as many; one that is full is cut to its best.

    Args:
        queries: how many.
        depth: entries of a list.
        pools: how many.
        device: where the lists are.
    """

    def __init__(self, queries: int, depth: int, pools: int = 1, device: torch.device | str = "cpu") -> None:
        self.depth = depth
        self._keys = torch.full((pools, queries, 2 * depth), EMPTY, device=device)
        self._count = torch.zeros((pools, queries), dtype=torch.int64, device=device)
        self._least = torch.full((pools, queries), EMPTY, device=device)

    def add(self, queries: Tensor, keys: Tensor, pools: Tensor) -> None:
        """Keep the best of what is there and of new entries.

        Args:
            queries: int64 ``[n]``, rising.
            keys: int64 ``[n]``, none of them in such a list already.
            pools: int64 ``[n]``, a bit for each pool the entry is in.
        """
        for pool in range(len(self._keys)):
            lists, count, least = self._keys[pool], self._count[pool], self._least[pool]
            new = (keys > least[queries]) & (pools >> pool & 1).bool()
            owner, key = queries[new], keys[new]
            added = torch.bincount(owner, minlength=len(count))
            place = torch.arange(len(owner), device=keys.device) + (count - added.cumsum(0) + added)[owner]
            count += added
            beyond = int(count.amax()) - lists.shape[1] if len(count) else 0
            if beyond <= 0:
                lists[owner, place] = key
                continue
            wide = torch.nn.functional.pad(lists, (0, beyond), value=EMPTY)
            wide[owner, place] = key
            best = wide.topk(self.depth).values  # sorted, so that what is empty comes last
            lists[:], least[:] = torch.nn.functional.pad(best, (0, self.depth), value=EMPTY), best[:, -1]
            count.clamp_(max=self.depth)

    def _cut(self, pool: int) -> None:
        full = torch.nonzero(self._count[pool] > self.depth)[:, 0]
        best = self._keys[pool, full].topk(self.depth, sorted=False).values
        self._keys[pool, full] = torch.nn.functional.pad(best, (0, self.depth), value=EMPTY)
        self._count[pool, full], self._least[pool, full] = self.depth, best.amin(1)

    def keys(self) -> Tensor:
        """Return the lists, int64 ``[pools, queries, depth]``, in no order; :data:`EMPTY` where one is not full."""
        for pool in range(len(self._keys)):
            self._cut(pool)
        return self._keys[:, :, : self.depth]

    def least(self) -> Tensor:
        """Return the score of the last entry of each list, float32 ``[pools, queries]``; -inf where one is not full."""
        least = self.keys().amin(2)
        return torch.where(least == EMPTY, -torch.inf, unpack(least)[0])

    def put(self, queries: Tensor, keys: Tensor) -> None:
        """Replace the lists of some queries, int64 ``[n]``, by keys ``[pools, n, depth]``."""
        self._keys[:, queries] = torch.nn.functional.pad(keys, (0, self.depth), value=EMPTY)
        self._count[:, queries] = (keys != EMPTY).sum(2)
        self._least[:, queries] = keys.amin(2)

    def floors(self) -> Tensor:
        """Return what the score of any further entry must exceed before its rounding, float64 ``[pools, queries]``.

        -inf where a list is not full. An entry whose score, rounded to float32, ties with the last one may still enter
        by its row. What rounds to a float32 is more than the float32 before it.
        """
        scores = self.least()
        return torch.nextafter(scores, torch.full_like(scores, -torch.inf)).double()

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the lists of a pool as a ranking."""
        falling = self.keys()[pool].sort(dim=1, descending=True).values.cpu()
        filled = falling != EMPTY
        scores, rows = unpack(falling[filled])
        return Ranking.from_counts(filled.sum(1).numpy(), rows.numpy().astype(np.uint32), scores.numpy())


def merged(rankings: Iterable[Ranking], queries: int, depth: int) -> Ranking:
    """Return the best of several rankings of the same queries, whose candidates differ."""
    best = TopK(queries, depth)
    for part in rankings:
        keys = pack(torch.tensor(part.score), torch.tensor(part.row.astype(np.int64)))
        best.add(torch.tensor(part.query.astype(np.int64)), keys, torch.ones_like(keys))
    return best.ranking()
