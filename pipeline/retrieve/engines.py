"""The engines of exact dense search by name."""

from __future__ import annotations

import importlib
from pathlib import Path

from pipeline.core.errors import InputError, nearest
from pipeline.core.resources import Resources
from pipeline.retrieve.base import DenseEngine
from pipeline.retrieve.dense import products

_ENGINES = {
    "exact": ("pipeline.retrieve.exact", "ExactEngine"),
    "faiss": ("pipeline.retrieve.faiss_index", "FaissEngine"),
    "torch": ("pipeline.retrieve.torch_engine", "TorchEngine"),
}
EXACT_ENGINES = tuple(_ENGINES)

_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""What there is where a GPU can be used: NVIDIA's driver, Windows' for Linux, or AMD's."""


def dense_engine(name: str, resources: Resources, operations: float = 0.0) -> DenseEngine:
    """Return the engine of that name; ``auto`` is one that can use a GPU, where that pays, else ``exact``.

    Args:
        name: ``auto``, ``exact``, ``faiss`` or ``torch``.
        resources: what it may use.
        operations: of the products it will make (two an element of a vector, a pair), where that is known.

    Raises:
        InputError: there is no such engine, or Faiss is not installed.
    """
    if name == "auto":
        name = _fastest(resources.device, operations)
    if name not in _ENGINES:
        raise InputError(f"there is no search engine {name!r}", nearest(name, ["auto", *_ENGINES]))
    module, kind = _ENGINES[name]
    engine = getattr(importlib.import_module(module), kind)
    found: DenseEngine = engine(operations) if name == "exact" else engine()
    return found


def _fastest(device: str, operations: float) -> str:
    """Return the engine for a device; a search that ends before a GPU starts uses none unless it was asked for."""
    pays = device not in ("auto", "cpu") or (device == "auto" and products.torch_pays(operations))
    if pays and any(Path(driver).exists() for driver in _DRIVERS):
        for name in ("torch", "faiss"):
            if importlib.import_module(_ENGINES[name][0]).gpus():
                return name
    return "exact"
