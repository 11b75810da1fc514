"""The qrels of runs: those that lie beside them, or that are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.errors import InputError
from pipeline.exchange.entries import name_of

_COMMON = {"run", "qrels", "test", "dev", "train", "trec"}
"""Words of file names that name no collection."""


class Run(NamedTuple):
    """A run to score.

    Attributes:
        system: its name.
        path: its file.
        entries: the file, or scores by query and document.
        queries: ids of its queries.
    """

    system: str
    path: Path
    entries: Any
    queries: Collection[str]


class Judged(NamedTuple):
    """A run with its qrels, and the name of their collection."""

    run: Run
    qrels: Path
    collection: str


def judged(run: Run, judgements: Mapping[Path, Collection[str]]) -> Judged:
    """Return a run with qrels that have at least half as many of its queries as any.

    Of these, the ones count that lie in its folder, then those that are alike by name, then the nearest ones. The
    collection is called like the qrels, or like their folder if they have a usual name.
    """
    shared = {qrels: sum(query in run.queries for query in of_file) for qrels, of_file in judgements.items()}
    most = max(shared.values(), default=0)

    def fit(qrels: Path) -> tuple[bool, bool, int, int, int]:
        folders = sum(a == b for a, b in zip(run.path.parent.parts, qrels.parent.parts, strict=False))
        words = (_words(run.path) | {run.path.parent.name}) & (_words(qrels) | {qrels.parent.name})
        return 2 * shared[qrels] >= most, run.path.parent == qrels.parent, len(words), folders, shared[qrels]

    best = max(shared, key=fit, default=None)
    if best is None or not shared[best]:
        raise InputError("it is a run, and no qrels next to it share a query", "Give --qrels=FILE")
    system = _without(run.system, best, len(judgements))
    return Judged(run._replace(system=system), best, _collection(best, judgements))


def _collection(qrels: Path, every: Collection[Path]) -> str:
    """Return the name of a collection: that of its qrels, or of their folder; the whole path if others have it too."""

    def name(path: Path) -> str:
        return name_of(path) if _words(path) else path.parent.name or name_of(path)

    found = name(qrels)
    return found if sum(name(path) == found for path in every) < 2 else str(qrels)


def _words(path: Path) -> set[str]:
    return {word for word in re.split(r"[._\s]+", name_of(path)) if word} - _COMMON


def _without(system: str, qrels: Path, collections: int) -> str:
    """Return the name of a run without the words that name its collection, if there are several collections."""
    if collections < 2:
        return system
    named = _words(qrels) | {qrels.parent.name}
    words = [word for word in re.split(r"([._]+)", system) if word not in named | _COMMON]
    return "".join(words).strip("._") or system
