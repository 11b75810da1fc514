"""Search by Faiss: flat (exact), and approximate indexes by their factory strings, on the CPU or one GPU.

Candidates that Faiss finds are scored canonically and ranked in the one total order. Flat search nominates ``depth``
candidates and a margin for each query; the score of the last one is the goal. The proof, hence the bytes, are those of
:mod:`pipeline.retrieve.dense`. An approximate ranking differs from the exact one only by candidates that the index
misses. On the CPU such an index is built and searched in one thread, since results of Faiss can depend on the number of
threads. Results on a GPU are less reproducible, so its indexes have separate names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.core.csr import find_sorted, pack
from pipeline.core.errors import InputError
from pipeline.core.install import pip
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Exclusions, Metric, Ranking, Subset, VectorBlock, Vectors
from pipeline.retrieve.canonical import lengths
from pipeline.retrieve.dense import ExactEngine, Search
from pipeline.retrieve.engines import IndexSettings
from pipeline.retrieve.estimates import Candidates
from pipeline.retrieve.topk import Pairs

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

_LOW = np.uint64(0xFFFFFFFF)

_DIMENSIONS = (768, 720, 1_000)
"""Dimensions for which an index is tried: factory strings may divide them."""

GPU_LIMIT = 2_048
"""Maximum number of neighbours that Faiss finds on a GPU."""

MARGIN = 64
"""Candidates that flat search fetches in addition to the depth."""

_SCRATCH = 1 << 30
"""Bytes of temporary GPU memory of Faiss, in addition to the index."""


class FaissEngine(ExactEngine):
    """Faiss flat search nominates; see :class:`pipeline.retrieve.dense.ExactEngine`.

    Pools are searched one by one. On a GPU a whole block (at most 131,072 vectors) is copied there, beside 1 GiB of
    temporary memory.
    """

    def __init__(self) -> None:
        super().__init__(bfloat16=False)
        self._faiss = load()

    def device(self, resources: Resources) -> torch.device:  # noqa: ARG002
        """Return the device of scores and proofs."""
        return torch.device("cpu")

    def rank(self, search: Search, block: Candidates) -> None:
        """Score the candidates that Faiss finds in each pool; exclusions increase the number fetched.

        Raises:
            InputError: there is no such GPU, the depth exceeds :data:`GPU_LIMIT` on a GPU, or papers have several
                vectors.
        """
        if search.side.offsets is not None:
            raise InputError("Faiss does not search papers with several vectors", "Use --engine=exact")
        gpu, limit = gpu_of(search.resources.device), len(block.rows)
        knn = self._faiss.knn
        if gpu is not None:
            knn, limit = partial(self._faiss.knn_gpu, _resources(self._faiss), device=gpu), GPU_LIMIT
            if search.depth > limit:
                raise InputError(
                    f"depth {search.depth} is more than Faiss finds on a GPU", f"Choose {limit} or search on the CPU"
                )
        estimates, scale = search.estimates[False], 2 if search.metric == "l2" else 1
        shifted, norms = estimates.shifted(block.papers.vectors, block.rows)
        points, queries = np.ascontiguousarray(shifted.numpy()), estimates.points.numpy() / np.float32(scale)
        # |a - b|^2 is rounded with the lengths of both
        radius, length = 1.001 * float(norms.amax()), estimates.length.double().numpy() / scale
        bound = 8 * scale * estimates.relative * (length + radius) ** 2 + scale * length * estimates.error(radius)
        cuts = np.full((len(search.subsets), search.queries), -np.inf)
        nominated = [np.empty(0, np.uint64)]
        with _threads(self._faiss, search.resources.workers):
            for pool, (_, excluded) in enumerate(search.subsets):
                members = np.flatnonzero(block.members >> np.uint64(pool) & np.uint64(1))
                fetch = min(search.depth + MARGIN + int(np.diff(excluded[0]).max(initial=0)), len(members), limit)
                if not fetch:
                    continue
                values, nearest = knn(queries, points[members], fetch, metric=_faiss_metric(self._faiss, search.metric))
                nominated.append(pack(np.repeat(np.arange(search.queries), fetch), members[nearest.ravel()]))
                if fetch < len(members):
                    worst = values[:, -1].astype(np.float64)
                    cuts[pool] = (-worst - search.shift if search.metric == "l2" else worst) + bound
        pairs = np.unique(np.concatenate(nominated))
        _score_all(search, block, (pairs >> np.uint64(32)).astype(np.int64), (pairs & _LOW).astype(np.int64))
        unproven = np.flatnonzero((cuts >= search.limits).any(0))
        if len(unproven):
            search.scan(block, unproven, pairs)


def _score_all(search: Search, block: Candidates, owners: Positions, positions: Positions) -> None:
    """Score pairs in all pools of their candidates that do not exclude them."""
    offsets, rows, pools = search.excluded
    excluded = pack(np.repeat(np.arange(search.queries), np.diff(offsets)), rows)
    place, found = find_sorted(excluded, pack(owners, block.rows[positions]))
    members, unbounded = block.members[positions], np.full(len(owners), np.inf, np.float32)
    members[found] &= ~pools[place[found]]
    search.score(block, Pairs(owners, positions, unbounded, -unbounded, members))


def approximate_search(
    settings: IndexSettings,
    queries: Vectors,
    blocks: Iterable[VectorBlock],
    *,
    count: int,
    metric: Metric,
    depth: int,
    excluded: Exclusions,
    resources: Resources,
) -> Ranking:
    """Return the ranking of an approximate index, built in memory from all vectors.

    Args:
        settings: settings of the index.
        queries: float16 or float32 ``[q, d]``.
        blocks: candidates, read once and in order.
        count: number of candidates.
        metric: ``l2``, ``inner_product`` or ``cosine``.
        depth: maximum entries of a query.
        excluded: rows removed from each query's ranking.
        resources: memory, and the device of an index on a GPU.

    Raises:
        InputError: the vectors do not fit in memory, the index cannot be built, or as in exact search.
    """
    size = 8 * count * queries.shape[1]
    if size > resources.memory:
        raise InputError(
            f"{settings.name} holds {count:,} vectors twice, {size >> 20:,} MiB",
            "Raise --memory, or use --engine=exact, which streams them",
        )
    faiss, search = load(), Search(queries, metric, depth, [Subset(None, excluded)], resources)
    rows = np.empty(count, np.uint32)
    vectors: Floats = np.empty((count, queries.shape[1]), np.float32)
    start = 0
    for block_rows, matrix in blocks:
        rows[start : start + len(block_rows)], vectors[start : start + len(block_rows)] = block_rows, matrix
        start += len(block_rows)
    block = next(search.blocks([(rows[:start], vectors[:start])]), None)
    if block is None or not search.queries:
        return search.rankings()[0]
    query_vectors, fetch = search.side.vectors.numpy(), min(start, depth + int(np.diff(excluded[0]).max()))
    if metric == "cosine":
        vectors = _normalise(vectors[:start], lengths(block.papers.vectors).numpy())
        query_vectors = _normalise(query_vectors, search.norms.numpy())
    with _threads(faiss, 1), _refusals(f"{settings.name} of {start:,} vectors of {queries.shape[1]} components"):
        index = _build_index(settings, vectors[:start], metric, fetch, resources.device)
        candidates = np.sort(index.search(query_vectors, fetch)[1])
    distinct = np.diff(candidates, prepend=-1) > 0  # a graph may find a vector twice
    query, column = np.nonzero(distinct & (candidates < start))  # and gives others where it finds too few
    _score_all(search, block, query, candidates[query, column])
    return search.rankings()[0]


def recall(ranking: Ranking, exact: Ranking) -> float:
    """Return the share of the entries of ``exact`` that ``ranking`` contains; 1 if ``exact`` is empty."""
    if not len(exact):
        return 1.0
    pairs = [pack(side.query, side.row) for side in (ranking, exact)]
    return float(np.isin(pairs[1], pairs[0]).mean())


def _normalise(vectors: Floats, norms: npt.NDArray[np.float64]) -> Floats:
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled: Floats = (vectors * inverse[:, None]).astype(np.float32)
    return scaled


def check_index(settings: IndexSettings) -> None:
    """Raise InputError, with Faiss's reason, if Faiss does not know an index or its options."""
    faiss = load()
    for dimension in _DIMENSIONS:
        try:
            _empty_index(faiss, settings, dimension, faiss.METRIC_L2, 1)
        except RuntimeError:
            if dimension == _DIMENSIONS[-1]:
                with _refusals(settings.name):
                    raise
        else:
            return


