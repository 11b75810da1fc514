"""The engines of dense search by name. Importing this loads neither torch nor Faiss."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError, nearest

if TYPE_CHECKING:
    from pipeline.retrieve.search import DenseEngine

EXACT_ENGINES = ("exact", "faiss")


def dense_engine(name: str, operations: float = 0.0) -> DenseEngine:
    """Return the engine of that name.

    Args:
        name: ``exact`` (torch, on the CPU or a GPU), ``faiss``, or ``auto``, which is ``exact``.
        operations: of the products it will make (two an element of a vector, a pair), where that is known.
    """
    engine: DenseEngine
    if name in ("auto", "exact"):
        engine = importlib.import_module("pipeline.retrieve.dense").ExactEngine(operations)
    elif name == "faiss":
        engine = importlib.import_module("pipeline.retrieve.ann").FaissEngine()
    else:
        raise InputError(f"there is no search engine {name!r}", nearest(name, ["auto", *EXACT_ENGINES]))
    return engine
