"""The engines of exact dense search by name."""

from __future__ import annotations

import importlib
from pathlib import Path

from pipeline.core.errors import InputError, nearest
from pipeline.core.resources import Resources
from pipeline.retrieve.base import DenseEngine

_ENGINES = {
    "exact": ("pipeline.retrieve.exact", "ExactEngine"),
    "faiss": ("pipeline.retrieve.faiss_index", "FaissEngine"),
    "torch": ("pipeline.retrieve.torch_engine", "TorchEngine"),
}
EXACT_ENGINES = tuple(_ENGINES)

_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""What there is where a GPU can be used: NVIDIA's driver, Windows' for Linux, or AMD's."""


def dense_engine(name: str, resources: Resources, operations: float = 0.0) -> DenseEngine:
    """Return the engine of that name; ``auto`` is ``torch`` or ``faiss`` where that can use a GPU, else ``exact``.

    Args:
        name: ``auto``, ``exact``, ``faiss`` or ``torch``.
        resources: what it may use.
        operations: of the products it will make (two an element of a vector, a pair), where that is known.

    Raises:
        InputError: there is no such engine, or Faiss is not installed.
    """
    if name == "auto":
        name = _fastest(resources.device)
    if name not in _ENGINES:
        raise InputError(f"there is no search engine {name!r}", nearest(name, ["auto", *_ENGINES]))
    module, kind = _ENGINES[name]
    engine = getattr(importlib.import_module(module), kind)
    found: DenseEngine = engine(operations) if name == "exact" else engine()
    return found


def _fastest(device: str) -> str:
    """Return the engine for a device; where it cannot be a GPU, torch and Faiss are not even loaded."""
    if device != "cpu" and any(Path(driver).exists() for driver in _DRIVERS):
        for name in ("torch", "faiss"):
            if importlib.import_module(_ENGINES[name][0]).gpus():
                return name
    return "exact"
