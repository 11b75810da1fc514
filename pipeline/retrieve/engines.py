"""The engines of exact dense search by name."""

from __future__ import annotations

import importlib

from pipeline.core.errors import InputError, nearest
from pipeline.core.resources import Resources
from pipeline.retrieve.base import DenseEngine

_ENGINES = {
    "exact": ("pipeline.retrieve.exact", "ExactEngine"),
    "faiss": ("pipeline.retrieve.faiss_index", "FaissEngine"),
}
EXACT_ENGINES = tuple(_ENGINES)


def dense_engine(name: str, resources: Resources, operations: float = 0.0) -> DenseEngine:
    """Return the engine of that name; ``auto`` is Faiss where a GPU may be used, else ``exact``.

    Args:
        name: ``auto``, ``exact`` or ``faiss``.
        resources: what it may use.
        operations: of the products it will make (two an element of a vector, a pair), where that is known.

    Raises:
        InputError: there is no such engine, or Faiss is not installed.
    """
    if name == "auto":
        name = "faiss" if resources.device != "cpu" and _faiss_gpus() else "exact"
    if name not in _ENGINES:
        raise InputError(f"there is no search engine {name!r}", nearest(name, ["auto", *_ENGINES]))
    module, kind = _ENGINES[name]
    engine = getattr(importlib.import_module(module), kind)
    found: DenseEngine = engine(operations) if name == "exact" else engine()
    return found


def _faiss_gpus() -> int:
    from pipeline.retrieve import faiss_index

    return faiss_index.gpus()
