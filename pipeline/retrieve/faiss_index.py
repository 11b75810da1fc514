"""Faiss flat search on the CPU or one GPU, with the results of :mod:`pipeline.retrieve.exact`, bit for bit.

Faiss ranks each block in float32 and gives the first ``depth`` of every query and a margin; they are scored
canonically. Where the last one fetched comes so near the query's floor that one not fetched could still belong above
it, the exact pass collects everything within the bound from that block, for these queries alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Block, DenseEngine, Done, Metric, Ranking, Subset, Vectors, ignored
from pipeline.retrieve.dense import reservoirs
from pipeline.retrieve.dense.frame import FramedBlock
from pipeline.retrieve.dense.pairs import Doubles, Pairs
from pipeline.retrieve.dense.rounded import FLOAT, Floats
from pipeline.retrieve.dense.scan import Search
from pipeline.retrieve.toplists import Positions

MARGIN = 64
"""Candidates fetched beyond the depth."""

GPU_LIMIT = 2_048
"""Faiss on a GPU finds at most so many neighbours."""

_GPU_SCRATCH = 1 << 30

Knn = Callable[[Floats, Floats, int], tuple[Floats, Positions]]
"""``knn(queries, candidates, k)``: squared distances rising or products falling ``[q, k]``, and positions."""


class FaissEngine(DenseEngine):
    """Faiss flat search; see :class:`pipeline.retrieve.base.DenseEngine`."""

    def __init__(self) -> None:
        self._faiss = load()

    def search_pools(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return the rankings of several pools (:meth:`pipeline.retrieve.base.DenseEngine.search_pools`).

        Faiss finds the nearest of all alone: each pool is a search of its own, block by block. On a GPU a block is
        copied there whole (at most 131,072 vectors), beside 1 GiB of scratch.

        Raises:
            InputError: also where the device has no GPU, or ``depth`` is more than :data:`GPU_LIMIT` on one.
        """
        searches = [Search(queries, metric, depth, [Subset(None, subset.excluded)]) for subset in subsets]
        device = gpu_of(resources.device)
        if device is not None and depth > GPU_LIMIT:
            raise InputError(
                f"depth {depth} is more than Faiss finds on a GPU", f"Choose {GPU_LIMIT} or search on the CPU"
            )
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(resources.workers)
        try:
            knn = self._knn(metric, device)
            for block in blocks:
                for search, subset in zip(searches, subsets, strict=True):
                    for framed in search.framed([_restricted(block, subset.candidates)], resources):
                        _collect_all(search, framed, knn, resources, None if device is None else GPU_LIMIT)
                done(len(block[0]))
        finally:
            self._faiss.omp_set_num_threads(threads)
        return [search.rankings()[0] for search in searches]

    def _knn(self, metric: Metric, device: int | None) -> Knn:
        kind = self._faiss.METRIC_L2 if metric == "l2" else self._faiss.METRIC_INNER_PRODUCT
        if device is None:
            return functools.partial(self._faiss.knn, metric=kind)
        scratch = self._faiss.StandardGpuResources()
        scratch.setTempMemory(_GPU_SCRATCH)
        return functools.partial(self._faiss.knn_gpu, scratch, metric=kind, device=device)


def _restricted(block: Block, candidates: Rows | None) -> Block:
    """Return those of a block's candidates that are in a pool."""
    rows, vectors = block
    if candidates is None:
        return block
    kept = np.isin(rows, candidates, assume_unique=True)
    return rows[kept], vectors[kept]


def _collect_all(search: Search, block: FramedBlock, knn: Knn, resources: Resources, limit: int | None) -> None:
    """Absorb from a block what could be among the best of any query."""
    fetched = search.depth + MARGIN + int(np.bincount(search.removed(block.rows)[0], minlength=1).max())
    fetched = min(fetched, len(block), limit or fetched)
    size = max(resources.memory // 4 // (64 * fetched), 1)
    for start in range(0, search.queries, size):
        some = np.arange(start, min(start + size, search.queries))
        unsure = _collect(search, block, some, knn, fetched)
        reservoirs.collect(search, block, unsure, resources.workers)


def _collect(search: Search, block: FramedBlock, queries: Positions, knn: Knn, fetched: int) -> Positions:
    """Absorb what Faiss finds in a block; return the queries for which that may not be enough, left as they were."""
    frame = search.frame
    bound, shift = frame.bound(block.radius)[queries], frame.shift[queries]
    values, positions = knn(frame.rounded[FLOAT].points[queries], block.points, fetched)
    estimates: Doubles = values.astype(np.float64)
    if frame.metric == "l2":
        np.negative(estimates, out=estimates)
    else:
        estimates += shift[:, None]
    last, before = estimates[:, -1].copy(), search.best.keys[queries]
    everywhere = np.ones(estimates.size, np.uint64)
    repeated = np.repeat(queries, fetched), np.repeat(bound, fetched)
    pairs = Pairs(repeated[0], positions.ravel(), estimates.ravel(), repeated[1], everywhere)
    search.absorb(block, [search.likely(pairs, search.removed(block.rows))])
    if fetched == len(block):
        return queries[:0]
    unsure = last + bound >= search.best.floors(queries)
    search.best.keys[queries[unsure]] = before[unsure]
    return queries[unsure]


def load() -> Any:
    """Return the module ``faiss``.

    Raises:
        InputError: it is not installed.
    """
    try:
        import faiss
    except (ImportError, RuntimeError) as error:  # the latter: CUDA's libraries are missing
        raise InputError(
            f"Faiss is not installed ({error})",
            "Install exactly one of: pip install faiss-cpu, or with a CUDA GPU: pip install faiss-gpu",
        ) from error
    return faiss


def gpus() -> int:
    """Return how many GPUs Faiss can use: 0 where it is not installed or was built for the CPU."""
    try:
        faiss = load()
    except InputError:
        return 0
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def gpu_of(name: str) -> int | None:
    """Return the GPU that a device is, None for the CPU.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        InputError: there is no such device, or Faiss cannot use it.
    """
    return gpu_number(
        name, gpus(), "Faiss", "Choose --device cpu, or: pip uninstall faiss-cpu && pip install faiss-gpu"
    )