def _build_index(settings: IndexSettings, vectors: Floats, metric: Metric, fetch: int, device: str) -> Any:
    """Return an index of vectors ``[n, d]``, of length 1 for cosine, for searches of at most ``fetch`` neighbours.

    Raises:
        InputError: it needs a missing GPU, or a GPU finds fewer than ``fetch`` neighbours.
        RuntimeError: Faiss refuses the index.
    """
    faiss = load()
    gpu = _checked_gpu(settings, fetch, device) if settings.gpu else None
    index = _empty_index(faiss, settings, vectors.shape[1], _faiss_metric(faiss, metric), fetch)
    index.train(vectors)
    if gpu is not None:
        index = faiss.index_cpu_to_gpu(_resources(faiss), gpu, index)
    index.add(vectors)
    return index


def _empty_index(faiss: Any, settings: IndexSettings, dimension: int, faiss_metric: int, fetch: int) -> Any:
    index = faiss.index_factory(dimension, settings.factory, faiss_metric)
    if cells := faiss.try_extract_index_ivf(index):
        cells.cp.min_points_per_centroid = 1  # else it warns on standard error
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = fetch  # Faiss visits 16 vectors by default, whatever it is asked for
    faiss.ParameterSpace().set_index_parameters(index, settings.options)
    return index


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Raise InputError for what Faiss refuses; it raises RuntimeError alone, with its place in the code."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"(?s).*?\.\w+:\d+: |Error: '.*' failed: ", "", str(error)).strip() or str(error)
        raise InputError(
            f"Faiss cannot search {what}: {reason}",
            "Write an index of faiss.index_factory with its options, such as faiss:IVF4096,Flat:nprobe=32, or use "
            "--engine=exact",
        ) from error


