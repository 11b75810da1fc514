"""State of a running search: its pools, its blocks of candidates, and the best entries so far, for all engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve.base import (
    MAX_SUBSETS,
    Block,
    Groups,
    Metric,
    Ranking,
    Subset,
    Vectors,
    check_depth,
    check_queries,
)
from pipeline.retrieve.canonical import CODES, Side, lengths, score_pairs, tensor_scores
from pipeline.retrieve.estimates import Candidates, Estimates, check_lengths, mean_of
from pipeline.retrieve.topk import TopK, pack

_PAIR_BYTES = 256
"""Approximate memory of scoring a pair of papers, in addition to copies of its vectors."""

_SLACK = 2.0**-40
"""Relative slack of scores, far above the float64 rounding errors of shifts."""


class Search:
    """The state of one search.

    Attributes:
        queries: number of queries.
        device: device of all tensors.
        side: the vectors of the queries.
        norms: their lengths, float64.
        scores: function that scores pairs canonically on the device.
        best: the best entries of each query in each pool.
        by_size: the pools by rising number of candidates.
    """

    def __init__(
        self,
        queries: Vectors | Groups,
        metric: Metric,
        depth: int,
        subsets: Sequence[Subset],
        resources: Resources,
        device: torch.device | str = "cpu",
    ) -> None:
        check_depth(depth)
        if metric not in CODES:
            raise InputError(f"there is no metric {metric!r}", nearest(metric, CODES))
        offsets, vectors = queries if isinstance(queries, Groups) else (None, queries)
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise InputError(f"the queries have shape {vectors.shape}", "Give one vector a query")
        if offsets is not None and len(empty := np.flatnonzero(np.diff(offsets) < 1)):
            raise InputError(f"query {empty[0]} has no vector", "Give each query one or more")
        if not 1 <= len(subsets) <= MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self.metric, self.depth, self.subsets, self.resources = metric, depth, subsets, resources
        sizes = [np.inf if candidates is None else len(candidates) for candidates, _ in subsets]
        self.by_size = sorted(range(len(subsets)), key=sizes.__getitem__)
        self.device = torch.device(device)
        self.side = Side(
            torch.tensor(np.asarray(vectors, np.float32), device=device),
            None if offsets is None else torch.from_numpy(offsets).to(device),
        )
        self.queries = len(vectors) if offsets is None else len(offsets) - 1
        self.norms = lengths(self.side.vectors)
        check_lengths(self.norms, "query")
        self.scores = score_pairs if self.device.type == "cpu" else tensor_scores
        self.best = TopK(self.queries, depth, len(subsets), self.device)
        self._excluded = self._exclusions()
        self._origin = torch.empty(0)  # set by the first block
        self._estimates: dict[bool, Estimates] = {}

    def _exclusions(self) -> tuple[Tensor, Tensor]:
        """Return excluded pairs (query, then row), rising, and a bit for each pool that excludes them, both int64."""
        columns = []
        for pool, (_, (offsets, rows)) in enumerate(self.subsets):
            check_queries("exclusions", (offsets, rows), self.queries)
            pairs = np.repeat(np.arange(self.queries), np.diff(offsets)) << 32 | rows
            columns.append((pairs, np.full(len(pairs), 1 << pool, np.uint64)))
        pairs, inverse = np.unique(np.concatenate([pairs for pairs, _ in columns]), return_inverse=True)
        bits = np.zeros(len(pairs), np.uint64)
        np.bitwise_or.at(bits, inverse, np.concatenate([bits for _, bits in columns]))
        return torch.from_numpy(pairs).to(self.device), torch.from_numpy(bits.view(np.int64)).to(self.device)

    def blocks(self, blocks: Iterable[Block]) -> Iterator[Candidates]:
        """Yield blocks of candidates on the device; if queries have several vectors, candidates may too."""
        last_row = -1
        for rows, matrix in blocks:
            if len(rows) != len(matrix):
                raise InputError(
                    f"a block has {len(rows)} rows and {len(matrix)} vectors",
                    "Give one vector a row, or repeat the row of a paper with several",
                )
            if matrix.ndim != 2 or matrix.shape[1] != self.side.vectors.shape[1]:
                raise InputError(
                    f"candidates have shape {matrix.shape}, queries {self.side.vectors.shape[1]} dimensions",
                    "Embed both with the same encoder",
                )
            if not len(rows):
                continue
            papers, offsets = rows, None
            if self.side.offsets is not None:
                starts = np.flatnonzero(np.diff(rows.astype(np.int64), prepend=-1))
                papers, offsets = rows[starts], torch.from_numpy(np.append(starts, len(rows))).to(self.device)
            if (np.diff(papers.astype(np.int64), prepend=last_row) <= 0).any():
                raise InputError(
                    f"candidate rows do not rise after row {last_row}",
                    "Give each candidate once, in order, with one vector",
                )
            vectors = torch.from_numpy(np.ascontiguousarray(matrix)).to(self.device).float()
            if last_row < 0:
                self._origin = mean_of(vectors, rows, self.metric)
            last_row = int(papers[-1])
            yield Candidates(papers, Side(vectors, offsets), *self._members(papers))

    def _members(self, rows: Rows) -> tuple[Tensor, Tensor]:
        members: npt.NDArray[np.uint64] = np.zeros(len(rows), np.uint64)
        smallest: npt.NDArray[np.int64] = np.full(len(rows), len(self.subsets) - 1)
        for place, pool in reversed(list(enumerate(self.by_size))):
            candidates, inside = self.subsets[pool].candidates, np.ones(len(rows), np.bool_)
            if candidates is not None:
                start, end = np.searchsorted(candidates, [rows[0], np.int64(rows[-1]) + 1])
                inside = np.isin(rows, candidates[start:end], assume_unique=True)
            members[inside] |= np.uint64(1 << pool)
            smallest[inside] = place
        return torch.from_numpy(members.view(np.int64)).to(self.device), torch.from_numpy(smallest).to(self.device)

    def estimates(self, bfloat16: bool = False) -> Estimates:
        """Return the estimates, in float32 or ``bfloat16``, after the first block was read."""
        if bfloat16 not in self._estimates:
            self._estimates[bfloat16] = Estimates(self.side, self.metric, self._origin, bfloat16=bfloat16)
        return self._estimates[bfloat16]

    def rescore(self, block: Candidates, owners: Tensor, positions: Tensor, pools: Tensor, bounds: Tensor) -> None:
        """Score pairs canonically, without excluded ones, and keep the best entries of the lists.

        Args:
            block: the candidates.
            owners: int64 ``[n]``, queries.
            positions: int64 ``[n]``, positions of candidates in the block.
            pools: int64 ``[n]``, a bit for each pool.
            bounds: float32 ``[n]``, upper bounds of ``e`` from the estimates.

        Raises:
            StageError: a score exceeds its bound, for instance if the machine multiplies in less than float32.
        """
        rows = torch.from_numpy(block.rows.astype(np.int64)).to(self.device)[positions]
        excluded, bits = self._excluded
        if len(excluded):
            pairs = owners << 32 | rows
            index = torch.searchsorted(excluded, pairs).clamp_(max=len(excluded) - 1)
            pools = torch.where(excluded[index] == pairs, pools & ~bits[index], pools)
        included = pools != 0
        columns = [column[included] for column in (owners, positions, rows, pools, bounds)]
        copied = 0 if self.scores is score_pairs else 64 * self.side.vectors.shape[1]
        size = max(self.resources.memory // 16 // (_PAIR_BYTES + copied), 1)
        for owner, position, row, pool, bound in zip(*(column.split(size) for column in columns), strict=True):
            scores = self.scores(
                self.metric, self.side, self.norms, block.papers, owner, position, self.resources.workers
            )
            shift = self.estimates().shift[owner]
            if bool((scores - shift > bound + _SLACK * (scores.abs() + shift.abs()) + 2.0**-140).any()):
                raise StageError(
                    "the fast pass is further from the exact scores than float32 arithmetic can be",
                    "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
                )
            self.best.add(owner, pack(scores.float() + 0.0, row), pool)

    def needed(self) -> Tensor:
        """Return the lowest ``e`` that may enter each list, float32 ``[pools, queries]``, rounded down."""
        floors, shift = self.best.floors(), self.estimates().shift
        slack = _SLACK * (floors.nan_to_num(neginf=0.0).abs() + shift.abs())
        needed = (floors - shift - slack).float()
        return torch.nextafter(needed, torch.full_like(needed, -torch.inf))

    def rankings(self) -> list[Ranking]:
        """Return the ranking of each pool."""
        return [self.best.ranking(pool) for pool in range(len(self.subsets))]
