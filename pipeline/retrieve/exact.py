"""Exact search on the CPU: the default engine.

A matrix product estimates the scores of a tile of candidates: in bfloat16 where the processor has instructions for it
and the search is large enough, else in float32. What comes within the error bound of the worst entry kept so far goes
to its list's reservoir; a reservoir that grows to several times the depth of the ranking is trimmed to what its own
estimates cannot rule out. Where memory allows, what is left after many blocks is scored canonically, hardly more than
``depth`` candidates a list; else after each block, while its vectors are at hand. Where the bound separates nothing
(thousands of equal vectors) all candidates are scored canonically: slower, never approximate.

Several pools with the same queries share the products: what is near enough for any of them is looked at for each.

Memory beside the queries and the caller's block: a block in the frame (with the caller's, half of ``memory`` at most,
see :func:`pipeline.retrieve.base.block_rows`), vectors that wait to be scored (a quarter), reservoirs (an eighth, or
64 MB a thread), and eight bytes an entry of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from pipeline.core.resources import Resources
from pipeline.retrieve import products, sieves
from pipeline.retrieve.base import LARGEST_BLOCK, Block, DenseEngine, Metric, Ranking, Subset, Vectors
from pipeline.retrieve.frame import Doubles, Floats, FramedBlock, Points, Stretch
from pipeline.retrieve.scan import Members, Scored, Search
from pipeline.retrieve.toplists import Positions

_Share = TypeVar("_Share")

QUERY_TILE = 256
SMALLEST_QUERY_TILE = 32
ROW_TILE = 2_048
"""A tile of scores, 2 MiB at most: it stays in a core's cache between the product and the comparison."""

FRAMED = 65_536
"""Candidates moved into the frame at once. More take fresh memory, which is slow; fewer keep threads waiting for each
other (at 768 dimensions)."""

KEEP = 3
"""How many times its depth a reservoir holds before it is trimmed."""

_ENTRY = 12
"""Bytes of an entry of a reservoir."""

_SCORED = 200_000
"""Pairs that are scored together."""

_LOWEST = -3e38
"""Below any estimate."""

_LONGEST = 1 << 24
"""Positions from here on are not exact in float32."""

_RESERVOIRS = 64 << 20
"""Bytes of the reservoirs of one tile of queries, unless there are very many pools."""


