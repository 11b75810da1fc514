"""The tasks of the benchmark: the table ``tasks.toml``, typed."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.config import from_mapping
from pipeline.core.errors import InputError, nearest
from pipeline.encode.spec import Role

VectorsOf = Callable[[Sequence[str], Role], npt.NDArray[np.float32]]
"""The vectors of papers by key, or of ad-hoc queries by ``TASK/QUERY``: float32 ``[n, dimension]``."""

FOLDER = "runs/scirepeval"
"""Folder of the artifacts, in a workspace."""

Format = Literal["classification", "regression", "proximity", "search"]
FORMATS: tuple[Format, ...] = ("classification", "regression", "proximity", "search")


@dataclass(frozen=True)
class Entry:
    """One task; ``tasks.toml`` describes its fields. ``kind`` is the format, unless the table says otherwise."""

    name: str
    title: str
    format: Format
    measures: tuple[str, ...]
    meta: str
    test: tuple[str, ...]
    kind: str = ""
    fields: tuple[str, ...] = ("title", "abstract")
    several_labels: bool = False
    few_shot: tuple[tuple[int, int], ...] = ()
    in_train: bool = False
    editions: tuple[int, ...] = (24, 25)
    averaged: bool = True
    sample: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.format)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits of the test configuration that are read."""
        if self.kind == "reviewers":
            return "test_hard", "test_soft"
        return ("train", "test") if self.format in ("classification", "regression") else ("test",)


@functools.cache
def entries() -> dict[str, Entry]:
    """Return every task by name, in the order of the table."""
    table = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))
    for name, values in table.items():
        values |= {"name": name, "few_shot": [tuple(row) for row in values.get("few_shot", [])]}
    return {name: from_mapping(Entry, values) for name, values in table.items()}


def choose(names: Sequence[str]) -> list[Entry]:
    """Return the tasks of some names, in the order of the table; of none: all.

    Raises:
        InputError: a name is unknown.
    """
    for name in names:
        if name not in entries():
            raise InputError(f"a task must be one of the table, got {name!r}", nearest(name, entries()))
    return [entry for entry in entries().values() if not names or entry.name in names]
