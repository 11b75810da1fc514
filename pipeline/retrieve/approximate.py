"""Approximate search by the indexes of Faiss (:mod:`pipeline.retrieve.ann`).

An index is built of a pool's vectors, and the nearest it finds are scored canonically and ordered as ever: a ranking
differs from the exact one by what the index did not find and by nothing else. On the CPU it is built and searched in
one thread: what Faiss finds can depend on how many there are, and a ranking depends on its settings alone. A GPU
promises less, so its indexes have names of their own.

All vectors are held in memory, twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.retrieve import ann, select
from pipeline.retrieve.ann import Settings
from pipeline.retrieve.base import Block, Exclusions, Metric, Ranking, Vectors, check_depth
from pipeline.retrieve.dense.frame import Frame
from pipeline.retrieve.dense.rounded import Floats
from pipeline.retrieve.dense.scan import scores
from pipeline.retrieve.faiss_index import load
from pipeline.retrieve.toplists import TopLists


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
            resources: memory, and the device of an index on a GPU.

        Raises:
            InputError: as of :meth:`pipeline.retrieve.base.DenseEngine.search`, the vectors do not fit in memory, or
                as of :func:`pipeline.retrieve.ann.built`.
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
            return self._search(queries, (rows[:start], vectors[:start]), metric, depth, excluded, resources.device)
        finally:
            self._faiss.omp_set_num_threads(threads)

    def _search(
        self, queries: Vectors, block: Block, metric: Metric, depth: int, excluded: Exclusions, device: str
    ) -> Ranking:
        rows, vectors = block
        lists = TopLists(len(queries), depth)
        if not len(queries) or not len(rows):
            return lists.ranking()
        frame = Frame(queries, metric, vectors)
        placed = frame.block(block)
        offsets, removed = excluded
        fetched = min(len(rows), depth + int(np.diff(offsets).max()))
        compared = _compared(vectors, placed.norms, metric)
        find = ann.built(self._settings, compared, metric, fetched, device)
        found = np.sort(find(_compared(frame.queries, frame.norms, metric), fetched))
        fresh = np.diff(found, prepend=-1) > 0  # a graph may find a vector twice
        query, column = np.nonzero(fresh & (found < len(rows)))
        position = found[query, column]
        owner = np.repeat(np.arange(len(queries)), np.diff(offsets))
        gone = np.isin(query * (1 << 32) + rows[position], owner * (1 << 32) + removed)
        query, position = query[~gone], position[~gone]
        (canonical,) = scores(placed, frame, len(queries), [(query, position)])
        lists.add(query, select.keys_of(canonical, rows, position))
        return lists.ranking()


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
