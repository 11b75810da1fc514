"""Read the table of tasks (``tasks.toml``), and find and read the published files of a task.

A folder holds ``scirepeval/CONFIGURATION`` and ``scirepeval_test/CONFIGURATION``, like the two data sets of the
Hugging Face Hub, or the configurations alone. The files of a split are ``SPLIT-*.parquet``, ``SPLIT/*.parquet``,
``SPLIT.jsonl``, ``SPLIT_qrel.jsonl`` and similar; rows are Parquet, JSON lines, JSON arrays or CSV.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from pipeline.studies import kit
from pipeline.studies.kit import InputError

VectorsOf = Callable[[Sequence[str], kit.Role], npt.NDArray[Any]]
"""Returns the vectors of papers by key, or of ad-hoc queries by ``TASK/QUERY``: float32 ``[n, dimension]``. With one
vector per sentence: objects ``[n]``, each float32 ``[sentences, dimension]``."""

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

    @property
    def trained(self) -> str:
        """Whether the published encoders were trained on it, in words."""
        return "in-train" if self.in_train else "out-of-train"


_FACTS = ("domain", "published")


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))


@functools.cache
def entries() -> dict[str, Entry]:
    """Return every task by name, in the order of the table."""
    table: dict[str, Entry] = {}
    for name, row in _table().items():
        values = {key: value for key, value in row.items() if key not in _FACTS}
        table[name] = kit.from_mapping(
            Entry, values | {"name": name, "few_shot": [*map(tuple, row.get("few_shot", ()))]}
        )
    return table


def facts_of(task: str) -> tuple[str, str, str, str]:
    """Return what is only shown of a task: its domain, the published sizes of its training and test set, its source."""
    row = _table()[task]
    return (row.get("domain", "several"), *row["published"])


META, TEST = "scirepeval", "scirepeval_test"
State = Literal["whole", "sample", "missing"]

_STEMS = ("{}", "{}_qrel", "reviewer_{}")
"""Names of a split's file; ``test_qrel`` has judgements, ``reviewer_metadata`` has reviewers."""
_ENDINGS = (".parquet", "-*.parquet", "/*.parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv")
_SAMPLES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
_IDS = ("doc_id", "corpus_id", "paper_id", "sha")
"""Columns that may hold a paper's id, in order of precedence."""
_DIGITS = 10


@dataclass(frozen=True)
class Folder:
    """A folder of published files."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise InputError(f"the input must be a folder, got {self.root}", "Give it with --input")

    def files(self, dataset: str, names: Sequence[str], split: str) -> list[Path]:
        """Return the files of a split from the first configuration of ``names`` that has it; empty if none has."""
        patterns = [stem.format(split) + ending for stem in _STEMS for ending in _ENDINGS]
        for folder in (parent / name for name in names for parent in (self.root / dataset, self.root)):
            for pattern in patterns if folder.is_dir() else ():
                if any(folder.glob(pattern)):
                    return kit.find_files(folder, [pattern], f"files of split {split}")
        return []

    def texts(self, entry: Entry, split: str = "evaluation") -> list[Path]:
        """Return the files of a task's texts."""
        return self.files(META, [entry.meta], split)

    def authors(self, entry: Entry) -> list[Path]:
        """Return the files of signatures of S2AND's data sets."""
        return sorted((self.root / entry.meta).glob("*/*_signatures.json"))

    def needed(self, entry: Entry) -> list[list[Path]]:
        """Return the groups of files that a task needs; an empty group is missing."""
        if entry.kind == "authors":
            return [self.authors(entry)]
        groups = [self.texts(entry), *(self.files(TEST, entry.test, split) for split in entry.splits)]
        if entry.kind == "reviewers":
            groups.append(self.files(TEST, ["reviewers"], "metadata") or self.files(TEST, entry.test, "metadata"))
        return groups

    def sample(self, entry: Entry) -> Path | None:
        """Return the training sample that replaces a task's files; None if the files exist, or there is no sample."""
        if all(self.needed(entry)) or not entry.sample:
            return None
        paths = (self.root / f"{entry.sample}{ending}" for ending in _SAMPLES)
        return next((path for path in paths if path.exists()), None)

    def state(self, entry: Entry) -> State:
        """Return whether the folder has all files of a task, a training sample, or neither."""
        if all(self.needed(entry)):
            return "whole"
        return "sample" if self.sample(entry) else "missing"

    def paths(self, entry: Entry) -> list[Path]:
        """Return the files that decide a task's content."""
        if sample := self.sample(entry):
            return [sample]
        paths = {path for group in self.needed(entry) for path in group}
        if entry.kind == "authors":
            paths |= {sibling(path, kind) for path in list(paths) for kind in ("papers", "clusters")}
        return sorted(paths)


