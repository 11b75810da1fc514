"""The 8 in-train tasks of SciRepEval (Singh et al. 2023, table 1) as training sets of their formats."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError, require_known
from pipeline.core.rng import generator
from pipeline.core.text import normalise, number
from pipeline.core.workdir import Workdir
from pipeline.studies.scirepeval.tasks import Entry, Folder, entries, read_doc, rows
from pipeline.train.examples import Examples, Goal, Writer, lazy
from pipeline.train.recipe import Format

_TARGETS = {"cite_count": "log_citations", "pub_year": "scaled_year"}
"""Columns of regression targets, as in the authors' training configuration."""

_TRIPLETS = 5
"""Maximum triplets of a query with a list of candidates."""

_BATCH = 4_096

_FORMATS: dict[str, tuple[Format, Format]] = {"proximity": ("proximity",) * 2, "search": ("query", "proximity")}
"""Formats of a query and of its candidates."""

_TRIPLET = pa.schema([(f"{part}_{name}", pa.string()) for part in ("query", "positive", "negative") for name in "ta"])
_PAPER = [("paper_t", pa.string()), ("paper_a", pa.string())]
_SCHEMAS = {
    "triplet": _TRIPLET,
    "classes": pa.schema([*_PAPER, ("label", pa.list_(pa.string()))]),
    "labels": pa.schema([*_PAPER, ("label", pa.list_(pa.string()))]),
    "number": pa.schema([*_PAPER, ("label", pa.float32())]),
}


def task_of(name: str) -> Entry:
    """Return an in-train task; raise InputError if there is none of that name."""
    in_train = {entry.name: entry for entry in entries().values() if entry.in_train}
    require_known(name, in_train, f"there is no training task {name!r}")
    return in_train[name]


def training_files(entry: Entry, folder: Folder) -> list[Path]:
    """Return the files of a task's training set, or of its published sample.

    Raises:
        InputError: the folder has neither.
    """
    sample = folder.sample(entry) if entry.sample else None
    paths = folder.texts(entry, "train") or ([sample] if sample else [])
    if not paths:
        raise InputError(
            f"{folder.root} has no training files of task {entry.name}",
            "Fetch them: hf download allenai/scirepeval --repo-type dataset --local-dir FOLDER/scirepeval",
        )
    return paths


