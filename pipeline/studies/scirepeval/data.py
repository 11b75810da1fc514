"""The data of one task, by the keys of its papers: labels, judged queries, or judged reviewers.

Of a training sample a third is held out as its test set. The gold standard of reviewer assignment (Stelmakh et al.
2023) stands in for reviewer matching: queries are the reviewers and candidates the papers each of them rated, since
hardly a paper has two ratings. Expertise from 1 to 5 becomes a grade from 0 to 3, rounded half up.
"""

from __future__ import annotations

import csv
import functools
import io
import math
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.rng import priorities, smallest
from pipeline.core.text import id_keys, number, same_title_form
from pipeline.studies.scirepeval import authors
from pipeline.studies.scirepeval.layout import META, TEST, Doc, Folder, Keys, decoded, read_doc, rows
from pipeline.studies.scirepeval.tasks import Entry

_SPLIT_SEED, _TEST_SHARE = 13, 3
_RATED = 10
"""Papers that a reviewer of the gold standard rated at most."""
_RELEVANT = {"test_hard": 3, "test_soft": 2}
"""Least grade of the gold standard that is relevant in a split of reviewer matching."""


@dataclass(frozen=True)
class Labels:
    """Papers by key, with numbers (float64 ``[papers]``) of regression, else the labels of each, mostly one."""

    keys: tuple[str, ...]
    values: npt.NDArray[np.float64] | tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Labelled:
    """A task of classification or regression."""

    train: Labels
    test: Labels
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Judged:
    """A ranking task.

    Attributes:
        grades: grade of each candidate of each query, by their ids in the task; of reviewer matching by hard labels.
        keys: key of each paper.
        texts: ad-hoc queries by id; empty where queries are papers.
        groups: papers of each reviewer; empty where candidates are papers.
        soft: grades of reviewer matching by soft labels.
        counts: what was read, and what was left out by reason.
    """

    grades: Mapping[str, Mapping[str, int]]
    keys: Keys
    texts: Mapping[str, str]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    soft: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def docs(entry: Entry, folder: Folder, split: str = "evaluation") -> Iterator[Doc]:
    """Yield every paper of a split of a task's texts, with repeats."""
    sample = folder.sample(entry) if folder.state(entry) == "sample" and split == "evaluation" else None
    if entry.kind == "authors":
        yield from authors.docs(entry, folder)
    elif entry.kind == "reviewers" and sample:
        for name, content in _archive(sample).items():
            if "/papers/" in name:
                paper = decoded(content, f"{name} of {sample}")
                yield Doc(Path(name).stem, paper.get("title") or "", paper.get("abstract") or "")
    else:
        columns = ("doc_id", "corpus_id", "sha", "paper_id", *entry.fields, "query", "candidates", "pos", "neg")
        for row in rows([sample] if sample else folder.files(META, [entry.meta], split), (), columns):
            if "query" not in row:
                yield read_doc(row, entry.fields, entry.name)
                continue
            if isinstance(row["query"], Mapping):
                yield read_doc(row["query"], entry.fields, entry.name)
            for paper in row["candidates"] if "candidates" in row else (row["pos"], row["neg"]):
                yield read_doc(paper, entry.fields, entry.name)


def keys_of(entry: Entry, folder: Folder) -> Keys:
    """Return the keys of a task's papers."""
    keys = Keys(entry.name)
    for doc in docs(entry, folder):
        keys.add(doc)
    return keys


def queries(entry: Entry, folder: Folder) -> dict[str, str]:
    """Return the ad-hoc queries of a task by id; empty where its queries are papers."""
    if entry.format != "search":
        return {}
    if folder.state(entry) == "sample":
        return {str(number): row["query"] for number, row in enumerate(_sample_rows(entry, folder))}
    paths = folder.files(META, [entry.meta], "evaluation")
    return {str(row["doc_id"]): row["query"] for row in rows(paths, ("doc_id", "query"))}