class ExactEngine(DenseEngine):
    """Blocked products with canonical rescoring; see :class:`pipeline.retrieve.base.DenseEngine`.

    Args:
        operations: of the products to come; what is known of them decides in which precision they are made.
        low: whether they are made in bfloat16; None: where that is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None) -> None:
        self.low = products.low_precision_pays(operations) if low is None else low

    def search_pools(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
    ) -> list[Ranking]:
        """Return the rankings of several pools (:meth:`pipeline.retrieve.base.DenseEngine.search_pools`)."""
        search = Search(queries, metric, depth, subsets, low=self.low)
        together = _Together(search, resources)
        for block in search.framed(blocks, resources, FRAMED if together.waits else LARGEST_BLOCK):
            together.add(block)
        together.flush()
        return search.rankings()


class _Together:
    """Scores candidates of several blocks at once where memory allows: most of what a block lets through falls later.

    Args:
        search: the search under way.
        resources: half of the memory is for the block at hand, a quarter for vectors that wait, an eighth for the
            reservoirs.

    Attributes:
        waits: whether candidates wait to be scored, so that small blocks cost no more than large ones.
    """

    def __init__(self, search: Search, resources: Resources) -> None:
        self._search, self._resources = search, resources
        self._reservoirs: list[Reservoir] = []
        self._stretch = Stretch()
        entries = search.queries * search.pools * _room(search.depth)
        self.waits = _ENTRY * entries <= resources.memory // 8

    def add(self, block: FramedBlock) -> None:
        """Take a block in."""
        search, workers = self._search, self._resources.workers
        if not self.waits:
            collect(search, block, np.arange(search.queries), workers)
            return
        if not self._reservoirs:
            shares = np.array_split(np.arange(search.queries), tiles(search.queries, workers))
            self._reservoirs = [reservoir(search, share) for share in shares if len(share)]
        most = min(self._resources.memory // (16 * block.vectors.shape[1]), _LONGEST)
        if len(self._stretch) + len(block) > most:
            self.flush()
        members, bound = search.members(block), search.frame.bound(block.radius)
        base = self._stretch.add(block)

        def sweep(each: Reservoir) -> None:
            each.sweep(block, bound, members, self._stretch, base)

        in_threads(search, workers, sweep, self._reservoirs)

    def flush(self) -> None:
        """Score what is left of the blocks so far."""
        if self._reservoirs:
            in_threads(self._search, self._resources.workers, lambda each: each.flush(self._stretch), self._reservoirs)
        self._stretch = Stretch()


def collect(search: Search, block: FramedBlock, queries: Positions, workers: int) -> None:
    """Absorb from a block every candidate that could be among the best of some of the queries, in every pool.

    Args:
        search: the search under way.
        block: the candidates.
        queries: int64 ``[n]``, which queries, rising.
        workers: threads.
    """
    if not len(queries):
        return
    members, bound = search.members(block), search.frame.bound(block.radius)

    def work(share: Positions) -> None:
        held = reservoir(search, share)
        held.sweep(block, bound, members, block, 0)
        held.flush(block)

    in_threads(search, workers, work, np.array_split(queries, tiles(len(queries), workers, most=affordable(search))))


def affordable(search: Search) -> int:
    """Return of how many queries a thread may hold reservoirs."""
    return _RESERVOIRS // (_ENTRY * search.pools * _room(search.depth))


def tiles(queries: int, workers: int, *, vectors: float = 1.0, most: int = QUERY_TILE) -> int:
    """Return into how many tiles to divide queries of so many vectors each: a whole number for every thread."""
    size = max(int(SMALLEST_QUERY_TILE / vectors), min(int(QUERY_TILE / vectors), most), 1)
    count = -(-max(queries, 1) // size)
    return min(-(-max(count, min(workers, queries)) // workers) * workers, max(queries, 1))


def in_threads(search: Search, workers: int, work: Callable[[_Share], None], shares: Iterable[_Share]) -> None:
    """Do the work of each share in a thread of its own, whose products have no further threads."""
    with (
        threadpoolctl.threadpool_limits(1, "blas"),
        products.single_threaded(search.frame.low) as initializer,
        ThreadPoolExecutor(workers, initializer=initializer) as threads,
    ):
        list(threads.map(work, shares))


def multiply(search: Search, points: Points, others: Points) -> Any:
    """Return products in the precision of the frame."""
    return products.product(points, others) if search.frame.low else np.matmul(points, others.T)


def _room(wanted: int) -> int:
    return KEEP * wanted + ROW_TILE


class Reservoir:
    """Candidates that could be among the best of some lists, by estimate; not yet scored.

    Args:
        search: the search under way.
        queries: int64 ``[n]``, whose lists, rising.
        lengths: float32 ``[n]``, of the queries' points.
        shift: float64 ``[n]``, added to estimates.
        rounding: what a product can have lost when it was stored, relative to it.
    """

    def __init__(self, search: Search, queries: Positions, lengths: Floats, shift: Doubles, rounding: float) -> None:
        self.search, self.queries = search, queries
        self.lengths, self.shift, self.rounding = lengths, shift, np.float32(rounding)
        self.scale = search.frame.scale
        self.lists = np.arange(search.pools)[:, None] * search.queries + queries
        self.wanted = search.depth + search.excluded[self.lists]
        self.records = np.empty((*self.lists.shape, _room(int(self.wanted.max())), 3), np.float32)
        self.counts = np.zeros(self.lists.shape, np.int64)
        self.bound = np.zeros(len(queries))
        self.thresholds = np.full(self.lists.shape, _LOWEST, np.float32)

    def sweep(self, block: FramedBlock, bound: Doubles, members: Members, scored: Scored, base: int) -> None:
        """Sift all candidates of a block.

        Args:
            block: the candidates.
            bound: float64 ``[q]``, of all queries, how far off estimates can be without their margins.
            members: uint64 ``[m]``, the pools of each.
            scored: what scores them, and those met before.
            base: position of the first there.
        """
        self.enter(bound[self.queries])
        points = self.search.frame.points[self.queries]
        for start in range(0, len(block), ROW_TILE):
            end = min(start + ROW_TILE, len(block))
            tile = multiply(self.search, points, block.points[start:end])
            self.sift(tile, start, block.bias, block.spread, members, scored, base)

    def enter(self, bound: Doubles) -> None:
        """Prepare for candidates with another bound; those met before keep theirs, so the larger one counts."""
        larger = np.maximum(self.bound, bound)
        below = self.thresholds - 2.0 * (larger - self.bound) / self.scale
        self.thresholds = _down(below)
        self.bound = larger
        self._raise_thresholds()

    def _raise_thresholds(self) -> None:
        """Let in only what can be better than the worst of each list."""
        floors = self.search.best.floors(self.lists.ravel()).reshape(self.lists.shape)
        self.thresholds = np.maximum(self.thresholds, _down((floors - self.shift - self.bound) / self.scale))

    def sift(
        self, tile: Any, start: int, bias: Floats, spread: Floats, members: Members, scored: Scored, base: int
    ) -> None:
        """Sift a tile of estimates less ``bias`` (:func:`pipeline.retrieve.sieves.sieve`); score if too much stays."""
        sieves.sieve(tile, start, base, KEEP, bias, spread, members, self.lengths, self.rounding, *self._reservoirs())
        if (self.counts > KEEP * self.wanted).any():
            self.flush(scored)

    def flush(self, scored: Scored) -> None:
        """Score what is kept canonically, a few queries at a time, so that memory is used again."""
        owner, place = self.search.removed(scored)
        removed = owner * len(scored.rows) + place
        step = max(1, _SCORED // int(self.wanted.sum(axis=0).max(initial=1)))
        for first in range(0, len(self.queries), step):
            found = sieves.settle(first, min(first + step, len(self.queries)), *self._reservoirs())
            self._score(scored, removed, found)
        self.counts[:] = 0
        self._raise_thresholds()

    def _score(self, scored: Scored, removed: Positions, found: tuple[Any, ...]) -> None:
        pool, query, position, estimate, margin = found
        lists = self.lists[pool, query]
        if len(removed):
            kept = ~np.isin(lists * len(scored.rows) + position, removed)
            query, position, estimate, margin, lists = (
                each[kept] for each in (query, position, estimate, margin, lists)
            )
        near = self.scale * estimate.astype(np.float64) + self.shift[query]
        bound = self.bound[query] + self.scale * margin.astype(np.float64)
        self.search.absorb(scored, lists, position, near, bound)

    def _reservoirs(self) -> tuple[Any, ...]:
        slack = 2.0 * self.bound / self.scale * (1.0 + 2.0**-20)
        return self.wanted, slack, self.shift / self.scale, self.thresholds, self.records, self.counts


def reservoir(search: Search, queries: Positions) -> Reservoir:
    """Return a reservoir of some queries with one vector each."""
    frame = search.frame
    rounding = products.ROUNDING if frame.low else 0.0
    return Reservoir(search, queries, frame.lengths[queries], frame.shift[queries], rounding)


def _down(values: Doubles) -> Floats:
    """Return float32 that are less, and finite."""
    found: Floats = np.nextafter(np.maximum(values, _LOWEST).astype(np.float32), np.float32(-np.inf))
    return found
