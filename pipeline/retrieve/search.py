"""One search under way, whatever pass feeds it: pools, exclusions, thresholds and the best of each list so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StageError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve.base import (
    MAX_SUBSETS,
    Block,
    Done,
    Exclusions,
    Groups,
    Metric,
    Ranking,
    Subset,
    Vectors,
    block_rows,
    check_depth,
    ignored,
)  # fmt: skip
from pipeline.retrieve.canonical import CODES, pair_scores
from pipeline.retrieve.estimates import Floats, ScoreBounds, as_stored, check_metric
from pipeline.retrieve.topk import Keys, Positions, TopK, pack

NONE: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class Candidates:
    """A block of candidates; each has one vector, or those between two offsets.

    Attributes:
        rows: uint32 ``[m]``.
        vectors: float32 ``[n, d]``.
        offsets: int64 ``[m + 1]``, or ``[0]`` where each has one vector.
        members: uint64 ``[m]``, a bit for each pool a candidate is in.
        excluded: queries, positions, and the bits of the pools they are excluded from; sorted by the first two.
    """

    rows: Rows
    vectors: Floats
    offsets: Positions
    members: Keys
    excluded: tuple[Positions, Positions, Keys]


class Search:
    """The state of one search: pools, the best of each list so far, and the threshold of each.

    Attributes:
        queries: how many.
        best: the best of each query in each pool.
        threshold: float32 ``[pools, queries]``, what an estimate's upper bound has to reach.
    """

    def __init__(
        self,
        vectors: Vectors,
        metric: Metric,
        depth: int,
        subsets: Sequence[Subset],
        *,
        low: bool = False,
        offsets: Positions = NONE,
    ) -> None:
        """Start a search; ``offsets`` int64 ``[q + 1]``: where each query's vectors start, if it has several."""
        check_depth(depth)
        check_metric(metric)
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise InputError(f"the queries have shape {vectors.shape}", "Give one vector a query")
        if not 1 <= len(subsets) <= MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self.queries = len(offsets) - 1 if len(offsets) else len(vectors)
        if (empty := np.flatnonzero(np.diff(offsets) < 1)).size:
            raise InputError(f"query {empty[0]} has no vector", "Give each query one or more")
        for _, (starts, _) in subsets:
            if len(starts) != self.queries + 1:
                raise InputError(
                    f"exclusions are of {len(starts) - 1} queries, {self.queries} are searched", "Give both of one pool"
                )
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.metric, self.depth, self.subsets, self.offsets, self._low = metric, depth, subsets, offsets, low
        self.norms: npt.NDArray[np.float64] = pair_norms(self.vectors)
        self.best = TopK(self.queries, depth, len(subsets))
        self.threshold: Floats = np.full((len(subsets), self.queries), -np.inf, np.float32)
        self._bounds: ScoreBounds | None = None
        self._last = -1

    @property
    def bounds(self) -> ScoreBounds:
        """Where estimates are made; there is one from the first block on."""
        if self._bounds is None:
            raise ValueError("no candidates yet")
        return self._bounds

    def blocks(self, blocks: Iterable[Block], memory: int, least: int = 1) -> Iterator[Candidates]:
        """Yield the candidates in blocks that fit in memory; where queries have several vectors, candidates may too."""
        for all_rows, matrix in blocks:
            if len(all_rows) != len(matrix):
                raise InputError(
                    f"a block has {len(all_rows)} rows and {len(matrix)} vectors",
                    "Give one vector a row, or repeat the row of a paper with several",
                )
            several = len(self.offsets) > 0
            starts = np.flatnonzero(np.diff(all_rows.astype(np.int64), prepend=-1)) if several else NONE
            rows, ends = (all_rows[starts], np.append(starts[1:], len(all_rows))) if several else (all_rows, NONE)
            self._check_rise(rows)
            size, first = max(block_rows(matrix.shape[-1], memory), least), 0
            while first < len(rows):
                if several:
                    last = max(first + 1, int(np.searchsorted(ends, starts[first] + size, "right")))
                    here = slice(int(starts[first]), int(ends[last - 1]))
                    offsets = np.append(starts[first:last], ends[last - 1]) - starts[first]
                else:
                    last, offsets = min(first + size, len(rows)), NONE
                    here = slice(first, last)
                vectors = as_stored(matrix[here], self.vectors.shape[1])
                if self._bounds is None:
                    self._bounds = ScoreBounds(
                        self.vectors, self.norms, self.metric, vectors, all_rows[here], low=self._low
                    )
                part = rows[first:last]
                yield Candidates(part, vectors, offsets, self._members(part), self._excluded(part))
                first = last

    def whole(self, rows: Rows, vectors: Floats) -> Candidates | None:
        """Return all candidates as one block, None where there are none."""
        if not len(rows):
            return None
        return next(self.blocks([(rows, vectors)], 1 << 62, len(rows)))

    def _check_rise(self, rows: Rows) -> None:
        if not len(rows):
            return
        if int(rows[0]) <= self._last or (rows[1:] <= rows[:-1]).any():
            raise InputError(
                f"candidate rows do not rise after row {self._last}",
                "Give each candidate once, in order, with one vector",
            )
        self._last = int(rows[-1])

    def _members(self, rows: Rows) -> Keys:
        members: Keys = np.zeros(len(rows), np.uint64)
        for pool, (candidates, _) in enumerate(self.subsets):
            bit = np.uint64(1 << pool)
            if candidates is None:
                members |= bit
            else:
                first, last = np.searchsorted(candidates, [rows[0], np.int64(rows[-1]) + 1])
                members[np.isin(rows, candidates[first:last], assume_unique=True)] |= bit
        return members

    def _excluded(self, rows: Rows) -> tuple[Positions, Positions, Keys]:
        of_pools = []
        for pool, (_, (offsets, removed)) in enumerate(self.subsets):
            positions = np.searchsorted(rows, removed)
            here = rows[np.minimum(positions, len(rows) - 1)] == removed
            owner = np.repeat(np.arange(self.queries), np.diff(offsets))[here]
            of_pools.append((owner * len(rows) + positions[here], np.full(len(owner), 1 << pool, np.uint64)))
        pairs, inverse = np.unique(np.concatenate([pair for pair, _ in of_pools]), return_inverse=True)
        bits: Keys = np.zeros(len(pairs), np.uint64)
        np.bitwise_or.at(bits, inverse, np.concatenate([bit for _, bit in of_pools]))
        return pairs // len(rows), pairs % len(rows), bits

    def rescore_excluded(self, block: Candidates) -> None:
        """Score the candidates of a block that are excluded for a query in some of their pools alone."""
        owners, positions, bits = block.excluded
        left = block.members[positions] & ~bits
        kept = left > 0
        self.rescore(block, owners[kept], positions[kept], left[kept])

    def rescore(
        self,
        block: Candidates,
        owners: Positions,
        positions: Positions,
        pools: Keys,
        between: tuple[Floats, Floats] | None = None,
    ) -> None:
        """Score pairs canonically and keep the best of each list. Threads may do so for different queries at once.

        Args:
            block: where the candidates are.
            owners: int64 ``[n]``, queries, rising.
            positions: int64 ``[n]``, in the block.
            pools: uint64 ``[n]``, a bit for each pool.
            between: bounds of the estimates, float32 ``[n]``, that the scores have to keep.

        Raises:
            StageError: a score is beyond its bounds: the machine multiplies in less than float32, say.
        """
        if not len(owners):
            return
        bounds = self.bounds
        order = np.argsort(positions, kind="stable")  # a candidate is read from memory once
        scores: npt.NDArray[np.float64] = np.empty(len(owners))
        scores[order] = pair_scores(
            CODES[self.metric],
            self.vectors,
            self.norms,
            block.vectors,
            owners[order],
            positions[order],
            block.offsets,
            self.offsets,
        )
        if between is not None and not len(self.offsets):
            estimates = (scores - bounds.shift[owners]) / bounds.scale
            slack = 2.0**-40 * (np.abs(scores) + np.abs(bounds.shift[owners])) + 2.0**-140
            if ((estimates < between[0] - slack) | (estimates > between[1] + slack)).any():
                raise StageError(
                    "the fast pass is further from the exact scores than float32 arithmetic can be",
                    "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
                )
        rounded = scores.astype(np.float32) + np.float32(0)
        self.best.add(owners, pack(rounded, block.rows[positions]), pools)

    def raise_thresholds(self, queries: slice | Positions = slice(None)) -> None:
        """Raise the thresholds of some queries to the floors of their lists."""
        floors = self.best.floors(queries)
        if len(self.offsets):  # the estimate of a best pair includes the shift
            needed = np.nextafter((floors / self.bounds.scale).astype(np.float32), np.float32(-np.inf))
        else:
            needed = self.bounds.needed(floors, queries)
        self.threshold[:, queries] = np.maximum(self.threshold[:, queries], needed)

    def rankings(self) -> list[Ranking]:
        """Return the ranking of each pool."""
        return [self.best.ranking(pool) for pool in range(len(self.subsets))]


