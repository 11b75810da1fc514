"""Search by indexes of Faiss, named by their factory strings, on the CPU or one GPU.

Candidates that Faiss finds are scored canonically and ranked in the one total order. So an approximate ranking differs
from the exact one (:mod:`pipeline.retrieve.exact`) only by candidates that the index misses. On the CPU an index is
built and searched in one thread, since results of Faiss can depend on the number of threads. Results on a GPU are less
reproducible, so its indexes have separate names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_info

from pipeline.core.csr import find_sorted, pack
from pipeline.core.errors import InputError
from pipeline.core.install import pip
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Exclusions, Metric, Ranking, VectorBlock, Vectors, pairs
from pipeline.retrieve.canonical import lengths
from pipeline.retrieve.engines import IndexSettings
from pipeline.retrieve.exact import Search, check_lengths

Floats = npt.NDArray[np.float32]

_DIMENSIONS = (768, 720, 1_000)
"""Dimensions for which an index is tried: factory strings may divide them."""

GPU_LIMIT = 2_048
"""Maximum number of neighbours that Faiss finds on a GPU."""

_CORES = {
    "avx512f": ("SkylakeX", ("Cooperlake", "Sapphirerapids")),
    "avx2": ("Haswell", ("Zen", "Excavator")),
}
"""For a processor with an instruction set, the widest first: a core of OpenBLAS, and those that are as good."""

_SCRATCH = 1 << 30
"""Bytes of temporary GPU memory of Faiss, in addition to the index."""


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

    Arguments are those of :class:`pipeline.retrieve.exact.Search`; ``blocks`` are ``count`` candidates, read once and
    in order.

    Raises:
        InputError: the vectors do not fit in memory, the index cannot be built, or as in exact search.
    """
    size = 8 * count * queries.shape[1]
    if size > resources.memory:
        raise InputError(
            f"{settings.name} holds {count:,} vectors twice, {size >> 20:,} MiB",
            "Raise --memory, or use --engine=exact, which streams them",
        )
    faiss, search = load(), Search(queries, metric, depth, excluded, resources, torch.device("cpu"))
    rows = np.empty(count, np.uint32)
    vectors: Floats = np.empty((count, queries.shape[1]), np.float32)
    start = 0
    for block_rows, matrix in blocks:
        rows[start : start + len(block_rows)], vectors[start : start + len(block_rows)] = block_rows, matrix
        start += len(block_rows)
    if not (start and len(queries)):
        return search.ranking()
    block = search.block(rows[:start], vectors[:start])
    norms = lengths(block.side.vectors)
    check_lengths(norms, "candidate", rows)
    query_vectors, fetch = search.side.vectors.numpy(), min(start, depth + int(np.diff(excluded[0]).max()))
    if metric == "cosine":
        vectors = _normalise(vectors[:start], norms.numpy())
        query_vectors = _normalise(query_vectors, search.norms.numpy())
    with _threads(faiss, 1), _refusals(f"{settings.name} of {start:,} vectors of {queries.shape[1]} components"):
        index = _build_index(settings, vectors[:start], metric, fetch, resources.device)
        candidates = np.sort(index.search(query_vectors, fetch)[1])
    distinct = np.diff(candidates, prepend=-1) > 0  # a graph may find a vector twice
    query, column = np.nonzero(distinct & (candidates < start))  # and gives others where it finds too few
    position = candidates[query, column]
    allowed = ~find_sorted(pairs(excluded), pack(query, rows[position]))[1]
    search.score(block, query[allowed], position[allowed])
    return search.ranking()


def recall(ranking: Ranking, exact: Ranking) -> float:
    """Return the share of the entries of ``exact`` that ``ranking`` contains; 1 if ``exact`` is empty."""
    if not len(exact):
        return 1.0
    found, wanted = (pack(side.query, side.row) for side in (ranking, exact))
    return float(np.isin(wanted, found).mean())


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

    InputError is raised if it needs a missing GPU, or a GPU finds fewer neighbours; RuntimeError if Faiss refuses it.
    """
    faiss = load()
    gpu = _checked_gpu(settings, fetch, device) if settings.gpu else None
    distance = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index = _empty_index(faiss, settings, vectors.shape[1], distance, fetch)
    index.train(vectors)
    if gpu is not None:
        scratch = faiss.StandardGpuResources()
        scratch.setTempMemory(_SCRATCH)
        index = faiss.index_cpu_to_gpu(scratch, gpu, index)
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


@contextmanager
def _threads(faiss: Any, count: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def load() -> Any:
    """Return the module ``faiss``; raise InputError if it is not installed."""
    try:
        import faiss
    except (ImportError, RuntimeError) as error:  # the latter: CUDA's libraries are missing
        raise InputError(
            f"Faiss is not installed ({error})",
            f"Install exactly one of: {pip('install faiss-cpu')}, or with a CUDA GPU: {pip('install faiss-gpu')}",
        ) from error
    return faiss


def blas_core(processor: Path = Path("/proc/cpuinfo")) -> tuple[str, str]:
    """Return the processor core for which Faiss's OpenBLAS multiplies, and a better one for this processor.

    Both are values of ``OPENBLAS_CORETYPE``, read when Faiss is loaded; empty: the first is as good, or is unknown.
    """
    try:
        folder = str(Path(load().__file__).parent.parent)
    except InputError:
        return "", ""
    own = [info for info in threadpool_info() if re.match(re.escape(folder) + r"/faiss[^/]*\.libs/", info["filepath"])]
    core = next((str(info["architecture"]) for info in own if info["internal_api"] == "openblas"), "")
    flags = processor.read_text().split() if processor.is_file() else []
    better, as_good = next((cores for flag, cores in _CORES.items() if flag in flags), ("", ()))
    return core, better if core and core not in (better, *as_good) else ""


def gpus() -> int:
    """Return the number of GPUs that Faiss can use: 0 if it is missing or built for the CPU."""
    try:
        faiss = load()
    except InputError:
        return 0
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def gpu_of(name: str) -> int | None:
    """Return the GPU index of a device, None for the CPU; raise InputError if Faiss cannot use it."""
    replace = f"{pip('uninstall faiss-cpu')} && {pip('install faiss-gpu')}"
    return gpu_number(name, gpus(), "Faiss", f"Choose --device=cpu, or: {replace}")
