"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv`` (Thakur et al. 2021), and TREC folders.

A file ``exclusions.tsv`` (query-id, corpus-id), which ``mdcr export`` writes, lists papers that rankings exclude. An id
that is a query's and a document's excludes nothing, but in folders of :data:`IGNORE_IDENTICAL`.
Documents and queries may also be tables (``corpus.tsv``, ``collection.tsv``: id, text, or id, title, text). Judgements
may also be TREC qrels (query, iteration, document, grade, separated by spaces). All files may be gzip.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.core.errors import InputError, require_known
from pipeline.core.text import normalise
from pipeline.sources import options
from pipeline.sources.base import QuerySet, find_files, fingerprint
from pipeline.sources.content import read_lines, read_pairs
from pipeline.sources.judgements import judged_queries, read_judgements
from pipeline.sources.papers import FileRelease, Paper, papers_of
from pipeline.sources.records import StrictTally, Tally, read_records
from pipeline.sources.triples import DOCUMENT, QUERY

IGNORE_IDENTICAL = frozenset({"arguana", "fever", "fiqa", "msmarco", "quora"})
"""Data sets of BEIR, by the name of their folder, whose protocol ranks no document with the query's own id: those of
``ignore_identical_ids`` in mteb, where queries are documents, or were numbered with them."""

_QRELS_ENDS = tuple(end + gz for end in ("tsv", "txt", "trec", "csv", "json", "jsonl", "parquet") for gz in ("", ".gz"))
_QRELS_END = re.compile(r"\.(tsv|txt|trec|csv|jsonl?|parquet)(\.gz)?\Z")

_ID = ("_id", "id", *QUERY[:-1], *DOCUMENT[:-1])
"""Names of the first column of a table of texts in its header."""


@dataclass(frozen=True)
class Beir(FileRelease, options.Beir):
    """A BEIR data set; judgements are in ``qrels/SPLIT`` or ``qrels.SPLIT``, with an ending of :data:`_QRELS_ENDS`."""

    source = "beir"

    def _file(self, stem: str) -> Path:
        stems = {"corpus": ("corpus", "collection"), "queries": ("queries", f"queries.{self.judged}")}[stem]
        names = [f"{stem}.{end}" for stem in stems for end in ("jsonl", "jsonl.gz", "tsv", "tsv.gz")]
        existing = [self.folder / name for name in names if (self.folder / name).is_file()]
        return existing[0] if existing else find_files(self.folder, names, f"BEIR {stem}")[0]

    def _qrels(self) -> Path:
        names = [f"{start}*.{end}" for start in ("qrels/", "qrels.") for end in _QRELS_ENDS]
        files = find_files(self.folder, names, "BEIR judgements")
        by_split = {_QRELS_END.sub("", path.name.removeprefix("qrels.")): path for path in reversed(files)}
        require_known(self.judged, by_split, f"{self.folder} has no judgements of split {self.judged!r}")
        return by_split[self.judged]

    @property
    def _exclusions_path(self) -> Path:
        return self.folder / "exclusions.tsv"

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the split, and whether the protocol ignores identical ids if it does."""
        paths = [self._file("corpus"), self._file("queries"), self._qrels()]
        paths += [self._exclusions_path] * self._exclusions_path.is_file()
        identity = {"files": fingerprint(paths, self.folder), "split": self.judged}
        name = re.sub(r"[-_ ]", "", self.folder.resolve().name.casefold())
        return {**identity, "ignore_identical_ids": True} if name in IGNORE_IDENTICAL else identity

    def files(self) -> list[Path]:
        """Return the file of documents."""
        return [self._file("corpus")]

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the documents as papers without year, field or references."""
        return papers_of(_texts(tally))

    def queries(self) -> QuerySet | None:
        """Return the judged queries of the split and their judgements; the first of several with the same id.

        Judged queries without a text are left out and counted.

        Raises:
            InputError: a query or a judgement cannot be read, no judged query has a text, or there is no judgement.
        """
        queries, judgements = Tally(self._file("queries"), self), Tally(self._qrels())
        grades = _keep_first(_judgements(judgements), "judgement", "grade", judgements)
        judged = {query for query, _ in grades}
        if not judged and not self.allow_empty:
            raise InputError(
                f"{self._qrels()} holds no judgement", "Fetch it again; mdcr corpus --allow-empty accepts it"
            )
        texts = _keep_first(_query_texts(judged, queries), "query", "text", queries)
        content, remedy = (
            "query-id and corpus-id, with a tab between them",
            "Export the folder again, or remove the file",
        )
        path, excluded = self._exclusions_path, None
        if path.is_file():
            excluded = [pair for line, pair in read_pairs(path, content, remedy, "\t") if line > 1]
        return judged_queries(judged, texts, grades, queries, judgements, exclusions=excluded)


def _judgements(tally: Tally) -> Iterator[tuple[tuple[str, str], int]]:
    for line, pair, grade in read_judgements(tally.path):
        tally.line = line
        yield pair, grade


def _query_texts(judged: set[str], tally: Tally) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of the judged queries."""
    strict = StrictTally(tally.path, "query")
    for query in _texts(strict):
        tally.line = strict.line
        if query.id in (None, ""):
            strict.drop("no_query_id")
        elif str(query.id) in judged:
            yield str(query.id), normalise(tally.cut(query.text))
        else:
            tally.drop_expected("query_not_judged")


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def _keep_first(rows: Iterable[tuple[_Key, _Value]], kind: str, label: str, tally: Tally) -> dict[_Key, _Value]:
    """Return the first value of each key. Later ones are dropped, under another reason if the value differs."""
    values: dict[_Key, _Value] = {}
    for key, value in rows:
        if key in values:
            suffix = "" if value == values[key] else f"_other_{label}"
            tally.drop(f"{kind}_repeated{suffix}", " ".join(key) if isinstance(key, tuple) else str(key))
        else:
            values[key] = value
    return values


class _Text(msgspec.Struct, rename={"id": "_id"}):
    id: str | int | None = None
    title: str | None = None
    text: str | None = None


def _texts(tally: Tally) -> Iterator[_Text]:
    """Yield the records of documents or queries."""
    path = tally.path
    if ".tsv" not in path.suffixes:
        yield from read_records(_Text, tally)
        return
    for tally.line, line in read_lines(path):
        try:
            columns = (line or b"").decode().rstrip("\r").split("\t")
        except UnicodeDecodeError:
            tally.drop("bad_utf8", line or b"")
            continue
        if tally.line == 1 and columns[0].casefold() in _ID:
            continue
        if line is None or len(columns) not in (2, 3):
            tally.drop("line_too_long" if line is None else "bad_columns", line or b"")
        else:
            yield _Text(columns[0], columns[1] if len(columns) == 3 else None, columns[-1])
