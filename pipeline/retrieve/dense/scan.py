"""One search under way, whatever pass feeds it: frame, pools, and the best of each query in each pool so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve import select
from pipeline.retrieve.base import (
    LARGEST_BLOCK,
    MAX_SUBSETS,
    Block,
    Metric,
    Ranking,
    Subset,
    Vectors,
    block_rows,
    check_depth,
)
from pipeline.retrieve.dense import sieves, trims
from pipeline.retrieve.dense.frame import Frame, FramedBlock
from pipeline.retrieve.dense.pairs import Doubles, Pairs, Visits, Whole
from pipeline.retrieve.toplists import Each, Positions, TopLists

Members = npt.NDArray[np.uint64]

_SHARES = 2
"""Shares of the candidates for each set of pairs that threads score: some have more pairs than others."""


class Scored(Protocol):
    """Candidates of a search under way."""

    @property
    def rows(self) -> Rows:
        """Row of each candidate, rising."""

    def score(self, frame: Frame, visits: Visits, canonical: Doubles) -> None:
        """Write the canonical scores of pairs before their rounding, by their numbers."""


class Search:
    """The state of one search.

    A list is one query in one pool: query ``q`` in pool ``p`` has list ``p * queries + q``. A pass estimates scores,
    drops what lies below the floors of ``best`` by more than its bound, and gives the rest to :meth:`absorb`. Several
    threads may do so at once for different lists.

    Attributes:
        best: the best of each list among the candidates absorbed.
        queries: how many.
        pools: how many.
        whole: whether points may be whole numbers.
    """

    def __init__(
        self,
        queries: Vectors,
        metric: Metric,
        depth: int,
        subsets: Sequence[Subset],
        *,
        low: bool = False,
        whole: bool = False,
        count: int | None = None,
    ) -> None:
        """Start a search.

        Args:
            queries: float16 or float32 ``[n, d]``.
            metric: how vectors are compared.
            depth: entries of a list.
            subsets: the pools.
            low: whether points are bfloat16, not float32.
            whole: whether they may be whole numbers, too.
            count: the number of queries where one has several vectors.
        """
        check_depth(depth)
        if not 1 <= len(subsets) <= MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self._queries, self._metric, self._low, self.whole = queries, metric, low, whole
        self.queries = len(queries) if count is None else count
        self.pools = len(subsets)
        owners = []
        for number, (_, (offsets, _)) in enumerate(subsets):
            if len(offsets) != self.queries + 1:
                raise InputError(
                    f"exclusions are of {len(offsets) - 1} queries, {self.queries} are searched",
                    "Give both of one pool",
                )
            owners.append(number * self.queries + np.repeat(np.arange(self.queries), np.diff(offsets)))
        some = [np.empty(0, np.uint32) if subset.candidates is None else subset.candidates for subset in subsets]
        self._candidates: Rows = np.concatenate(some)
        self._starts: Positions = np.cumsum([0, *map(len, some)])
        self._everywhere = sum(1 << number for number, subset in enumerate(subsets) if subset.candidates is None)
        self._owner: Positions = np.concatenate(owners)
        self._removed: Rows = np.concatenate([subset.excluded[1] for subset in subsets])
        self._frame: Frame | None = None
        self._last = -1
        self.depth = depth
        self.best = TopLists(self.queries, depth, self.pools)

    def framed(self, blocks: Iterable[Block], resources: Resources, most: int = LARGEST_BLOCK) -> Iterator[FramedBlock]:
        """Yield the candidates in the frame, in blocks that fit in memory; the first of them places the frame.

        Args:
            blocks: candidates as they are stored.
            resources: memory and threads.
            most: candidates of a block in the frame.
        """
        for rows, matrix in blocks:
            self.check_rise(rows)
            size = min(block_rows(matrix.shape[-1], resources.memory), most)
            for start in range(0, len(rows), size):
                yield self.place((rows[start : start + size], matrix[start : start + size]), resources.workers)

    def place(self, block: Block, workers: int) -> FramedBlock:
        """Return a block in the frame; the first one decides where that is."""
        return self.start(block[1]).block(block, workers)

    def start(self, sample: Vectors) -> Frame:
        """Place the frame by the first candidates, unless that is done, and return it."""
        if self._frame is None:
            self._frame = Frame(self._queries, self._metric, sample, low=self._low, whole=self.whole)
        return self._frame

    @property
    def rounded(self) -> bool:
        """Whether there are products of other points than float32."""
        return self._low or self.whole

    @property
    def frame(self) -> Frame:
        """Where estimates are made; there is one once :meth:`framed` met a candidate."""
        if self._frame is None:
            raise ValueError("no candidates yet")
        return self._frame

    def check_rise(self, rows: Rows) -> None:
        """Refuse candidates that do not rise over those before."""
        if not len(rows):
            return
        if int(rows[0]) <= self._last or (rows[1:] <= rows[:-1]).any():
            raise InputError(
                f"candidate rows do not rise after row {self._last}",
                "Give each candidate once, in order, with one vector",
            )
        self._last = int(rows[-1])

    def members(self, rows: Rows) -> Members:
        """Return which pools each candidate is in, uint64 ``[m]``, a bit a pool, of rows that rise."""
        found = np.full(len(rows), self._everywhere, np.uint64)
        sieves.mark(rows, self._candidates, self._starts, found)
        return found

    def lists(self, queries: Positions) -> Positions:
        """Return the lists of some queries in each pool, int64 ``[n, p]``."""
        return queries[:, None] + np.arange(self.pools) * self.queries

    @property
    def excluded(self) -> Positions:
        """How many rows are excluded from each list, int64 ``[lists]``."""
        return np.bincount(self._owner, minlength=self.queries * self.pools)

    def removed(self, rows: Rows) -> tuple[Positions, Positions]:
        """Return the exclusions that are among some rows, which rise: lists (rising) and positions there."""
        if not len(self._removed):
            return self._owner, self._owner
        positions = np.searchsorted(rows, self._removed)
        here = rows[np.minimum(positions, len(rows) - 1)] == self._removed
        return self._owner[here], positions[here]

    def likely(self, pairs: Pairs, removed: tuple[Positions, Positions]) -> Pairs:
        """Return the pairs that could be among the best of a pool, less those removed (:meth:`removed`); no copies."""
        if not len(pairs.queries):
            return pairs
        first, last = int(pairs.queries[0]), int(pairs.queries[-1]) + 1
        lists = np.arange(self.pools)[:, None] * self.queries + np.arange(first, last + 1)
        starts = np.searchsorted(removed[0], lists)
        floors = self.best.floors(lists[:, :-1])
        return pairs.part(0, trims.drop(pairs, first, floors, starts, removed[1]))

    def absorb(self, block: Scored, pairs: Sequence[Pairs], each: Each = map) -> None:
        """Score pairs canonically, each once, and keep the best of each list.

        Args:
            block: where the candidates are.
            pairs: of different queries each, none of them removed from a ranking it may come into, none absorbed
                before.
            each: how to do something for each of several things: as ``map`` does, or in threads.
        """

        def keep(some: Pairs, canonical: Doubles) -> None:
            self.frame.check(some.estimates, canonical, some.bounds)
            self.best.add(some.queries, select.keys_of(canonical, block.rows, some.positions), some.pools)

        places = [(some.queries, some.positions) for some in pairs]
        list(each(keep, pairs, scores(block, self.frame, self.queries, places, each)))

    def rankings(self, shares: int = 1, each: Each = map) -> list[Ranking]:
        """Return the ranking of each pool; ``shares`` and ``each`` as of :meth:`TopLists.ranking`."""
        if self.pools == 1:
            return [self.best.ranking(shares=shares, each=each)]
        lists = [slice(pool * self.queries, (pool + 1) * self.queries) for pool in range(self.pools)]
        return list(each(self.best.ranking, lists))


def scores(
    block: Scored, frame: Frame, queries: int, pairs: Sequence[tuple[Whole, Whole]], each: Each = map
) -> list[Doubles]:
    """Return the canonical scores of pairs before their rounding, float64.

    Args:
        block: where the candidates are.
        frame: where the queries are.
        queries: how many.
        pairs: queries and positions in the block.
        each: as of :meth:`Search.absorb`; each thread scores some candidates, for all queries.
    """
    limits = np.cumsum([0, *(len(own) for own, _ in pairs)])
    canonical = np.empty(limits[-1])
    shares = _SHARES * len(pairs) if len(pairs) > 1 else 1
    edges = np.linspace(0, len(block.rows), shares + 1).astype(np.int64).tolist()

    def score(first: int, last: int) -> None:
        block.score(frame, Visits.of(pairs, queries, range(first, last)), canonical)

    list(each(score, edges[:-1], edges[1:]))
    return np.split(canonical, limits[1:-1])
