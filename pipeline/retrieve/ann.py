"""Approximate indexes of Faiss: IVF and HNSW on the CPU, IVF and CAGRA on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from pipeline.core.config import pairs
from pipeline.core.errors import InputError, nearest
from pipeline.retrieve.base import Metric
from pipeline.retrieve.dense.rounded import Floats
from pipeline.retrieve.faiss_index import GPU_LIMIT, gpu_of, load
from pipeline.retrieve.toplists import Positions

Kind = Literal["ivf", "hnsw", "ivf-gpu", "cagra"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Find = Callable[[Floats, int], Positions]
"""``find(queries, k)``: positions ``[q, k]`` of what is found, those of nothing below 0 or beyond the last vector."""

_OWN: dict[Kind, tuple[str, ...]] = {
    "ivf": ("cells", "probes"),
    "hnsw": ("links", "build", "search"),
    "ivf-gpu": ("cells", "probes"),
    "cagra": ("links", "search"),
}
"""What can be set of an index."""

_POINTS_A_CELL = 64
"""Vectors that k-means is trained on, for each cell."""

_SCRATCH = 1 << 30
"""Bytes of a GPU that Faiss works in, beside the index."""


@dataclass(frozen=True)
class Settings:
    """What decides what an approximate search finds.

    Attributes:
        kind: ``ivf`` (inverted lists of k-means cells), ``hnsw`` (a navigable small-world graph), ``ivf-gpu`` (as
            ``ivf``, on a GPU) or ``cagra`` (a graph, on a GPU).
        cells: of IVF, as a multiple of the square root of the number of vectors.
        probes: of IVF, cells looked at, as a share of the cells.
        links: of HNSW and CAGRA, a vector; HNSW's lowest layer and CAGRA have twice as many.
        build: of HNSW, vectors looked at for each one inserted.
        search: of HNSW and CAGRA, vectors looked at for a query, as a multiple of the depth.
        seed: of k-means.
    """

    kind: Kind
    cells: float = 1.0
    probes: float = 0.05
    links: int = 32
    build: int = 80
    search: float = 2.0
    seed: int = 13

    def __post_init__(self) -> None:
        limits = {
            "cells": self.cells > 0,
            "probes": 0 < self.probes <= 1,
            "links": self.links >= 2,
            "build": self.build >= 1,
            "search": self.search >= 1,
        }
        for name, within in limits.items():
            if not (within and getattr(self, name) < float("inf")):
                raise InputError(
                    f"{name}={getattr(self, name):g} of {self.kind} is out of range",
                    "cells is above 0, probes above 0 and at most 1, links at least 2, build and search at least 1",
                )

    @property
    def name(self) -> str:
        """The kind and what was set of it, as :func:`parse_settings` reads it."""
        usual = {each.name: each.default for each in fields(self)}
        told = [f"{key}={value:g}" for key in _OWN[self.kind] if (value := getattr(self, key)) != usual[key]]
        return f"{self.kind}:{','.join(told)}" if told else self.kind


def parse_settings(text: str) -> Settings | None:
    """Return the settings that a name means, such as ``ivf`` or ``hnsw:links=16,search=4``; None: no such index.

    Raises:
        InputError: an index of that kind has no such parameter, or it is out of range.
    """
    head, _, rest = text.partition(":")
    kind = next((kind for kind in KINDS if kind == head), None)
    if kind is None:
        return None
    values: dict[str, Any] = {}
    for piece, key, value in pairs(rest) if rest else []:
        if key not in _OWN[kind]:
            raise InputError(f"{kind} has no parameter {key!r}", nearest(key, _OWN[kind]))
        try:
            values[key] = int(value) if isinstance(getattr(Settings, key), int) else float(value)
        except ValueError:
            raise InputError(
                f"{piece!r} in {text!r} is no parameter", "Write ivf:cells=2,probes=0.1 or hnsw:links=16"
            ) from None
    return Settings(kind, **values)


def built(settings: Settings, vectors: Floats, metric: Metric, fetched: int, device: str) -> Find:
    """Return the search of an index that is built of some vectors.

    Args:
        settings: which index.
        vectors: ``[n, d]``, at length 1 for cosine; they must not change while the index is used.
        metric: how they are compared.
        fetched: how many will be asked for at most.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        InputError: the index needs a GPU or a build of Faiss that is not there, finds fewer than ``fetched``, or does
            not fit on the GPU.
    """
    faiss = load()
    kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    looked_at = int(np.ceil(settings.search * fetched))
    if settings.kind == "hnsw":
        return _hnsw(faiss, settings, vectors, kind, looked_at)
    if settings.kind == "ivf":
        return _filled(_ivf(faiss, settings, vectors, kind), vectors)
    gpu = _gpu(faiss, settings, fetched, device)
    try:
        if settings.kind == "cagra":
            return _cagra(faiss, settings, vectors, kind, looked_at, gpu)
        return _filled(_on_gpu(faiss, _ivf(faiss, settings, vectors, kind), gpu), vectors)
    except RuntimeError as error:  # Faiss raises nothing else
        raise InputError(
            f"{settings.kind} of {len(vectors):,} vectors cannot be built on GPU {gpu} ({error})",
            "If memory is short, use --engine exact, which streams vectors, or ivf, which needs no GPU",
        ) from error


def _gpu(faiss: Any, settings: Settings, fetched: int, device: str) -> int:
    """Return the GPU to use, when it can be used for that."""
    gpu = gpu_of(device)
    if gpu is None:
        raise InputError(
            f"{settings.kind} needs a GPU that Faiss can use (--device {device}: none)", "Use --engine ivf or hnsw"
        )
    if settings.kind == "cagra" and not hasattr(faiss, "GpuIndexCagra"):
        raise InputError("this build of Faiss has no CAGRA", "pip uninstall faiss-gpu && pip install faiss-gpu-cuvs")
    if fetched > GPU_LIMIT:
        raise InputError(
            f"{fetched:,} candidates a query (the depth and what is excluded) are more than Faiss finds on a GPU",
            f"Choose a depth below {GPU_LIMIT:,}, or --engine exact",
        )
    return gpu


def _hnsw(faiss: Any, settings: Settings, vectors: Floats, kind: int, looked_at: int) -> Find:
    index = faiss.IndexHNSWFlat(vectors.shape[1], settings.links, kind)
    index.hnsw.efConstruction = settings.build
    index.hnsw.efSearch = looked_at
    return _filled(index, vectors)


def _ivf(faiss: Any, settings: Settings, vectors: Floats, kind: int) -> Any:
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


def _on_gpu(faiss: Any, index: Any, gpu: int) -> Any:
    if index.nprobe > GPU_LIMIT:
        raise InputError(f"{index.nprobe:,} cells are more than Faiss looks at on a GPU", "Lower cells or probes")
    return faiss.index_cpu_to_gpu(_resources(faiss), gpu, index)


def _cagra(faiss: Any, settings: Settings, vectors: Floats, kind: int, looked_at: int, gpu: int) -> Find:
    config, wanted = faiss.GpuIndexCagraConfig(), faiss.SearchParametersCagra()
    config.device, config.graph_degree = gpu, 2 * settings.links
    config.intermediate_graph_degree = 2 * config.graph_degree
    wanted.itopk_size = looked_at
    index = faiss.GpuIndexCagra(_resources(faiss), vectors.shape[1], kind, config)
    index.train(vectors)
    return _finder(index, wanted)


def _filled(index: Any, vectors: Floats) -> Find:
    index.add(vectors)
    return _finder(index)


def _finder(index: Any, wanted: Any = None) -> Find:
    def find(queries: Floats, k: int) -> Positions:
        positions: Positions = index.search(queries, k, params=wanted)[1]
        return positions

    return find


def _resources(faiss: Any) -> Any:
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_SCRATCH)
    return resources