def load_labelled(entry: Entry, folder: Folder) -> Labelled:
    """Return a task of classification or regression.

    Raises:
        InputError: a paper has no text, or a label is missing or not a number; the task and the paper are named.
    """
    keys = keys_of(entry, folder)
    counts = keys.counts
    if folder.state(entry) == "sample":
        found = [(read_doc(row, (), entry.name).id, row[entry.label]) for row in _sample_rows(entry, folder)]
        first = priorities(id_keys([paper for paper, _ in found]), _SPLIT_SEED, "scirepeval-sample", entry.name)
        test = set(smallest(first, len(found) // _TEST_SHARE).tolist())
        parts = [[pair for place, pair in enumerate(found) if (place in test) == wanted] for wanted in (False, True)]
    else:
        files = [folder.files(TEST, entry.test, split) for split in entry.splits]
        parts = [[(str(r["paper_id"]), r["label"]) for r in rows(each, ("paper_id", "label"))] for each in files]
    counts |= Counter(train=len(parts[0]), test=len(parts[1]))
    several = _multi_hot(parts) if entry.several_labels else False
    train, test_set = (_labels(entry, keys, part, several, counts) for part in parts)
    return Labelled(train, test_set, counts)


def load_judged(entry: Entry, folder: Folder) -> Judged:
    """Return a ranking task.

    Of several judgements of one pair the first counts, as in the published evaluation.

    Raises:
        InputError: a judged query or candidate has no text, or a grade is not a whole number.
    """
    keys, texts, groups = keys_of(entry, folder), queries(entry, folder), dict[str, list[str]]()
    counts, sample = keys.counts, folder.sample(entry) if folder.state(entry) == "sample" else None
    if entry.kind == "reviewers" and sample is None:
        listed = rows(folder.needed(entry)[-1], ("r_id", "papers"))
        groups = {str(row["r_id"]): [str(paper) for paper in row["papers"]] for row in listed}
    elif entry.kind == "reviewers" and sample:
        held = {Path(name).stem: each for name, each in _archive(sample).items() if "/participants/" in name}
        profiles = {name: decoded(content, f"participant {name} of {sample}") for name, content in held.items()}
        groups = {name: [paper["paperId"] for paper in profile["papers"]] for name, profile in profiles.items()}
    grades, *soft = (_grades(entry, _pairs(entry, folder, sample, split), counts) for split in entry.splits)
    for query, candidates in grades.items():
        if entry.format == "search" and query not in texts:
            raise InputError(f"query {query!r} of task {entry.name} must have a text, got none", "Fetch it again")
        for paper in (query, *candidates):  # papers of a reviewer are checked when they are scored
            if paper not in texts and (not groups or (paper == query) != (query in groups)):
                keys[paper]
    counts["queries"] = len(grades)
    counts["judgements"] = sum(map(len, grades.values()))
    return Judged(grades, keys, texts, groups, soft[0] if soft else {}, counts)


def _pairs(entry: Entry, folder: Folder, sample: Path | None, split: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (query, candidate, score) of each judgement of a split, or of the sample that stands in for it."""
    if sample is None:
        for row in rows(folder.files(TEST, entry.test, split), ("query_id", "cand_id", "score")):
            yield str(row["query_id"]), str(row["cand_id"]), row["score"]
    elif entry.kind == "reviewers":
        yield from ((query, paper, int(grade >= _RELEVANT[split])) for query, paper, grade in _rated(entry, sample))
    else:
        yield from _sample_pairs(entry, folder)


def _grades(entry: Entry, pairs: Iterable[tuple[str, str, Any]], counts: Counter[str]) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for query, candidate, score in pairs:
        pair = f"query {query!r}, candidate {candidate!r}"
        grade, held = _number(entry, pair, score), grades.setdefault(query, {})
        if grade != int(grade):
            raise InputError(f"the grade of {pair} of task {entry.name} must be whole, got {score!r}", "")
        counts["judgements_repeated"] += candidate in held
        held.setdefault(candidate, int(grade))
    return grades


def leaks(entry: Entry, folder: Folder, train: bool, lists: Mapping[str, Path]) -> list[tuple[str, int, int, int]]:
    """Return test papers, and those in training data by id, then by title alone: its own, the encoders', each list."""
    titles = {doc.id: same_title_form(doc.title) for doc in docs(entry, folder)}
    papers, own = _papers(entry, folder, titles)
    test, sources = {each: titles[each] for each in papers}, dict[str, Iterable[tuple[str, str]]]()
    if own:
        sources["its own"] = ((each, titles[each]) for each in own)
    if train:
        read = docs(entry, folder, "train")
        sources["the encoders'"] = ((doc.id, same_title_form(doc.title)) for doc in read)
    sources |= {name: _lines(path) for name, path in lists.items()}
    return [(name, len(test), *_shared(test, each)) for name, each in sources.items()]


def _papers(entry: Entry, folder: Folder, titles: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the ids of a task's test papers, and of its own training papers."""
    if entry.format in ("classification", "regression"):
        labelled = load_labelled(entry, folder)
        train, test = ({key.rpartition("~")[0] for key in part.keys} for part in (labelled.train, labelled.test))
        return test, train
    if entry.kind == "authors":
        return set(titles), set()
    judged = load_judged(entry, folder)
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


def _sample_rows(entry: Entry, folder: Folder) -> Iterator[dict[str, Any]]:
    sample = folder.sample(entry)
    columns = ("doc_id", "corpus_id", "sha", "query", "candidates", "pos", "neg", entry.label)
    return rows([sample], (entry.label,) if entry.label else ("query",), columns) if sample else iter(())


def _sample_pairs(entry: Entry, folder: Folder) -> Iterator[tuple[str, str, Any]]:
    for place, row in enumerate(_sample_rows(entry, folder)):
        query = row["query"]
        own = read_doc(query, (), entry.name).id if isinstance(query, Mapping) else str(place)
        for paper in row.get("candidates") or [{**row["pos"], "score": 1}, {**row["neg"], "score": 0}]:
            yield own, read_doc(paper, (), entry.name).id, paper["score"]


def _labels(entry: Entry, keys: Keys, part: Sequence[tuple[str, Any]], multi_hot: bool, counts: Counter[str]) -> Labels:
    found = tuple(keys[paper] for paper, _ in part)
    if entry.format == "regression":
        numbers = [_number(entry, f"paper {paper!r}", label) for paper, label in part]
        return Labels(found, np.array(numbers, np.float64))
    values = []
    for paper, label in part:
        listed = _list(label) if entry.several_labels else (label,)
        if listed is None or any(_absent(each) for each in listed):
            raise InputError(f"the label of paper {paper!r} of task {entry.name} must be given, got {label!r}", "")
        if multi_hot:
            listed = [f"{place:03}" for place, held in enumerate(listed) if held]  # sorted like the columns
        counts["papers_without_label"] += not listed
        values.append(tuple(map(str, listed)))
    return Labels(found, tuple(values))


def _absent(label: Any) -> bool:
    return label is None or isinstance(label, list | dict) or label == "" or bool(label != label)


def _list(label: Any) -> Sequence[Any] | None:
    if isinstance(label, str):
        try:
            label = msgspec.json.decode(label)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
    return label if isinstance(label, list | tuple) else None


def _multi_hot(parts: Sequence[Sequence[tuple[str, Any]]]) -> bool:
    """Return whether lists of labels are rows of an indicator matrix: one length above 1, and only 0 and 1."""
    lists = [_list(label) or () for part in parts for _, label in part]
    lengths = {len(each) for each in lists}
    return len(lengths) == 1 and lengths.pop() > 1 and all(value in (0, 1) for each in lists for value in each)


def _number(entry: Entry, place: str, value: Any) -> float:
    try:
        found = number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(
            f"the label of {place} of task {entry.name} must be a number, got {value!r:.80}", "Fetch it again"
        )
    return found


def _rated(entry: Entry, path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (reviewer, paper, grade) of each rating of the gold standard."""
    table = next(content for name, content in _archive(path).items() if name.endswith("/evaluations.csv"))
    for row in csv.DictReader(io.StringIO(table.decode()), delimiter="\t"):
        reviewer = row["ParticipantID"]
        for place in range(1, _RATED + 1):
            if paper := row[f"Paper{place}"]:
                expertise = _number(entry, f"reviewer {reviewer!r}, paper {paper!r}", row[f"Expertise{place}"])
                yield reviewer, paper, math.floor((expertise - 1) * 3 / 4 + 0.5)


@functools.lru_cache(maxsize=1)
def _archive(path: Path) -> dict[str, bytes]:
    """Return the files of the gold standard, or of the folder it was unpacked to, by name."""
    if path.is_dir():
        return {f"/{each.relative_to(path)}": each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return {f"/{member.name}": handle.read() for member in members if (handle := archive.extractfile(member))}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CorruptError(f"{path} cannot be read as an archive ({error})", "Fetch it again") from error
