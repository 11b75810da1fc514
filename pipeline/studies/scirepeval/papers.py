"""The papers of the tasks: each text has a key, so that all tasks share one corpus and each text is embedded once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pipeline.core.errors import InputError

_IDS = ("doc_id", "corpus_id", "paper_id", "sha")
"""Columns that may hold a paper's id, in order of precedence."""

_DIGITS = 10


class Doc(NamedTuple):
    """A paper as a task encodes it.

    Attributes:
        id: in the task.
        title: as it is written.
        abstract: with further fields behind it, each after a space.
    """

    id: str
    title: str
    abstract: str

    @property
    def key(self) -> str:
        """Id in the corpus: the task's id and a digest of the text, since tasks may encode other fields of a paper."""
        digest = hashlib.sha256(f"{self.title}\x1f{self.abstract}".encode()).hexdigest()
        return f"{self.id}~{digest[:_DIGITS]}"


def read_doc(row: Mapping[str, Any], fields: Iterable[str], task: str, own_id: str = "") -> Doc:
    """Return the paper of a row.

    Args:
        row: has an id and texts.
        fields: what is encoded; all after the title joins the abstract.
        task: named in errors.
        own_id: the id, where the row has none.

    Raises:
        InputError: the row has no id.
    """
    found = own_id or next((str(row[name]) for name in _IDS if row.get(name) not in (None, "")), "")
    if not found:
        raise InputError(
            f"a paper of task {task} must have one of {', '.join(_IDS)}, got {sorted(row)}", "Fetch it again"
        )
    rest = (_text(row.get(name)) for name in fields if name != "title")
    return Doc(found, _text(row.get("title")), " ".join(text for text in rest if text))


def _text(value: Any) -> str:
    if isinstance(value, float) and value == value and value == int(value):  # a year in a column with gaps
        value = int(value)
    return "" if value is None or value != value else str(value)


class Keys:
    """The key of each paper of one task, by its id; of two texts of one id the first counts.

    Attributes:
        counts: ``papers``, ``papers_without_text``, ``papers_with_another_text``.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._keys: dict[str, str] = {}
        self.counts: Counter[str] = Counter(papers=0, papers_without_text=0, papers_with_another_text=0)

    def add(self, doc: Doc) -> bool:
        """Take a paper in; return whether its id is new."""
        key, new = doc.key, doc.id not in self._keys
        known = self._keys.setdefault(doc.id, key)
        self.counts["papers"] += new
        self.counts["papers_without_text"] += new and not (doc.title or doc.abstract)
        self.counts["papers_with_another_text"] += known != key
        return new

    def fill(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        """Take papers in; yield those whose id is new."""
        return (doc for doc in docs if self.add(doc))

    def __getitem__(self, paper: str) -> str:
        """Return the key of a paper.

        Raises:
            InputError: the task has no text of it.
        """
        if paper not in self._keys:
            raise InputError(
                f"paper {paper!r} of task {self._task} must have a text, got none", "Fetch the texts again"
            )
        return self._keys[paper]

    def __contains__(self, paper: str) -> bool:
        return paper in self._keys
