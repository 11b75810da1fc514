"""Exact search on a GPU: the filter and the lists of :mod:`pipeline.retrieve.dense` as tensor operations.

The pairs of a tile stay on the device until they are ranked; only limits, ``[pools, queries]``, pass through the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.csr import pack
from pipeline.core.order import Rows
from pipeline.retrieve.base import Ranking
from pipeline.retrieve.canonical import tensor_scores
from pipeline.retrieve.dense import TILE, Job, Search
from pipeline.retrieve.estimates import Candidates, Estimates
from pipeline.retrieve.topk import EMPTY, Pairs, from_keys

LARGEST = 1 << 30
"""Maximum estimates of a tile; PyTorch finds those that reach a limit among fewer than 2**31."""


class TensorTopK:
    """The greatest keys of each query in each pool, as :class:`pipeline.retrieve.topk.TopK`, on a device."""

    def __init__(self, pools: int, queries: int, depth: int, empty: np.generic, device: torch.device) -> None:
        dtype = torch.int64 if isinstance(empty, np.int64) else torch.float32
        self._empty, self._lists = empty, torch.full((pools, queries, depth), empty.item(), dtype=dtype, device=device)

    @property
    def least(self) -> Any:
        """The last key of each list, ``[pools, queries]``, ``empty`` while there are fewer."""
        return self._lists.amin(2).cpu().numpy()

    def add(self, owners: Tensor, keys: Tensor, pools: Tensor) -> None:
        """Add new keys ``[n]`` of queries ``owners``, each to the pools whose bits are set."""
        for pool, lists in enumerate(self._lists):
            new = ((pools >> pool & 1).bool() & (keys > lists.amin(1)[owners])).nonzero()[:, 0]
            if not len(new):
                continue
            owner, order = owners[new].sort(stable=True)
            counts = torch.bincount(owner, minlength=len(lists))
            place = torch.arange(len(new), device=owner.device) - (counts.cumsum(0) - counts)[owner]
            padded = lists.new_full((len(lists), int(counts.amax())), self._empty.item())
            padded[owner, place] = keys[new[order]]
            lists[:] = torch.cat([lists, padded], 1).topk(lists.shape[1], sorted=False).values

    def ranking(self, pool: int = 0) -> Ranking:
        """Return the keys of ranked entries of a pool as a ranking."""
        keys = self._lists[pool].sort(descending=True).values.cpu().numpy()
        scores, rows = from_keys(keys[keys != EMPTY])
        return Ranking.from_counts((keys != EMPTY).sum(1), rows, scores)


class GpuSearch(Search):
    """The state of a search on a GPU; the columns of its pairs are tensors there."""

    first = TILE

    def _lists(self, empty: np.generic) -> Any:
        """Return empty lists of keys."""
        return TensorTopK(len(self.subsets), self.queries, self.depth, empty, self.device)

    def _tile_size(self) -> int:
        """Return the vectors of a tile, for which half of the GPU's memory has room."""
        free = self.resources.memory
        if self.device.type == "cuda":
            cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            free = torch.cuda.mem_get_info(self.device)[0] + cached
        vectors = max(len(self.side.vectors), 1)
        return int(np.clip(min(free // 2 // 64, LARGEST) // vectors, 64, 1 << 17))

    def _pairs(self, estimates: Estimates, block: Candidates, job: Job) -> Pairs:
        """Return the pairs of a tile that may be in a ranking."""
        sample, queries = job[0], self._send(job[1])
        tile = estimates.tile(block, sample, queries)
        rows, members, smallest = (
            self._send(column[sample].astype(np.int64, copy=False).copy())
            for column in (block.rows, block.members.view(np.int64), block.smallest)
        )
        limits = self._send(self.limits)[:, queries]
        floors = limits.flip(0).cummin(0).values.flip(0) - (tile.length * tile.spread.amax() + tile.fixed.amax())
        floors = torch.cat([floors, torch.full_like(floors[:1], torch.inf)])  # of candidates of no pool
        owner, column = (tile.values >= floors.T.contiguous().index_select(1, smallest)).nonzero(as_tuple=True)
        value, error = tile.values[owner, column], tile.length[owner] * tile.spread[column] + tile.fixed[column]
        owner, pools = queries[owner], members[column]
        pools &= ~self._excluding(owner, rows[column])
        positions = torch.arange(len(block.rows), device=self.device)[sample][column]
        return Pairs(owner, positions, value + error, value - error, pools)

    def _bound(self, pairs: Pairs) -> Pairs:
        return self._reaching([super()._bound(pairs)])

    def _excluding(self, owners: Tensor, rows: Tensor) -> Tensor:
        """Return the pools that exclude pairs of queries and rows, int64 ``[n]``."""
        offsets, excluded, pools = self.excluded
        if not len(excluded):
            return torch.zeros_like(owners)
        known = self._send(pack(np.repeat(np.arange(self.queries), np.diff(offsets)), excluded).view(np.int64))
        pairs = owners << 32 | rows
        place = torch.searchsorted(known, pairs).clamp_(max=len(known) - 1)
        return torch.where(known[place] == pairs, self._send(pools.view(np.int64))[place], 0)

    def _reaching(self, waiting: Sequence[Pairs]) -> Pairs:
        """Return the pairs that reach limits."""
        pairs = Pairs._make(map(torch.cat, zip(*waiting, strict=True)))
        limits, pools = self._send(self.limits), pairs.pools.clone()
        for pool, limit in enumerate(limits):
            pools &= ~((pairs.uppers < limit[pairs.owners]).long() << pool)
        kept = pools.nonzero()[:, 0]
        return Pairs._make(column[kept] for column in pairs._replace(pools=pools))

    def _score_size(self) -> int:
        """Return the number of pairs that are scored at once, for which a quarter of the GPU's memory has room."""
        free = self.resources.memory // 4
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
        return int(max(free // 4 // (256 + 80 * self.side.vectors.shape[1]), 1))

    def _scores(self, block: Candidates, owners: Tensor, positions: Tensor) -> Tensor:
        return tensor_scores(self.metric, self.side, self.norms, block.papers, owners, positions)

    def _keys(self, scores: Tensor, rows: Rows, positions: Tensor) -> Tensor:
        bits = (scores.float() + 0).view(torch.int32).long()
        return (bits ^ (bits >> 31 & 0x7FFFFFFF)) << 32 | self._send(rows.astype(np.int64))[positions]

    def _send(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)
