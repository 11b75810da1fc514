"""Approximate search by Faiss on the CPU: IVF and HNSW.

An index is built of a pool's vectors, and the nearest it finds are scored canonically and ordered as ever: a ranking
differs from the exact one by what the index did not find and by nothing else. It is built and searched in one thread:
what Faiss finds can depend on how many there are, and a ranking depends on its settings alone.

All vectors are held in memory, twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.retrieve import select
from pipeline.retrieve.base import Block, Exclusions, Metric, Ranking, Vectors, check_depth
from pipeline.retrieve.faiss_index import load
from pipeline.retrieve.frame import Floats, Frame
from pipeline.retrieve.scan import scores
from pipeline.retrieve.toplists import TopLists

Kind = Literal["ivf", "hnsw"]
KINDS: tuple[Kind, ...] = ("ivf", "hnsw")

_POINTS_A_CELL = 64
"""Vectors that k-means is trained on, for each cell."""


@dataclass(frozen=True)
class Settings:
    """What decides what an approximate search finds.

    Attributes:
        kind: ``ivf`` (inverted lists of k-means cells) or ``hnsw`` (a navigable small-world graph).
        cells: of IVF, as a multiple of the square root of the number of vectors.
        probes: of IVF, cells looked at, as a share of the cells.
        links: of HNSW, a vector.
        build: of HNSW, vectors looked at for each one inserted.
        search: of HNSW, vectors looked at for a query, as a multiple of the depth.
        seed: of k-means.
    """

    kind: Kind
    cells: float = 1.0
    probes: float = 0.05
    links: int = 32
    build: int = 80
    search: float = 2.0
    seed: int = 13


class ApproximateEngine:
    """Search by an index that is built for it.

    Args:
        settings: which index.
    """

    def __init__(self, settings: Settings) -> None:
        self._faiss, self._settings = load(), settings

    def search(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        *,
        count: int,
        metric: Metric,
        depth: int,
        excluded: Exclusions,
        resources: Resources,
    ) -> Ranking:
        """Return what of the ``depth`` best candidates of every query the index finds.

        Args:
            queries: float16 or float32 ``[q, d]``.
            blocks: candidates, read once and in order.
            count: how many there are.
            metric: as of :meth:`pipeline.retrieve.base.DenseEngine.search`.
            depth: entries a query; fewer where the index finds fewer.
            excluded: rows removed from each query's ranking.
            resources: memory.

        Raises:
            InputError: as of :meth:`pipeline.retrieve.base.DenseEngine.search`, or the vectors do not fit in memory.
        """
        check_depth(depth)
        size = 8 * count * queries.shape[1]
        if size > resources.memory:
            raise InputError(
                f"{self._settings.kind} holds {count:,} vectors twice, {size >> 20:,} MiB",
                "Raise --memory, or use --engine exact, which streams them",
            )
        rows = np.empty(count, np.uint32)
        vectors: Floats = np.empty((count, queries.shape[1]), np.float32)
        start = 0
        for some, matrix in blocks:
            rows[start : start + len(some)], vectors[start : start + len(some)] = some, matrix
            start += len(some)
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            return self._search(queries, (rows[:start], vectors[:start]), metric, depth, excluded)
        finally:
            self._faiss.omp_set_num_threads(threads)

    def _search(self, queries: Vectors, block: Block, metric: Metric, depth: int, excluded: Exclusions) -> Ranking:
        rows, vectors = block
        lists = TopLists(len(queries), depth)
        if not len(queries) or not len(rows):
            return lists.ranking()
        frame = Frame(queries, metric, vectors)
        placed = frame.block(block)
        offsets, removed = excluded
        fetched = min(len(rows), depth + int(np.diff(offsets).max()))
        index = self._index(_compared(vectors, placed.norms, metric), metric, fetched)
        found = index.search(_compared(frame.queries, frame.norms, metric), fetched)[1]
        query, column = np.nonzero(found >= 0)
        position = found[query, column]
        owner = np.repeat(np.arange(len(queries)), np.diff(offsets))
        gone = np.isin(query * (1 << 32) + rows[position], owner * (1 << 32) + removed)
        query, position = query[~gone], position[~gone]
        (canonical,) = scores(placed, frame, len(queries), [(query, position)])
        lists.add(query, select.keys_of(canonical, rows, position))
        return lists.ranking()

    def _index(self, vectors: Floats, metric: Metric, fetched: int) -> Any:
        faiss, settings = self._faiss, self._settings
        kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
        dimension = vectors.shape[1]
        index: Any
        if settings.kind == "hnsw":
            index = faiss.IndexHNSWFlat(dimension, settings.links, kind)
            index.hnsw.efConstruction = settings.build
            index.hnsw.efSearch = int(np.ceil(settings.search * fetched))
        else:
            cells = int(np.clip(settings.cells * len(vectors) ** 0.5, 1, len(vectors)))
            quantizer = faiss.IndexFlat(dimension, kind)
            index = faiss.IndexIVFFlat(quantizer, dimension, cells, kind)
            index.cp.seed = settings.seed
            index.cp.max_points_per_centroid = _POINTS_A_CELL
            index.cp.min_points_per_centroid = 1
            index.nprobe = max(1, int(np.ceil(settings.probes * cells)))
            index.train(vectors)
        index.add(vectors)
        return index


def recall(found: Ranking, exact: Ranking) -> float:
    """Return the share of the exact ranking's entries that another one has; 1 where there are none."""
    if not len(exact):
        return 1.0
    pairs = [each.query.astype(np.uint64) << np.uint64(32) | each.row.astype(np.uint64) for each in (found, exact)]
    return float(np.isin(pairs[1], pairs[0]).mean())


def _compared(vectors: Floats, norms: Any, metric: Metric) -> Floats:
    """Return the vectors as the index is to compare them: for cosine at length 1."""
    if metric != "cosine":
        return vectors
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled: Floats = (vectors * inverse[:, None]).astype(np.float32)
    return scaled
