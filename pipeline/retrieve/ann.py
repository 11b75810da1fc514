"""Search by Faiss: flat (exact), and the approximate indexes IVF, HNSW and CAGRA, on the CPU or one GPU.

What Faiss finds is scored canonically and put into the one total order. Flat search nominates ``depth`` candidates of
every query and a margin, and the cut is the last one; the proof, and so the bytes, are those of
:mod:`pipeline.retrieve.dense`. An approximate ranking differs from the exact one only by what the index does not find.
On the CPU such an index is built and searched in one thread: what Faiss finds can depend on the number of threads, and
a ranking depends on its settings alone. A GPU promises less, so its indexes have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.errors import InputError
from pipeline.core.install import pip
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Block, Exclusions, Metric, Ranking, Subset, Vectors
from pipeline.retrieve.canonical import lengths
from pipeline.retrieve.dense import DenseEngine
from pipeline.retrieve.engines import IndexSettings
from pipeline.retrieve.estimates import Candidates
from pipeline.retrieve.search import Search

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

_POINTS_A_CELL = 64
"""Vectors that k-means is trained on, for each cell."""

GPU_LIMIT = 2_048
"""Faiss on a GPU finds at most so many neighbours."""

MARGIN = 64
"""Candidates that flat search fetches beyond the depth."""

_SCRATCH = 1 << 30
"""Bytes of a GPU that Faiss works in, beside the index."""


class FaissEngine(DenseEngine):
    """Faiss flat search nominates; see :class:`pipeline.retrieve.dense.DenseEngine`.

    One pool is searched after the other, which is all Faiss can do. On a GPU a block is copied there whole (at most
    131,072 vectors), beside 1 GiB of scratch.
    """

    def __init__(self) -> None:
        self._faiss = load()

    def nominate(self, search: Search, block: Candidates) -> Tensor:
        """Score what Faiss finds of each pool; it fetches more where candidates are excluded.

        Raises:
            InputError: the device has no such GPU, the depth is more than :data:`GPU_LIMIT` on one, or papers have
                several vectors.
        """
        if search.side.offsets is not None:
            raise InputError("Faiss does not search papers with several vectors", "Use --engine=exact")
        gpu, most = gpu_of(search.resources.device), len(block.rows)
        knn = self._faiss.knn
        if gpu is not None:
            knn, most = partial(self._faiss.knn_gpu, _resources(self._faiss), device=gpu), GPU_LIMIT
            if search.depth > most:
                raise InputError(
                    f"depth {search.depth} is more than Faiss finds on a GPU", f"Choose {most} or search on the CPU"
                )
        estimates, scale = search.estimates(), 2 if search.metric == "l2" else 1
        placed = estimates.place(block.papers.vectors, block.rows)
        points, queries, length = placed.points.numpy(), estimates.points.numpy() / np.float32(scale), estimates.length
        radius = 1.001 * float(np.linalg.norm(points, axis=1).max())
        bound = 6 * scale * estimates.relative * (length / scale + radius) ** 2
        bound += length * placed.spread.amax() + placed.bias.amax().clamp(min=0)
        cuts = torch.full((len(search.subsets), search.queries), -torch.inf)
        found = []
        with _threads(self._faiss, search.resources.workers):
            for pool, (_, excluded) in enumerate(search.subsets):
                inside = np.flatnonzero(block.members.numpy() >> pool & 1)
                fetched = min(search.depth + MARGIN + int(np.diff(excluded[0]).max(initial=0)), len(inside), most)
                if not fetched:
                    continue
                values, nearest = knn(queries, points[inside], fetched, metric=_kind(self._faiss, search.metric))
                found.append(np.repeat(np.arange(search.queries), fetched) << 32 | inside[nearest.ravel()])
                if fetched < len(inside):
                    last = torch.from_numpy(values[:, -1]).double()
                    # |a - b|^2 is rounded with the lengths of both
                    cuts[pool] = (-last - estimates.shift if search.metric == "l2" else last) + bound
        pairs = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
        _rescore_all(search, block, pairs >> 32, pairs & 0xFFFFFFFF)
        return cuts


def _rescore_all(search: Search, block: Candidates, owners: Positions, positions: Positions) -> None:
    """Score pairs in all pools that their candidates are in; nothing is known of their estimates."""
    places = torch.from_numpy(positions)
    most = torch.full(places.shape, torch.inf)
    search.rescore(block, torch.from_numpy(owners), places, block.members[places], most)


def approximate_search(
    settings: IndexSettings,
    queries: Vectors,
    blocks: Iterable[Block],
    *,
    count: int,
    metric: Metric,
    depth: int,
    excluded: Exclusions,
    resources: Resources,
) -> Ranking:
    """Return what of the ``depth`` best candidates of every query an index finds, built of all vectors in memory.

    Args:
        settings: which index.
        queries: float16 or float32 ``[q, d]``.
        blocks: candidates, read once and in order.
        count: how many there are.
        metric: ``l2``, ``inner_product`` or ``cosine``.
        depth: entries a query; fewer where the index finds fewer.
        excluded: rows removed from each query's ranking.
        resources: memory, and the device of an index on a GPU.

    Raises:
        InputError: the vectors do not fit in memory, the index cannot be built, or as of exact search.
    """
    size = 8 * count * queries.shape[1]
    if size > resources.memory:
        raise InputError(
            f"{settings.kind} holds {count:,} vectors twice, {size >> 20:,} MiB",
            "Raise --memory, or use --engine=exact, which streams them",
        )
    faiss, search = load(), Search(queries, metric, depth, [Subset(None, excluded)], resources)
    rows = np.empty(count, np.uint32)
    vectors: Floats = np.empty((count, queries.shape[1]), np.float32)
    start = 0
    for some, matrix in blocks:
        rows[start : start + len(some)], vectors[start : start + len(some)] = some, matrix
        start += len(some)
    block = next(search.blocks([(rows[:start], vectors[:start])]), None)
    if block is None or not search.queries:
        return search.rankings()[0]
    asked, fetched = search.side.vectors.numpy(), min(start, depth + int(np.diff(excluded[0]).max()))
    if metric == "cosine":
        vectors = _normalised(vectors[:start], lengths(block.papers.vectors).numpy())
        asked = _normalised(asked, search.norms.numpy())
    with _threads(faiss, 1):
        index, parameters = _built(settings, vectors[:start], metric, fetched, resources.device)
        candidates = np.sort(index.search(asked, fetched, params=parameters)[1])
    fresh = np.diff(candidates, prepend=-1) > 0  # a graph may find a vector twice
    query, column = np.nonzero(fresh & (candidates < start))  # and gives others where it finds too few
    _rescore_all(search, block, query, candidates[query, column])
    return search.rankings()[0]


def recall(ranking: Ranking, exact: Ranking) -> float:
    """Return the share of the exact ranking's entries that another one has; 1 where there are none."""
    if not len(exact):
        return 1.0
    pairs = [side.query.astype(np.uint64) << np.uint64(32) | side.row.astype(np.uint64) for side in (ranking, exact)]
    return float(np.isin(pairs[1], pairs[0]).mean())