def sibling(signatures: Path, kind: str) -> Path:
    """Return the file ``kind`` (papers or clusters) of the S2AND data set of a file of signatures."""
    return signatures.with_name(signatures.name.replace("_signatures.json", f"_{kind}.json"))


def rows(paths: Sequence[Path], needed: Sequence[str], optional: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rows of files, with the columns ``needed`` and, where present, the columns ``optional``.

    Raises:
        InputError: a row lacks a column, as in files of another version, or cannot be read; the message names the row.
        CorruptError: a file is damaged.
    """
    for tally in (kit.StrictTally(path, "readable row") for path in paths):
        for row in _rows_of(tally, needed, optional):
            for column in needed:
                if column not in row:
                    raise InputError(
                        f"row {tally.line} of {tally.path} must have a column {column!r}, got {', '.join(sorted(row))}",
                        f"{kit.nearest(column, row).rstrip('?')}; files of another version are not read",
                    )
            yield row


def _rows_of(tally: kit.StrictTally, needed: Sequence[str], optional: Sequence[str]) -> Iterator[dict[str, Any]]:
    path = tally.path
    if path.suffix == ".parquet":
        names = kit.open_parquet(path).schema_arrow.names
        present = [name for name in (*needed, *optional) if name in names]
        yield from kit.read_columns(present if present and set(needed) <= set(names) else names, tally)
    elif path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as lines:
            yield from kit.numbered(csv.DictReader(lines), tally)
    else:  # JSON lines, or an array
        yield from kit.read_records(dict[str, Any], tally)


class Doc(NamedTuple):
    """A paper as a task encodes it; further fields follow the abstract, each after a ``FIELD_MARK``."""

    id: str
    title: str
    abstract: str

    @property
    def key(self) -> str:
        """Id in the corpus: the task's id and a digest of the text, since tasks may encode other fields of a paper."""
        digest = hashlib.sha256(f"{self.title}\x1f{self.abstract}".encode()).hexdigest()
        return f"{self.id}~{digest[:_DIGITS]}"


def read_doc(row: Mapping[str, Any], fields: Iterable[str], task: str, paper_id: str = "") -> Doc:
    """Return the paper of a row of a task, with the fields to encode; ``paper_id`` replaces the id of the row."""
    identifier = paper_id or next((str(row[name]) for name in _IDS if row.get(name) not in (None, "")), "")
    if not identifier:
        problem = f"a paper of task {task} must have one of {', '.join(_IDS)}, got {sorted(row)}"
        raise InputError(problem, "Fetch it again")
    field_texts = (_text(row.get(name)) for name in fields if name != "title")
    return Doc(identifier, _text(row.get("title")), f" {kit.FIELD_MARK} ".join(text for text in field_texts if text))


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():  # a year in a column with gaps
        value = int(value)
    return str(value) if value and value == value else ""


class Keys(dict[str, str]):
    """The key of each paper of one task, by its id; the first of two texts of an id counts.

    ``counts`` has the numbers of papers, of those without text, and of repeated papers with another text.
    """

    def __init__(self, docs: Iterable[Doc] = ()) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter(papers=0, papers_without_text=0, papers_with_another_text=0)
        for doc in docs:
            self.add(doc)

    def add(self, doc: Doc) -> bool:
        """Add a paper; return whether its id is new."""
        is_new, first_key = doc.id not in self, self.setdefault(doc.id, doc.key)
        self.counts["papers"] += is_new
        self.counts["papers_without_text"] += is_new and not (doc.title or doc.abstract)
        self.counts["papers_with_another_text"] += first_key != doc.key
        return is_new
