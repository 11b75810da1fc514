"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv`` (Thakur et al. 2021), and TREC folders.

A file ``exclusions.tsv`` (query-id, corpus-id), which ``mdcr export`` writes, lists papers that rankings exclude. An id
that is a query's and a document's excludes nothing, but in folders of :data:`IGNORE_IDENTICAL`.
Documents and queries may also be tables (``corpus.tsv``, ``collection.tsv``: id, text, or id, title, text). Judgements
may also be TREC qrels (query, iteration, document, grade, separated by spaces). All files may be gzip.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say, warn
from pipeline.core.text import normalise
from pipeline.sources import options
from pipeline.sources.base import QuerySet, find_files, fingerprint
from pipeline.sources.content import first_record, read_pairs
from pipeline.sources.judgements import judged_queries, read_judgements
from pipeline.sources.papers import Document, FileRelease, Paper, papers_of
from pipeline.sources.records import StrictTally, Tally, converted, read_records
from pipeline.sources.tables import open_table
from pipeline.sources.triples import DOCUMENT, QUERY

IGNORE_IDENTICAL = frozenset({"arguana", "fever", "fiqa", "msmarco", "quora"})
"""Data sets of BEIR, by the name of their folder, whose protocol ranks no document with the query's own id: those of
``ignore_identical_ids`` in mteb, where queries are documents, or were numbered with them."""

_EXCLUSIONS = "exclusions.tsv"
_END = re.compile(r"\.[a-z]+(\.gz)?\Z")


@dataclass(frozen=True)
class Beir(FileRelease, options.Beir):
    """A BEIR data set; judgements are in ``qrels/SPLIT.tsv`` or ``qrels.SPLIT.txt``, or another ending that is read."""

    source = "beir"

    def _file(self, stem: str) -> Path:
        stems = {"corpus": ("corpus", "collection"), "queries": ("queries", f"queries.{self.judged}")}[stem]
        names = [f"{stem}.{end}" for stem in stems for end in ("jsonl", "jsonl.gz", "tsv", "tsv.gz")]
        existing = [self.folder / name for name in names if (self.folder / name).is_file()]
        return existing[0] if existing else find_files(self.folder, names, f"BEIR {stem}")[0]

    def _qrels(self) -> Path:
        files = find_files(self.folder, ("qrels/*.*", "qrels.*.*"), "BEIR judgements")
        by_split = {_END.sub("", path.name.removeprefix("qrels.")): path for path in reversed(files)}
        require_known(self.judged, by_split, f"{self.folder} has no judgements of split {self.judged!r}")
        return by_split[self.judged]

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the split, other keys than BEIR's, and whether identical ids are ignored."""
        paths = [self._file("corpus"), self._file("queries"), self._qrels()]
        paths += [path for path in [self.folder / _EXCLUSIONS] if path.is_file()]
        identity = {"files": fingerprint(paths, self.folder), "split": self.judged}
        firsts = [first_record(path) for path in paths[:2]]
        keys = sorted({_first(record, names) for record in firsts for names in (_IDS, _BODIES)} - {"_id", "text", ""})
        identity |= {"keys": keys} if keys else {}
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
        if not judged:
            raise InputError(f"{self._qrels()} holds no judgement", "Fetch it again")
        texts = _keep_first(_query_texts(judged, queries), "query", "text", queries)
        path, excluded = self.folder / _EXCLUSIONS, None
        if path.is_file():
            pairs = read_pairs(path, "query-id and corpus-id, with a tab between them", "Export it again", "\t")
            excluded = [pair for line, pair in pairs if line > 1]
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
        query_id = "" if query.id is None else str(query.id)
        if not query_id:
            strict.drop("no_query_id")
        elif query_id in judged:
            yield query_id, normalise(tally.cut(query.whole))
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


_IDS = ("_id", "id", "doc_id", "docno", "docid", "query_id", "qid")
_BODIES = ("text", "contents", "abstract", "body", "query")
"""Keys of ids and of texts, the first ones first."""


def _texts(tally: Tally) -> Iterator[Document]:
    """Yield documents or queries; say which keys they have if these are not ``_id`` and ``text``.

    Raises:
        InputError: no record has an id, or none a text.
    """
    read, used = 0, dict[str, None]()
    records = _rows(tally) if ".tsv" in tally.path.suffixes else read_records(dict[str, Any], tally)
    for read, record in enumerate(records, 1):  # noqa: B007  # counts the records
        name, body = (_first(record, names) for names in (_IDS, _BODIES))
        used.update(dict.fromkeys((name, body)))
        values = {"id": record.get(name), "title": record.get("title"), "text": record.get(body)}
        yield from converted([values], Document, tally)
    found = {*first_record(tally.path)}
    lacking = [keys for keys in (_IDS, _BODIES) if read and not used.keys() & {*keys}]
    if lacking and found and not (lacking == [_BODIES] and found <= {*_IDS, *_BODIES, "title", "metadata"}):
        raise InputError(
            f"no record of {tally.path} has {' or '.join(lacking[0])}; the first has {', '.join(sorted(found))}",
            f"Name ids {_IDS[0]} and texts {_BODIES[0]}; titles alone are titles, not texts",
        )
    if used.keys() - {"_id", "text", ""}:
        say(f"{tally.path.name}: ids and texts are {', '.join(filter(None, used))}")
    if lacking:
        warn(f"{tally.path.name} has titles alone, without texts")


def _first(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first name that has a value; empty without any."""
    return next((name for name in names if record.get(name) is not None), "")


def _rows(tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table: id and text, or id, title and text; a header is recognised by its first name."""
    names = (*_IDS, *QUERY[:-1], *DOCUMENT[:-1])
    _, _, rows = open_table(tally, lambda first: first[0].casefold() in names, header=False)
    for tally.line, cells in rows:
        if len(cells) in (2, 3):
            yield {"_id": cells[0], "title": cells[1] if len(cells) == 3 else None, "text": cells[-1]}
        else:
            tally.drop("bad_columns", " ".join(cells))
