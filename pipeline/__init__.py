"""Large-scale retrieval evaluation of scientific article encoders (Medić & Šnajder 2022, MDCR)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import Workspace, compare, open  # noqa: A004
    from pipeline.scores import plot

__version__ = "0.1.0"
__all__ = ["Workspace", "__version__", "compare", "open", "plot"]


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use, so that ``import pipeline`` and ``mdcr --help`` are instant."""
    if name == "plot":
        return importlib.import_module("pipeline.scores.plot")
    if name in __all__:
        return getattr(importlib.import_module("pipeline.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
