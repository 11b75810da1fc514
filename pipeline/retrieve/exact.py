"""Exact search on the CPU with NumPy: the default engine.

A float32 matrix product estimates the scores of a tile of candidates. What comes within the error bound of the worst
entry kept so far goes to its query's reservoir; a reservoir twice as large as the ranking is deep is trimmed to what
its own estimates cannot rule out; and at the end of a block what is left is scored canonically, while its vectors are
at hand. So each block costs little more than ``depth`` canonical scores a query, and later ones ever fewer. Where the
bound separates nothing (thousands of equal vectors) all candidates are scored canonically: slower, never approximate.

Memory beside the queries and the caller's block: a block in float32 and in the frame (half of ``memory`` at most, see
:func:`pipeline.retrieve.base.block_rows`), about 40 MB a thread at depth 500, and eight bytes an entry of the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from pipeline.core.resources import Resources
from pipeline.retrieve import kernels
from pipeline.retrieve.base import Block, Exclusions, Metric, Ranking, Vectors
from pipeline.retrieve.frame import Floats, FramedBlock
from pipeline.retrieve.scan import Search
from pipeline.retrieve.toplists import Positions

QUERY_TILE = 256
ROW_TILE = 2_048
"""A tile of scores, 2 MiB: it stays in a core's cache between the product and the comparison."""


class ExactEngine:
    """Blocked float32 products with canonical rescoring; see :class:`pipeline.retrieve.base.DenseEngine`."""

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
        search = Search(queries, metric, depth, excluded)
        everyone = np.arange(len(queries))
        for block in search.framed(blocks, resources):
            collect(search, block, everyone, resources.workers)
        return search.best.ranking()


def collect(search: Search, block: FramedBlock, queries: Positions, workers: int) -> None:
    """Absorb from a block every candidate that could be among the best of some of the queries.

    Args:
        search: the search under way.
        block: the candidates.
        queries: int64 ``[n]``, which queries, rising.
        workers: threads.
    """
    removed = search.removed(block)
    share = -(-len(queries) // workers)
    size = min(QUERY_TILE, max(share, 1))
    tiles = [queries[start : start + size] for start in range(0, len(queries), size)]
    with threadpoolctl.threadpool_limits(1, "blas"), ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda tile: _collect_tile(search, block, tile, removed), tiles))


def _collect_tile(search: Search, block: FramedBlock, queries: Positions, removed: tuple[Positions, Positions]) -> None:
    points = search.frame.points[queries]
    among = np.isin(removed[0], queries)
    removed_query, removed_position = np.searchsorted(queries, removed[0][among]), removed[1][among]
    reservoir = _Reservoir(search, block, queries)
    for start in range(0, len(block), ROW_TILE):
        end = min(start + ROW_TILE, len(block))
        tile: Floats = np.matmul(points, block.points[start:end].T)
        here = (removed_position >= start) & (removed_position < end)
        tile[removed_query[here], removed_position[here] - start] = -np.inf
        reservoir.add(tile, start)
    reservoir.flush()


class _Reservoir:
    """Candidates of one block that could be among the best of some queries, by estimate; not yet scored."""

    def __init__(self, search: Search, block: FramedBlock, queries: Positions) -> None:
        self.search, self.block, self.queries = search, block, queries
        frame = search.frame
        self.scale, self.shift = frame.scale, frame.shift[queries]
        self.bound = frame.bound(block.radius)[queries]
        self.slack = 2.0 * self.bound / self.scale * (1.0 + 2.0**-20)
        room = 2 * search.depth + ROW_TILE
        self.estimates = np.empty((len(queries), room), np.float32)
        self.positions = np.empty((len(queries), room), np.int32)
        self.counts = np.zeros(len(queries), np.int64)
        self._raise_thresholds()

    def _raise_thresholds(self) -> None:
        floors = (self.search.best.floors(self.queries) - self.shift - self.bound) / self.scale
        below = np.nextafter(floors.astype(np.float32), np.float32(-np.inf))
        self.thresholds = np.maximum(below, np.finfo(np.float32).min)

    def add(self, tile: Floats, start: int) -> None:
        """Sift a tile of products; score what is kept where too much stays."""
        bias = self.block.bias[start : start + tile.shape[1]]
        kernels.sieve(tile, bias, start, *self._reservoirs())
        if self.counts.max() > 2 * self.search.depth:
            self.flush()

    def flush(self) -> None:
        """Score what is kept canonically."""
        kernels.settle(*self._reservoirs())
        query, column = np.nonzero(np.arange(self.counts.max()) < self.counts[:, None])
        near, position = self.estimates[query, column], self.positions[query, column].astype(np.int64)
        estimates = self.scale * near.astype(np.float64) + self.shift[query]
        self.search.absorb(self.block, self.queries[query], position, estimates, self.bound[query])
        self.counts[:] = 0
        self._raise_thresholds()

    def _reservoirs(self) -> tuple[Any, ...]:
        offset = self.shift / self.scale
        return self.search.depth, self.slack, offset, self.thresholds, self.estimates, self.positions, self.counts