def _normalised(vectors: Floats, norms: npt.NDArray[np.float64]) -> Floats:
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled: Floats = (vectors * inverse[:, None]).astype(np.float32)
    return scaled


def _built(settings: IndexSettings, vectors: Floats, metric: Metric, fetched: int, device: str) -> tuple[Any, Any]:
    """Return an index of vectors ``[n, d]``, at length 1 for cosine, and the parameters of its search.

    The vectors must not change while it is used. At most ``fetched`` neighbours will be asked for.

    Raises:
        InputError: the index needs a GPU or a build of Faiss that is not there, finds fewer than ``fetched``, or does
            not fit on the GPU.
    """
    faiss = load()
    kind, dimension = _kind(faiss, metric), vectors.shape[1]
    looked_at = int(np.ceil(settings.search * fetched))
    if settings.kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, settings.links, kind)
        index.hnsw.efConstruction, index.hnsw.efSearch = settings.build, looked_at
        index.add(vectors)
        return index, None
    if settings.kind == "ivf":
        index = _ivf(faiss, settings, vectors, kind)
        index.add(vectors)
        return index, None
    gpu = _gpu(faiss, settings, fetched, device)
    try:
        if settings.kind == "cagra":
            config, parameters = faiss.GpuIndexCagraConfig(), faiss.SearchParametersCagra()
            config.device, config.graph_degree = gpu, 2 * settings.links
            config.intermediate_graph_degree = 2 * config.graph_degree
            parameters.itopk_size = looked_at
            index = faiss.GpuIndexCagra(_resources(faiss), dimension, kind, config)
            index.train(vectors)
            return index, parameters
        index = _ivf(faiss, settings, vectors, kind)
        if index.nprobe > GPU_LIMIT:
            raise InputError(f"{index.nprobe:,} cells are more than Faiss looks at on a GPU", "Lower cells or probes")
        index = faiss.index_cpu_to_gpu(_resources(faiss), gpu, index)
        index.add(vectors)
        return index, None
    except RuntimeError as error:  # Faiss raises nothing else
        raise InputError(
            f"{settings.kind} of {len(vectors):,} vectors cannot be built on GPU {gpu} ({error})",
            "If memory is short, use --engine=exact, which streams vectors, or ivf, which needs no GPU",
        ) from error