class DenseEngine(ABC):
    """An exact nearest-neighbour search that reads its candidates once."""

    def search(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        *,
        metric: Metric,
        depth: int,
        excluded: Exclusions,
        resources: Resources,
    ) -> Ranking:
        """Return the ``depth`` best candidates of every query: :meth:`search_pools` of one pool of all candidates."""
        subsets = [Subset(None, excluded)]
        return self.search_pools(queries, blocks, subsets, metric=metric, depth=depth, resources=resources)[0]

    def search_pools(
        self,
        queries: Vectors | Groups,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return the ranking of each of several pools, from one pass over their union.

        Args:
            queries: float16 or float32 ``[q, d]``, the same for every pool; or groups, where candidates may have
                several vectors too: then their rows repeat, within one block.
            blocks: the candidates of all pools, read once and in order.
            subsets: the pools, at most :data:`pipeline.retrieve.base.MAX_SUBSETS`.
            metric: ``l2`` (negated squared distance), ``inner_product`` or ``cosine`` (0 where a vector is zero).
            depth: 1 to :data:`pipeline.retrieve.base.MAX_DEPTH`; a query has fewer entries where fewer remain.
            resources: memory in bytes for everything but ``queries`` and the block at hand, threads, device.
            done: progress callback; receives the number of candidates processed since the last call.

        Raises:
            InputError: wrong shapes, rows that do not rise, vectors that are not finite or too large for float32, or a
                device that is not there.
        """
        offsets, vectors = queries if isinstance(queries, Groups) else (NONE, queries)
        low = self.low_pays(len(vectors), resources)
        search = Search(vectors, metric, depth, subsets, low=low, offsets=np.asarray(offsets, np.int64))
        self.rank(search, blocks, resources, done)
        return search.rankings()

    @abstractmethod
    def rank(self, search: Search, blocks: Iterable[Block], resources: Resources, done: Done) -> None:
        """Score from each block what could be among the best."""

    def low_pays(self, queries: int, resources: Resources) -> bool:  # noqa: ARG002
        """Whether products are to be of bfloat16."""
        return False


def grouped(counts: npt.NDArray[np.integer], most: int) -> Iterator[slice]:
    """Yield neighbours whose counts sum to ``most`` or less, one by one where a count is more."""
    ends, first = np.cumsum(counts), 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, "right")))
        yield slice(first, last)
        first = last


def pair_norms(vectors: Floats) -> npt.NDArray[np.float64]:
    """Return the lengths of vectors ``[n, d]``, canonically, float64 ``[n]``."""
    places = np.arange(len(vectors))
    squares = pair_scores(CODES["inner_product"], vectors, np.empty(0), vectors, places, places, NONE, NONE)
    with np.errstate(invalid="ignore"):  # NaN is refused later, by name
        norms: npt.NDArray[np.float64] = np.sqrt(squares)
    return norms