def _checked_gpu(settings: IndexSettings, fetch: int, device: str) -> int:
    """Return the GPU of an index, after checking that it can be searched there."""
    gpu = gpu_of(device)
    if gpu is None:
        raise InputError(
            f"{settings.name} needs a GPU that Faiss can use (--device={device}: none)", "Use --engine=faiss:..."
        )
    if fetch > GPU_LIMIT:
        raise InputError(
            f"{fetch:,} candidates a query (the depth and what is excluded) are more than Faiss finds on a GPU",
            f"Choose a depth below {GPU_LIMIT:,}, or --engine=exact",
        )
    return gpu


def _faiss_metric(faiss: Any, metric: Metric) -> Any:
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
    """Return the number of GPUs that Faiss can use: 0 if it is missing or built for the CPU."""
    try:
        faiss = load()
    except InputError:
        return 0
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def gpu_of(name: str) -> int | None:
    """Return the GPU index of a device; None for the CPU.

    Raises:
        InputError: there is no such device, or Faiss cannot use it.
    """
    return gpu_number(name, gpus(), "Faiss", f"Choose --device=cpu, or: {_reinstall('faiss-cpu', 'faiss-gpu')}")


def _reinstall(build: str, replacement: str) -> str:
    """Return the commands that replace a build of Faiss by another."""
    return f"{pip(f'uninstall {build}')} && {pip(f'install {replacement}')}"
