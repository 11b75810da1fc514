"""One search under way, whatever engine feeds it: its pools, its blocks of candidates, the best of each list so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve.base import MAX_SUBSETS, Block, Groups, Metric, Ranking, Subset, Vectors, check_depth
from pipeline.retrieve.canonical import CODES, Side, lengths, score_pairs, tensor_scores
from pipeline.retrieve.estimates import Candidates, Estimates, check_lengths, mean_of
from pipeline.retrieve.topk import TopK, pack

_PAIR_BYTES = 256
"""Memory of a pair of papers that is scored, about, beside its vectors where these are copied."""

_SLACK = 2.0**-40
"""Share of a score that the float64 arithmetic of shifts may lose, and much more."""


class Search:
    """The state of one search.

    Attributes:
        queries: how many.
        device: where all of it is.
        side: the vectors of the queries.
        norms: their lengths, float64.
        scores: scores pairs canonically on the device.
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
        offsets, vectors = queries if isinstance(queries, Groups) else (None, queries)
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise InputError(f"the queries have shape {vectors.shape}", "Give one vector a query")
        if offsets is not None and len(empty := np.flatnonzero(np.diff(offsets) < 1)):
            raise InputError(f"query {empty[0]} has no vector", "Give each query one or more")
        if not 1 <= len(subsets) <= MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self.metric, self.depth, self.subsets, self.resources = metric, depth, subsets, resources
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
        self._origin = torch.empty(0)  # known from the first block on
        self._estimates: dict[bool, Estimates] = {}

    def _exclusions(self) -> tuple[Tensor, Tensor]:
        """Return pairs, rising (query, then row), and a bit for each pool they are excluded from, int64 both."""
        columns = []
        for pool, (_, (offsets, rows)) in enumerate(self.subsets):
            if len(offsets) != self.queries + 1:
                raise InputError(
                    f"exclusions are of {len(offsets) - 1} queries, {self.queries} are searched",
                    "Give both of one pool",
                )
            pairs = np.repeat(np.arange(self.queries), np.diff(offsets)) << 32 | rows
            columns.append((pairs, np.full(len(pairs), 1 << pool, np.uint64)))
        pairs, place = np.unique(np.concatenate([pairs for pairs, _ in columns]), return_inverse=True)
        bits = np.zeros(len(pairs), np.uint64)
        np.bitwise_or.at(bits, place, np.concatenate([bits for _, bits in columns]))
        return torch.from_numpy(pairs).to(self.device), torch.from_numpy(bits.view(np.int64)).to(self.device)

    def blocks(self, blocks: Iterable[Block]) -> Iterator[Candidates]:
        """Yield blocks of candidates on the device; where queries have several vectors, candidates may too."""
        last = -1
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
            if (np.diff(papers.astype(np.int64), prepend=last) <= 0).any():
                raise InputError(
                    f"candidate rows do not rise after row {last}",
                    "Give each candidate once, in order, with one vector",
                )
            vectors = torch.from_numpy(np.ascontiguousarray(matrix)).to(self.device).float()
            if last < 0:
                self._origin = mean_of(vectors, rows, self.metric)
            last = int(papers[-1])
            yield Candidates(papers, Side(vectors, offsets), self._members(papers))

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

    def estimates(self, low: bool = False) -> Estimates:
        """Return where estimates are made, from the first block on; ``low``: of bfloat16."""
        if low not in self._estimates:
            self._estimates[low] = Estimates(self.side, self.metric, self._origin, low=low)
        return self._estimates[low]

    def rescore(self, block: Candidates, owners: Tensor, positions: Tensor, pools: Tensor, most: Tensor) -> None:
        """Score pairs canonically, but for those that are excluded, and keep the best of each list.

        Args:
            block: where the candidates are.
            owners: int64 ``[n]``, queries.
            positions: int64 ``[n]``, in the block.
            pools: int64 ``[n]``, a bit for each pool.
            most: float32 ``[n]``, what the estimates say that ``e`` is at most.

        Raises:
            StageError: a score is more: the machine multiplies in less than float32, say.
        """
        rows = torch.from_numpy(block.rows.astype(np.int64)).to(self.device)[positions]
        excluded, bits = self._excluded
        if len(excluded):
            pairs = owners << 32 | rows
            place = torch.searchsorted(excluded, pairs).clamp_(max=len(excluded) - 1)
            pools = torch.where(excluded[place] == pairs, pools & ~bits[place], pools)
        kept = pools != 0
        columns = [column[kept] for column in (owners, positions, rows, pools, most)]
        copied = 0 if self.scores is score_pairs else 64 * self.side.vectors.shape[1]
        size = max(self.resources.memory // 16 // (_PAIR_BYTES + copied), 1)
        for owner, position, row, pool, above in zip(*(column.split(size) for column in columns), strict=True):
            scores = self.scores(
                self.metric, self.side, self.norms, block.papers, owner, position, self.resources.workers
            )
            shift = self.estimates().shift[owner]
            if bool((scores - shift > above + _SLACK * (scores.abs() + shift.abs()) + 2.0**-140).any()):
                raise StageError(
                    "the fast pass is further from the exact scores than float32 arithmetic can be",
                    "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
                )
            self.best.add(owner, pack(scores.float() + 0.0, row), pool)

    def needed(self) -> Tensor:
        """Return the least ``e`` that may enter each list, float32 ``[pools, queries]``, rounded down."""
        floors, shift = self.best.floors(), self.estimates().shift
        slack = _SLACK * (floors.nan_to_num(neginf=0.0).abs() + shift.abs())
        needed = (floors - shift - slack).float()
        return torch.nextafter(needed, torch.full_like(needed, -torch.inf))

    def rankings(self) -> list[Ranking]:
        """Return the ranking of each pool."""
        return [self.best.ranking(pool) for pool in range(len(self.subsets))]
