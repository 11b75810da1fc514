"""One search under way, whatever engine feeds it: its pools, its blocks of candidates, the best of each list so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    block_rows,
    check_depth,
)
from pipeline.retrieve.estimates import Estimates, check_lengths, mean_of
from pipeline.retrieve.pairs import CODES, Side, lengths, score_pairs, tensor_scores
from pipeline.retrieve.topk import TopK, pack

_PAIR_BYTES = 256
"""Memory of a pair of papers that is scored, about, beside its vectors where these are copied."""


@dataclass(frozen=True)
class Candidates:
    """A block of candidates on the device of a search; each has one vector, or those between two offsets.

    Attributes:
        rows: uint32 ``[m]``, in main memory.
        papers: their vectors.
        members: int64 ``[m]``, a bit for each pool a candidate is in.
        excluded: queries, positions, and the bits of the pools they are excluded from, int64; sorted by the first two.
    """

    rows: Rows
    papers: Side
    members: Tensor
    excluded: tuple[Tensor, Tensor, Tensor]

    def tiles(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the bounds of tiles of ``size`` vectors or fewer, of one paper where it has more."""
        first, ends = 0, self.papers.offsets
        while first < len(self.rows):
            last = min(first + size, len(self.rows))
            if ends is not None:
                last = max(int(torch.searchsorted(ends, ends[first] + size, right=True)) - 1, first + 1)
            yield first, last
            first = last


