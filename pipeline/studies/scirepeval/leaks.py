"""Test papers that stand in training data: a task's own, the published encoders', and lists of the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.text import same_title_form
from pipeline.core.workdir import Workdir
from pipeline.sources.base import fingerprint
from pipeline.studies.scirepeval.data import docs, load_judged, load_labelled
from pipeline.studies.scirepeval.layout import Folder
from pipeline.studies.scirepeval.tasks import FOLDER, Entry

LEAKS = pa.schema([("training", pa.string()), ("papers", pa.int64()), ("ids", pa.int64()), ("titles", pa.int64())])
"""By training data: test papers, those in it by id, and those by title alone."""


@dataclass(frozen=True)
class LeaksConfig:
    """The task, and checksums of its training texts and of each training list, by name."""

    task: Entry
    train: Mapping[str, str]
    lists: Mapping[str, str]


def leaks_task(corpus: Artifact, folder: Folder, entry: Entry, lists: Mapping[str, Path]) -> Task:
    """Return the task that looks for the test papers of a task in its training data, and in training lists.

    A list is a file with the id or the title of a training paper on each line.
    """
    train = folder.texts(entry, "train") if entry.in_train else []
    sums = {name: files.sha256(path) for name, path in lists.items()}
    config = LeaksConfig(entry, fingerprint(train, folder.root), sums)

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        test, sources = _sources(entry, folder, bool(train), lists)
        rows = [{"training": name, "papers": len(test), **_shared(test, papers)} for name, papers in sources.items()]
        out.arrow("leaks.arrow", pa.Table.from_pylist(rows, schema=LEAKS), LEAKS)
        return {"sources": len(rows)}

    return Task("scirepeval-leaks", 1, FOLDER, f"{entry.name}-leaks", config, {"corpus": corpus}, run)


Titles = Iterable[tuple[str, str]]
"""Id and title of papers, in the form that is the same for one title."""


def _sources(
    entry: Entry, folder: Folder, train: bool, lists: Mapping[str, Path]
) -> tuple[dict[str, str], dict[str, Titles]]:
    """Return the titles of a task's test papers by id, and its training data by name."""
    titles = {doc.id: same_title_form(doc.title) for doc in docs(entry, folder)}
    test, sources = set(titles), dict[str, Titles]()
    if entry.format in ("classification", "regression"):
        labelled = load_labelled(entry, folder)
        own, test = ({key.rpartition("~")[0] for key in keys} for keys in (labelled.train, labelled.test))
        sources["its own"] = ((paper, titles[paper]) for paper in own)
    elif entry.kind != "authors":
        judged = load_judged(entry, folder)
        test &= {*judged.pairs["query"], *judged.pairs["candidate"]}.union(*judged.groups.values())
    if train:
        sources["the encoders'"] = ((doc.id, same_title_form(doc.title)) for doc in docs(entry, folder, "train"))
    return {paper: titles[paper] for paper in test}, sources | {name: _lines(path) for name, path in lists.items()}


def _lines(path: Path) -> Titles:
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from ((line.strip(), same_title_form(line)) for line in lines)


def _shared(test: Mapping[str, str], training: Titles) -> dict[str, int]:
    """Return the number of test papers in training data by id, and of those by title alone."""
    by_title: dict[str, set[str]] = {}
    for paper, title in test.items():
        by_title.setdefault(title, set()).add(paper)
    by_title.pop("", None)
    ids, alike = set[str](), set[str]()
    for paper, title in training:
        ids |= {paper} & test.keys()
        alike |= by_title.get(title, set())
    return {"ids": len(ids), "titles": len(alike - ids)}