def task_examples(entry: Entry, folder: Folder, writer: Writer, work: Workdir, limit: int, seed: int) -> Examples:
    """Return ``limit`` examples of a task, or all if 0; their texts are in ``NAME.arrow`` of the work folder.

    Of classes and labels they are drawn in their proportions, as the authors do, else they are the first ones.

    Raises:
        InputError: a file or a label is missing.
    """
    goal, name = _goal(entry), f"{entry.name}.arrow"
    if not work.done(name):
        examples = _triplets(entry, folder) if goal == "triplet" else _labelled(entry, folder)
        if limit and goal in ("classes", "labels"):
            labels_of = [labels for *_, labels in _labelled(entry, folder)]
            examples = itertools.compress(examples, stratified(labels_of, limit, seed, entry.name))
        work.arrow(name, _batches(examples, limit, _SCHEMAS[goal]), _SCHEMAS[goal])
    table = files.read_arrow(work.path / name)
    if not len(table):
        raise InputError(f"task {entry.name} must have training examples, got none", "Fetch it again")
    if goal == "triplet":
        query, candidate = _FORMATS[entry.format]
        formats = {"query": query, "positive": candidate, "negative": candidate}
    else:
        formats = {"paper": entry.format}  # type: ignore[dict-item]
    labels = sorted(pc.list_flatten(table["label"]).unique().to_pylist()) if goal in ("classes", "labels") else []
    index_of = {label: index for index, label in enumerate(labels)}

    def texts(batch: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {
            role: [
                writer(title, abstract, form)
                for title, abstract in zip(batch[f"{role}_t"], batch[f"{role}_a"], strict=True)
            ]
            for role, form in formats.items()
        }
        if goal == "number":
            columns["label"] = list(batch["label"])
        elif goal == "classes":
            columns["label"] = [index_of[names[0]] for names in batch["label"]]
        elif goal == "labels":
            indicator = np.zeros((len(batch["label"]), len(labels)), np.float32)
            for row, names in enumerate(batch["label"]):
                indicator[row, [index_of[name] for name in names]] = 1
            columns["label"] = indicator.tolist()
        return columns

    outputs = {"classes": len(labels), "labels": len(labels), "number": 1}.get(goal, 0)
    return Examples(entry.name, goal, tuple(formats.values()), lazy(table, texts), outputs)


def stratified(labels_of: Sequence[Sequence[str]], count: int, seed: int, item: str) -> npt.NDArray[np.bool_]:
    """Return which of the examples are drawn, bool ``[examples]``: ``count`` of them, or all of fewer.

    From the rarest label on, so many examples are drawn that its share is kept (Sechidis et al. 2011, in two parts);
    others fill up. Labels of one frequency are in alphabetical order.
    """
    examples_of: dict[str, list[int]] = {}
    for position, labels in enumerate(labels_of):
        for label in set(labels):
            examples_of.setdefault(label, []).append(position)
    chosen, random = np.zeros(len(labels_of), np.bool_), generator(seed, "examples", item)
    complete = np.zeros(len(labels_of), np.bool_)
    by_frequency = sorted((len(positions), label) for label, positions in examples_of.items())
    quotas = [(examples_of[label], round(count * frequency / len(labels_of))) for frequency, label in by_frequency]
    for positions, quota in (*quotas, (range(len(labels_of)), count)):
        members = np.asarray(positions)
        free = members[~chosen[members]]
        most = min(quota - (len(members) - len(free)), count - int(chosen.sum()), len(free))
        shuffled = random.permutation(free)
        chosen[shuffled[np.argsort(complete[shuffled], kind="stable")][: max(most, 0)]] = True
        complete[members] = True
    return chosen


def _goal(entry: Entry) -> Goal:
    if entry.format == "regression":
        return "number"
    if entry.format == "classification":
        return "labels" if entry.several_labels else "classes"
    return "triplet"


def _batches(examples: Iterator[tuple[Any, ...]], limit: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    examples = itertools.islice(examples, limit or None)
    while block := list(itertools.islice(examples, _BATCH)):
        yield pa.record_batch([list(column) for column in zip(*block, strict=True)], schema)


def _labelled(entry: Entry, folder: Folder) -> Iterator[tuple[Any, ...]]:
    column = _TARGETS.get(entry.name, entry.label)
    optional = ("doc_id", "corpus_id", "paper_id", "sha", *entry.fields)
    for row in rows(training_files(entry, folder), (column,), optional):
        doc = read_doc(row, entry.fields, entry.name)
        label = row[column]
        if entry.format == "regression":
            try:
                label = number(label) if isinstance(label, str) else float(label)
            except (TypeError, ValueError) as error:
                raise _unlabelled(entry, doc.id, label) from error
        else:
            label = list(map(str, label)) if isinstance(label, list) else [str(label)]
            if (not entry.several_labels and len(label) != 1) or row[column] in (None, ""):
                raise _unlabelled(entry, doc.id, row[column])
        yield normalise(doc.title), normalise(doc.abstract), label


def _unlabelled(entry: Entry, paper: str, label: Any) -> InputError:
    problem = f"the label of paper {paper!r} of task {entry.name} must be given, got {label!r:.80}"
    return InputError(problem, "Fetch its files again, or leave the task out")


def _triplets(entry: Entry, folder: Folder) -> Iterator[tuple[str, ...]]:
    """Yield given triplets, or positives of a list with papers of lower grades, in the order of the file."""

    def text(paper: Any) -> tuple[str, str]:
        if isinstance(paper, str):
            return normalise(paper), ""
        doc = read_doc(paper, entry.fields, entry.name, paper_id="-")
        return normalise(doc.title), normalise(doc.abstract)

    for row in rows(training_files(entry, folder), ("query",), ("pos", "neg", "candidates")):
        query = text(row["query"])
        if "candidates" not in row:
            yield (*query, *text(row["pos"]), *text(row["neg"]))
            continue
        positives = [paper for paper in row["candidates"] if paper["score"] > 0]
        pairs = [(p, n) for turn in range(_TRIPLETS) for p, n in _pair_negatives(row["candidates"], positives, turn)]
        for p, n in pairs[:_TRIPLETS]:
            yield (*query, *text(p), *text(n))


def _pair_negatives(candidates: Sequence[Any], positives: Sequence[Any], turn: int) -> Iterator[tuple[Any, Any]]:
    """Yield the positives with their negatives of one turn, if they have so many."""
    for index, positive in enumerate(positives):
        lower = [paper for paper in candidates if paper["score"] < positive["score"]]
        with contextlib.suppress(IndexError):
            yield positive, (lower[index:] + lower[:index])[turn]
