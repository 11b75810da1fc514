"""The qrels of runs: those that lie beside them, or that are given, or those of a task of MTEB."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.errors import InputError
from pipeline.exchange.entries import name_of

HUB = "hub"
"""Stands for qrels of tasks of MTEB on the Hugging Face hub."""

_COMMON = {"run", "qrels", "test", "dev", "train", "trec"}
"""Words of file names that name no collection."""


class Run(NamedTuple):
    """A run to score.

    Attributes:
        system: its name.
        path: its file.
        entries: the file, or scores by query and document.
        queries: ids of its queries.
        task: task, subset and split of MTEB whose queries they are; None: unknown.
    """

    system: str
    path: Path
    entries: Any
    queries: Collection[str]
    task: tuple[str, str, str] | None = None


class Judged(NamedTuple):
    """A run with its qrels (a file, or grades by query and document), and the name of their collection."""

    run: Run
    qrels: Any
    collection: str


def judged(run: Run, judgements: Mapping[Path, Collection[str]], given: str, folder: Path | None) -> Judged:
    """Return a run with those of its task of MTEB, or with the qrels that have the largest share of its queries.

    Of equal ones, those count that are alike by name, then by folder.
    """
    from pipeline.sources.mteb import folder_of, task_qrels  # here, because it brings a client of HTTP

    if run.task and (given == HUB or (folder and (folder / folder_of(run.task[0])).is_dir())):
        task, subset, split = run.task
        return Judged(run, task_qrels(task, subset, split, folder), task if subset == "default" else f"{task} {subset}")

    def fit(qrels: Path) -> tuple[int, int, int]:
        folders = zip(run.path.parent.parts, qrels.parent.parts, strict=False)
        shared = sum(query in run.queries for query in judgements[qrels])
        return shared, len(_words(run.path) & _words(qrels)), sum(a == b for a, b in folders)

    fits = {qrels: fit(qrels) for qrels in judgements}
    best = max(fits, key=fits.__getitem__, default=None)
    if best is None or not fits[best][0]:
        remedy = "Give --qrels=hub, or a folder of mdcr fetch mteb" if run.task else "Give them with --qrels=FILE"
        raise InputError("it is a run, and no qrels beside it share a query", remedy)
    system = run.system if run.task else _without(run.system, best, len(judgements))
    return Judged(run._replace(system=system), best, name_of(best))


def _words(path: Path) -> set[str]:
    return {word for word in re.split(r"[._\s]+", name_of(path)) if word} - _COMMON


def _without(system: str, qrels: Path, collections: int) -> str:
    """Return the name of a run without the words that name its collection, if there are several collections."""
    if collections < 2:
        return system
    named = _words(qrels) | {qrels.parent.name}
    words = [word for word in re.split(r"([._]+)", system) if word not in named | _COMMON]
    return "".join(words).strip("._") or system
