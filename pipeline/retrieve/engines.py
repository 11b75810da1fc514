"""Search engines by name: exact search, and approximate indexes with their settings. Loads neither torch nor Faiss."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from pipeline.core.config import pairs
from pipeline.core.errors import InputError, nearest, require_known

if TYPE_CHECKING:
    from pipeline.retrieve.dense import ExactEngine

EXACT_ENGINES = ("exact", "faiss")

IndexKind = Literal["ivf", "hnsw", "ivf-gpu", "cagra"]
KINDS: tuple[IndexKind, ...] = get_args(IndexKind)

_PARAMETERS: dict[IndexKind, tuple[str, ...]] = {
    "ivf": ("cells", "probes"),
    "hnsw": ("links", "build", "search"),
    "ivf-gpu": ("cells", "probes"),
    "cagra": ("links", "search"),
}
"""Parameters of each index."""


def dense_engine(name: str, operations: float = 0.0) -> ExactEngine:
    """Return the engine of that name.

    Args:
        name: ``exact`` (torch, on the CPU or a GPU), ``faiss``, or ``auto``, which is ``exact``.
        operations: expected number of operations (two for each component of a pair of vectors), 0 if unknown.
    """
    if name in ("auto", "exact"):
        from pipeline.retrieve.dense import ExactEngine

        return ExactEngine(operations)
    if name == "faiss":
        from pipeline.retrieve.ann import FaissEngine

        return FaissEngine()
    raise InputError(f"there is no search engine {name!r}", nearest(name, ["auto", *EXACT_ENGINES]))


@dataclass(frozen=True)
class IndexSettings:
    """Settings that decide the results of an approximate search.

    Attributes:
        kind: ``ivf`` (inverted lists of k-means cells), ``hnsw`` (a navigable small-world graph), ``ivf-gpu`` (as
            ``ivf``, on a GPU) or ``cagra`` (a graph, on a GPU).
        cells: cells of IVF, as a multiple of the square root of the number of vectors.
        probes: cells that IVF visits for a query, as a share of all cells.
        links: links of a vector in HNSW and CAGRA; HNSW's lowest layer and CAGRA have twice as many.
        build: vectors that HNSW visits for each inserted vector.
        search: vectors that HNSW and CAGRA visit for a query, as a multiple of the depth.
        seed: seed of k-means.
    """

    kind: IndexKind
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
        """The kind and its changed parameters, in the syntax of :func:`parse_settings`."""
        usual = {parameter.name: parameter.default for parameter in fields(self)}
        changed = [f"{key}={value:g}" for key in _PARAMETERS[self.kind] if (value := getattr(self, key)) != usual[key]]
        return f"{self.kind}:{','.join(changed)}" if changed else self.kind


def parse_settings(text: str) -> IndexSettings | None:
    """Return the settings of an index name, such as ``ivf`` or ``hnsw:links=16,search=4``; None if it is unknown.

    Raises:
        InputError: a parameter is unknown or out of range.
    """
    head, _, parameters = text.partition(":")
    kind = next((kind for kind in KINDS if kind == head), None)
    if kind is None:
        return None
    values: dict[str, Any] = {}
    for piece, key, value in pairs(parameters) if parameters else []:
        require_known(key, _PARAMETERS[kind], f"{kind} has no parameter {key!r}")
        try:
            values[key] = int(value) if isinstance(getattr(IndexSettings, key), int) else float(value)
        except ValueError:
            raise InputError(
                f"{piece!r} in {text!r} is not a parameter", "Write ivf:cells=2,probes=0.1 or hnsw:links=16"
            ) from None
    return IndexSettings(kind, **values)
