"""Test papers that stand in training data as well: by id, or under another id by title."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.text import same_title_form
from pipeline.core.workdir import Workdir
from pipeline.sources.base import fingerprint
from pipeline.studies.scirepeval import data
from pipeline.studies.scirepeval.layout import META, Folder
from pipeline.studies.scirepeval.tasks import Entry

ROOM = "runs/scirepeval"
LEAKS = pa.schema([("training", pa.string()), ("papers", pa.int64()), ("ids", pa.int64()), ("titles", pa.int64())])
"""By training data: test papers, those found by id, and those found by title alone."""


@dataclass(frozen=True)
class LeaksConfig:
    """The task, and checksums of its training texts and of each training list, by name."""

    task: Entry
    train: Mapping[str, str]
    lists: Mapping[str, str]


def leaks_task(corpus: Artifact, folder: Folder, entry: Entry, lists: Mapping[str, Path]) -> Task:
    """Return the task that looks for the test papers of a task in its training data, and in training lists.

    Args:
        corpus: holds the papers of the task.
        folder: the published files.
        entry: the task.
        lists: by name, a file with the id or the title of a training paper on each line.
    """
    for path in lists.values():
        if not path.is_file():
            raise InputError(f"a training list must be a file, got {path}", "Set training_lists")
    train = folder.files(META, [entry.meta], "train") if entry.in_train else []
    config = LeaksConfig(
        entry, fingerprint(train, folder.root), {name: files.sha256(path) for name, path in lists.items()}
    )

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        titles = {doc.id: same_title_form(doc.title) for doc in data.docs(entry, folder)}
        papers, own = _papers(entry, folder, titles)
        test, sources = {each: titles[each] for each in papers}, dict[str, Iterable[tuple[str, str]]]()
        if own:
            sources["its own"] = ((each, titles[each]) for each in own)
        if train:
            read = data.docs(entry, folder, "train")
            sources["the encoders'"] = ((doc.id, same_title_form(doc.title)) for doc in read)
        sources |= {name: _lines(path) for name, path in lists.items()}
        rows = [(name, len(test), *_shared(test, each)) for name, each in sources.items()]
        found = [dict(zip(LEAKS.names, row, strict=True)) for row in rows]
        out.arrow("leaks.arrow", pa.Table.from_pylist(found, schema=LEAKS), LEAKS)
        return {"papers": len(test)}

    return Task("scirepeval-leaks", 1, ROOM, f"{entry.name}-leaks", config, {"corpus": corpus}, run)


def _papers(entry: Entry, folder: Folder, titles: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the ids of a task's test papers, and of its own training papers."""
    if entry.format in ("classification", "regression"):
        labelled = data.load_labelled(entry, folder)
        train, test = ({key.rpartition("~")[0] for key in part.keys} for part in (labelled.train, labelled.test))
        return test, train
    if entry.kind == "authors":
        return set(titles), set()
    judged = data.load_judged(entry, folder)
    papers = {paper for query, found in judged.grades.items() for paper in (query, *found)}
    return (papers | {paper for group in judged.groups.values() for paper in group}) & titles.keys(), set()


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from ((line.strip(), same_title_form(line)) for line in lines)


def _shared(test: Mapping[str, str], training: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Return the test papers in training data by id, and those by title alone."""
    by_title: dict[str, set[str]] = {}
    for paper, title in test.items():
        by_title.setdefault(title, set()).add(paper)
    by_title.pop("", None)
    ids, alike = set[str](), set[str]()
    for paper, title in training:
        ids |= {paper} & test.keys()
        alike |= by_title.get(title, set())
    return len(ids), len(alike - ids)
