"""Large-scale retrieval evaluation of scientific article encoders (Medić & Šnajder 2022, MDCR)."""

from __future__ import annotations

import importlib
from functools import cache
from inspect import isfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import Workspace, open  # noqa: A004
    from pipeline.encode.kinds import register as register_kind
    from pipeline.encode.names import register as register_encoder
    from pipeline.measure.design import Draws
    from pipeline.measure.measures import measure as register_measure
    from pipeline.scores import plot
    from pipeline.scores.compare import compare
    from pipeline.scores.files import evaluate
    from pipeline.scores.layout import tables
    from pipeline.scores.summary import summarise
    from pipeline.sources.registry import Source
    from pipeline.sources.registry import register as register_source
    from pipeline.studies import kit as study
    from pipeline.studies.base import register as register_study

__version__ = "0.1.0"
_WHERE = {
    "Draws": "measure.design",
    "Workspace": "api",
    "open": "api",
    "summarise": "scores.summary",
    "compare": "scores.compare",
    "evaluate": "scores.files",
    "tables": "scores.layout",
    "register_measure": "measure.measures:measure",
    "register_source": "sources.registry:register",
    "register_encoder": "encode.names:register",
    "register_kind": "encode.kinds:register",
    "register_study": "studies.base:register",
    "Source": "sources.registry",
}
"""Modules of the Python interface below ``pipeline``, and what a name is called there, if otherwise."""

_MODULES = {"plot": "scores.plot", "study": "studies.kit"}
"""Names of the Python interface that are modules."""

__all__ = [
    "Draws",
    "Source",
    "Workspace",
    "__version__",
    "compare",
    "evaluate",
    "open",
    "plot",
    "register_encoder",
    "register_kind",
    "register_measure",
    "register_source",
    "register_study",
    "study",
    "summarise",
    "tables",
]


@cache
def _checked(function: Any) -> Any:
    from pipeline.core.door import checked

    return checked(function)


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use, so that ``import pipeline`` and ``mdcr --help`` are instant."""
    if name in _MODULES:
        return importlib.import_module(f"pipeline.{_MODULES[name]}")
    if name in _WHERE:
        module, _, own_name = _WHERE[name].partition(":")
        value = getattr(importlib.import_module(f"pipeline.{module}"), own_name or name)
        return _checked(value) if isfunction(value) else value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