def _gpu(faiss: Any, settings: IndexSettings, fetched: int, device: str) -> int:
    """Return the GPU to use, when it can be used for that."""
    gpu = gpu_of(device)
    if gpu is None:
        raise InputError(
            f"{settings.kind} needs a GPU that Faiss can use (--device={device}: none)", "Use --engine=ivf or hnsw"
        )
    if settings.kind == "cagra" and not hasattr(faiss, "GpuIndexCagra"):
        raise InputError("this build of Faiss has no CAGRA", _replaced("faiss-gpu", "faiss-gpu-cuvs"))
    if fetched > GPU_LIMIT:
        raise InputError(
            f"{fetched:,} candidates a query (the depth and what is excluded) are more than Faiss finds on a GPU",
            f"Choose a depth below {GPU_LIMIT:,}, or --engine=exact",
        )
    return gpu


def _ivf(faiss: Any, settings: IndexSettings, vectors: Floats, kind: int) -> Any:
    """Return an empty index whose cells are known."""
    dimension = vectors.shape[1]
    cells = int(np.clip(settings.cells * len(vectors) ** 0.5, 1, len(vectors)))
    index = faiss.IndexIVFFlat(faiss.IndexFlat(dimension, kind), dimension, cells, kind)
    index.cp.seed = settings.seed
    index.cp.max_points_per_centroid = _POINTS_A_CELL
    index.cp.min_points_per_centroid = 1
    index.nprobe = max(1, int(np.ceil(settings.probes * cells)))
    index.train(vectors)
    return index


def _kind(faiss: Any, metric: Metric) -> Any:
    return faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT


def _resources(faiss: Any) -> Any:
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_SCRATCH)
    return resources


@contextmanager
def _threads(faiss: Any, count: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


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
            f"Install exactly one of: {pip('install faiss-cpu')}, or with a CUDA GPU: {pip('install faiss-gpu')}",
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

    Raises:
        InputError: there is no such device, or Faiss cannot use it.
    """
    return gpu_number(name, gpus(), "Faiss", f"Choose --device=cpu, or: {_replaced('faiss-cpu', 'faiss-gpu')}")


def _replaced(build: str, other: str) -> str:
    """Return the commands that put one build of Faiss in the place of another."""
    return f"{pip(f'uninstall {build}')} && {pip(f'install {other}')}"
