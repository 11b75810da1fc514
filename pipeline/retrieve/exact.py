"""Exact search on the CPU: the default engine.

A matrix product estimates the scores of a tile of candidates: in bfloat16 where the processor has instructions for it
and the search is large enough, else in float32. What comes within the error bound of the worst entry kept so far goes
to its list's reservoir; a reservoir that grows to several times the depth of the ranking is trimmed to what its own
estimates cannot rule out; and at the end of a block what is left is scored canonically, while its vectors are at hand.
So each block costs little more than ``depth`` canonical scores a query, and later ones ever fewer. Where the bound
separates nothing (thousands of equal vectors) all candidates are scored canonically: slower, never approximate.

Several pools with the same queries share the products: what is near enough for any of them is looked at for each.

Memory beside the queries and the caller's block: a block in the frame (with the caller's, half of ``memory`` at most,
see :func:`pipeline.retrieve.base.block_rows`), about 64 MB a thread at depth 500, and eight bytes an entry of the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from pipeline.core.resources import Resources
from pipeline.retrieve import products, sieves
from pipeline.retrieve.base import Block, Exclusions, Metric, Ranking, Subset, Vectors
from pipeline.retrieve.frame import Doubles, Floats, FramedBlock, Points
from pipeline.retrieve.scan import Members, Search
from pipeline.retrieve.toplists import Positions

QUERY_TILE = 256
SMALLEST_QUERY_TILE = 32
ROW_TILE = 2_048
"""A tile of scores, 2 MiB at most: it stays in a core's cache between the product and the comparison."""

KEEP = 3
"""How many times its depth a reservoir holds before it is trimmed."""

_RESERVOIRS = 64 << 20
"""Bytes of the reservoirs of one tile of queries, unless there are very many pools."""


class ExactEngine:
    """Blocked products with canonical rescoring; see :class:`pipeline.retrieve.base.DenseEngine`.

    Args:
        operations: of the products to come; what is known of them decides in which precision they are made.
        low: whether they are made in bfloat16; None: where that is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None) -> None:
        self.low = products.low_precision_pays(operations) if low is None else low

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
        """Return the ``depth`` best candidates of every query (:meth:`pipeline.retrieve.base.DenseEngine.search`)."""
        subsets = [Subset(None, excluded)]
        return self.search_pools(queries, blocks, subsets, metric=metric, depth=depth, resources=resources)[0]

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
        everyone = np.arange(len(queries))
        for block in search.framed(blocks, resources):
            collect(search, block, everyone, resources.workers)
        return search.rankings()


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
    removed, members = search.removed(block), search.members(block)
    shares = np.array_split(queries, tiles(search, len(queries), workers))
    in_threads(search, workers, lambda tile: _collect_tile(search, block, tile, removed, members), shares)


def tiles(search: Search, queries: int, workers: int, vectors: float = 1.0) -> int:
    """Return into how many tiles to divide queries of so many vectors each: a whole number for every thread."""
    affordable = _RESERVOIRS // (12 * search.pools * _room(search.depth))
    count = -(-queries // max(int(SMALLEST_QUERY_TILE / vectors), min(int(QUERY_TILE / vectors), affordable), 1))
    return min(-(-max(count, min(workers, queries)) // workers) * workers, queries)


def in_threads(search: Search, workers: int, work: Callable[[Positions], None], shares: Iterable[Positions]) -> None:
    """Do the work of each share in a thread of its own, whose products have no further threads."""
    with (
        threadpoolctl.threadpool_limits(1, "blas"),
        products.single_threaded(search.frame.low) as initializer,
        ThreadPoolExecutor(workers, initializer=initializer) as threads,
    ):
        list(threads.map(work, shares))


def _collect_tile(
    search: Search, block: FramedBlock, queries: Positions, removed: tuple[Positions, Positions], members: Members
) -> None:
    points = search.frame.points[queries]
    reservoir = Reservoir(search, block, queries, removed, members)
    for start in range(0, len(block), ROW_TILE):
        end = min(start + ROW_TILE, len(block))
        reservoir.add(multiply(search, points, block.points[start:end]), start)
    reservoir.flush()


def multiply(search: Search, points: Points, others: Points) -> Any:
    """Return products in the precision of the frame."""
    return products.product(points, others) if search.frame.low else np.matmul(points, others.T)


def _room(wanted: int) -> int:
    return KEEP * wanted + ROW_TILE


class Reservoir:
    """Candidates of one block that could be among the best of some lists, by estimate; not yet scored."""

    def __init__(
        self,
        search: Search,
        block: Any,
        queries: Positions,
        removed: tuple[Positions, Positions],
        members: Members,
    ) -> None:
        self.search, self.block, self.members = search, block, members
        self.lists = np.arange(search.pools)[:, None] * search.queries + queries
        self.scale = search.frame.scale
        self.shift, self.bound = self.measure(queries)
        among = np.isin(removed[0], self.lists)
        self.removed = removed[0][among] * len(block.rows) + removed[1][among]
        excluded = np.bincount(removed[0][among], minlength=search.queries * search.pools)
        self.wanted = search.depth + excluded[self.lists]
        self.records = np.empty((*self.lists.shape, _room(int(self.wanted.max())), 3), np.float32)
        self.counts = np.zeros(self.lists.shape, np.int64)
        self.slack = 2.0 * self.bound / self.scale * (1.0 + 2.0**-20)
        self._raise_thresholds()

    def measure(self, queries: Positions) -> tuple[Doubles, Doubles]:
        """Return what is added to estimates and how far off they can be without their margins, by query."""
        frame = self.search.frame
        self.lengths = frame.lengths[queries]
        self.rounding = np.float32(products.ROUNDING if frame.low else 0.0)
        return frame.shift[queries], frame.bound(self.block.radius)[queries]

    def _raise_thresholds(self) -> None:
        floors = self.search.best.floors(self.lists.ravel()).reshape(self.lists.shape)
        floors = (floors - self.shift - self.bound) / self.scale
        below = np.nextafter(floors.astype(np.float32), np.float32(-np.inf))
        self.thresholds = np.maximum(below, np.finfo(np.float32).min)

    def add(self, tile: Any, start: int) -> None:
        """Sift a tile of products; score what is kept where too much stays."""
        self.sift(tile, start, self.block.bias, self.block.spread)

    def sift(self, tile: Any, start: int, bias: Floats, spread: Floats) -> None:
        """Sift a tile of estimates less ``bias`` (:func:`pipeline.retrieve.sieves.sieve`)."""
        sieves.sieve(tile, start, KEEP, bias, spread, self.members, self.lengths, self.rounding, *self._reservoirs())
        if (self.counts > KEEP * self.wanted).any():
            self.flush()

    def flush(self) -> None:
        """Score what is kept canonically."""
        found = sieves.settle(*self._reservoirs())
        pool, query, position, estimate, margin = found
        lists = self.lists[pool, query]
        if len(self.removed):
            kept = ~np.isin(lists * len(self.block.rows) + position, self.removed)
            query, position, estimate, margin, lists = (
                each[kept] for each in (query, position, estimate, margin, lists)
            )
        near = self.scale * estimate.astype(np.float64) + self.shift[query]
        bound = self.bound[query] + self.scale * margin.astype(np.float64)
        self.search.absorb(self.block, lists, position, near, bound)
        self.counts[:] = 0
        self._raise_thresholds()

    def _reservoirs(self) -> tuple[Any, ...]:
        offset = self.shift / self.scale
        return (
            self.wanted,
            self.slack,
            offset,
            self.thresholds,
            self.records,
            self.counts,
        )