class Search:
    """The state of one search: pools, and the best of each list so far.

    Attributes:
        queries: how many.
        device: where all of it is.
        best: the best of each query in each pool.
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
        vectors = queries.vectors if isinstance(queries, Groups) else queries
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise InputError(f"the queries have shape {vectors.shape}", "Give one vector a query")
        if not 1 <= len(subsets) <= MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self.device, self.resources = torch.device(device), resources
        offsets = torch.from_numpy(queries.offsets).to(device) if isinstance(queries, Groups) else None
        self.queries = len(vectors) if offsets is None else len(offsets) - 1
        if offsets is not None and len(empty := (offsets.diff() < 1).nonzero()):
            raise InputError(f"query {int(empty[0])} has no vector", "Give each query one or more")
        for _, (starts, _) in subsets:
            if len(starts) != self.queries + 1:
                raise InputError(
                    f"exclusions are of {len(starts) - 1} queries, {self.queries} are searched", "Give both of one pool"
                )
        self.side = Side(torch.tensor(np.asarray(vectors, np.float32), device=device), offsets)
        self.metric, self.depth, self.subsets = metric, depth, subsets
        self.norms = lengths(self.side.vectors)
        check_lengths(self.norms, "query")
        self.scores = score_pairs if self.device.type == "cpu" else tensor_scores
        self.best = TopK(self.queries, depth, len(subsets), self.device)
        self._origin: Tensor | None = None
        self._estimates: dict[bool, Estimates] = {}
        self._last = -1

    @property
    def _pair_bytes(self) -> int:
        copied = 0 if self.scores is score_pairs else 64 * self.side.vectors.shape[1]
        return _PAIR_BYTES + copied

    def estimates(self, low: bool = False) -> Estimates:
        """Return where estimates are made, from the first block on; ``low``: of bfloat16."""
        if self._origin is None:
            raise ValueError("no candidates yet")
        if low not in self._estimates:
            self._estimates[low] = Estimates(self.side.vectors, self.norms, self.metric, self._origin, low=low)
        return self._estimates[low]

    def blocks(self, blocks: Iterable[Block], least: int = 1) -> Iterator[Candidates]:
        """Yield the candidates in blocks that fit in memory; where queries have several vectors, candidates may too."""
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
            several = self.side.offsets is not None
            starts = np.flatnonzero(np.diff(rows.astype(np.int64), prepend=-1)) if several else np.arange(len(rows))
            ends = np.append(starts[1:], len(rows))
            self._check_rise(rows[starts])
            size, first = max(block_rows(matrix.shape[1], self.resources.memory), least), 0
            while first < len(starts):
                last = max(first + 1, int(np.searchsorted(ends, starts[first] + size, "right")))
                here = slice(int(starts[first]), int(ends[last - 1]))
                vectors = torch.from_numpy(np.ascontiguousarray(matrix[here])).to(self.device).float()
                if self._origin is None:
                    self._origin = mean_of(vectors, rows[here], self.metric)
                offsets = torch.from_numpy(np.append(starts[first:last], here.stop) - here.start).to(self.device)
                some = rows[starts[first:last]]
                papers = Side(vectors, offsets if several else None)
                yield Candidates(some, papers, self._members(some), self._excluded(some))
                first = last

    def _check_rise(self, rows: Rows) -> None:
        if not len(rows):
            return
        if int(rows[0]) <= self._last or (rows[1:] <= rows[:-1]).any():
            raise InputError(
                f"candidate rows do not rise after row {self._last}",
                "Give each candidate once, in order, with one vector",
            )
        self._last = int(rows[-1])

    def _members(self, rows: Rows) -> Tensor:
        members: npt.NDArray[np.uint64] = np.zeros(len(rows), np.uint64)
        for pool, (candidates, _) in enumerate(self.subsets):
            bit = np.uint64(1 << pool)
            if candidates is None:
                members |= bit
            else:
                first, last = np.searchsorted(candidates, [rows[0], np.int64(rows[-1]) + 1])
                members[np.isin(rows, candidates[first:last], assume_unique=True)] |= bit
        return torch.from_numpy(members.view(np.int64)).to(self.device)

    def _excluded(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        of_pools = []
        for pool, (_, (offsets, removed)) in enumerate(self.subsets):
            positions = np.searchsorted(rows, removed)
            here = rows[np.minimum(positions, len(rows) - 1)] == removed
            owner = np.repeat(np.arange(self.queries), np.diff(offsets))[here]
            of_pools.append((owner * len(rows) + positions[here], np.full(len(owner), 1 << pool, np.uint64)))
        pairs, inverse = np.unique(np.concatenate([pair for pair, _ in of_pools]), return_inverse=True)
        bits = np.zeros(len(pairs), np.uint64)
        np.bitwise_or.at(bits, inverse, np.concatenate([bit for _, bit in of_pools]))
        columns = pairs // len(rows), pairs % len(rows), bits.view(np.int64)
        owners, positions, pools = (torch.from_numpy(column).to(self.device) for column in columns)
        return owners, positions, pools

    def rescore_excluded(self, block: Candidates) -> None:
        """Score the candidates of a block that are excluded for a query in some of their pools alone."""
        owners, positions, bits = block.excluded
        left = block.members[positions] & ~bits
        kept = left != 0
        self.rescore(block, owners[kept], positions[kept], left[kept])

    def rescore(
        self, block: Candidates, owners: Tensor, positions: Tensor, pools: Tensor, most: Tensor | None = None
    ) -> None:
        """Score pairs canonically and keep the best of each list.

        Args:
            block: where the candidates are.
            owners: int64 ``[n]``, queries, rising.
            positions: int64 ``[n]``, in the block.
            pools: int64 ``[n]``, a bit for each pool.
            most: float32 ``[n]``, what the estimates say that ``e`` is at most.

        Raises:
            StageError: a score is more: the machine multiplies in less than float32, say.
        """
        rows = torch.from_numpy(block.rows.astype(np.int64)).to(self.device)[positions]
        size = max(self.resources.memory // 16 // self._pair_bytes, 1)
        parts = (part.split(size) for part in (owners, positions, rows, pools, owners if most is None else most))
        for owner, position, row, pool, above in zip(*parts, strict=True):
            scores = self.scores(
                self.metric, self.side, self.norms, block.papers, owner, position, self.resources.workers
            )
            if most is not None and self.side.offsets is None:
                estimates = self.estimates()
                shift = estimates.shift[owner]
                slack = 2.0**-40 * (scores.abs() + shift.abs()) + 2.0**-140
                if bool(((scores - shift) / estimates.scale > above + slack).any()):
                    raise StageError(
                        "the fast pass is further from the exact scores than float32 arithmetic can be",
                        "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
                    )
            self.best.add(owner, pack(scores.float() + 0.0, row), pool)

    def needed(self) -> Tensor:
        """Return the least ``e`` that may enter each list, float32 ``[pools, queries]``, rounded down."""
        estimates, floors = self.estimates(), self.best.floors()
        shift = torch.zeros(self.queries).to(floors) if self.side.offsets is not None else estimates.shift
        slack = 2.0**-40 * (floors.nan_to_num(neginf=0.0).abs() + shift.abs())
        needed = ((floors - shift - slack) / estimates.scale).float()
        return torch.nextafter(needed, torch.full_like(needed, -torch.inf))

    def rankings(self) -> list[Ranking]:
        """Return the ranking of each pool."""
        return [self.best.ranking(pool) for pool in range(len(self.subsets))]
