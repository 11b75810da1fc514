"""The entries of runs of any tool: TREC, tables, JSON, JSON lines and Parquet, mappings and frames.

A malformed line, a score that is not a finite number, or an id of another type is an error with its location. Lines
that start with ``#`` are comments, and a header is recognised.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import CorruptError, EmptyFileError, InputError
from pipeline.core.files import given
from pipeline.core.progress import say
from pipeline.core.text import ENCODED, unescape
from pipeline.core.text import number as decimal
from pipeline.sources.content import read_blocks
from pipeline.sources.judgements import (
    DOCUMENT,
    QUERY,
    as_table,
    column_of,
    ending,
    header_of,
    id_of,
    json_records,
    record_value,
    splitter,
    text_lines,
)

MEMORY = 2**31
"""Default of the approximate memory for reading a run, in bytes."""

_MEMORY_FACTORS = {"text": 8, "json": 20}
"""Approximate maximum memory of a run, as a multiple of its text. JSON is first read as tuples."""

_ROW_BYTES = 128
"""Approximate memory of a row of a Parquet file, in bytes."""

_SCORE = ("score",)
_ROLES = {"query": QUERY, "document": DOCUMENT, "score": _SCORE}
_COLUMNS = (
    "'query Q0 document rank score tag' or 'query document score'",
    "Write these columns with white space between them, or a header that names them",
)

_ENDINGS = (
    *("run", "trec", "txt", "tsv", "csv", "json", "jsonl", "ndjson", "parquet", "parq"),
    *("qrels", "qrel", "res", "results", "out", "gz"),
)
"""Endings of file names that are no part of a name."""

PREDICTIONS = "mteb_model_meta"
"""Key of the files of predictions of MTEB, beside subsets of splits of runs."""


@dataclass(frozen=True)
class Entries:
    """The entries of a run file, in file order.

    Attributes:
        path: the file.
        queries: query id of each entry.
        documents: document id of each entry.
        scores: float64 ``[n]``, finite as float32.
        locate: returns the location of an entry, such as ``my.run:7``.
    """

    path: Path
    queries: Sequence[str]
    documents: Sequence[str]
    scores: npt.NDArray[np.float64]
    locate: Callable[[int], str]


def name_of(path: Path) -> str:
    """Return the name of a file without known endings: ``input.uic0301`` of ``input.uic0301.gz``."""
    name = path.name
    while (parts := name.rpartition("."))[0] and parts[2].lower() in _ENDINGS:
        name = parts[0]
    return name


def labelled_file(text: str | Path) -> tuple[str, Path]:
    """Return label and path of ``FILE`` or ``LABEL=FILE``; without a label, the name of the file (:func:`name_of`)."""
    path = Path(text)
    if isinstance(text, Path) or path.exists():
        return name_of(path), path
    label, equals, file = text.partition("=")
    return (label, Path(file)) if label and equals else (name_of(path), path)


def read_entries(path: Path, memory: int = MEMORY) -> Entries:
    """Return the entries of a run file, of any pool. The ending of its name gives the format; ``.gz`` may follow.

    Ids are read as they are, unless our mark in the second column of a TREC file says that they are percent-encoded.

    Raises:
        InputError: it cannot be read, has no entry, or has a score that is not a finite float32 number.
    """
    readers = {"json": _json, "jsonl": _json_lines, "ndjson": _json_lines}
    reader = readers.get(ending(path), _parquet if ending(path) in ("parquet", "parq") else _text)
    try:
        entries = reader(given(path), memory)
    except (CorruptError, EmptyFileError) as error:
        raise InputError(error.what, "Write the run again") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", "Give a run: TREC, .json or .parquet") from error
    except (OSError, EOFError, ValueError, ArithmeticError, RuntimeError, LookupError) as error:
        raise InputError(
            f"{path} cannot be read as a run ({str(error)[:200]})",
            "Give a TREC run, or a file that ends in .json, .jsonl or .parquet; .gz may follow",
        ) from error
    if not len(entries.scores):
        raise InputError(f"the run {path} must have an entry, got none", "Write the run again")
    return _check_finite(entries)


def entries_of(run: Any) -> Entries:
    """Return the entries of scores by query and document, or of a frame with columns for query, document and score.

    Raises:
        InputError: an id is not a string or an integer, or a score is not a number.
    """
    if not isinstance(run, Mapping):
        return _check_finite(_table(Path("run"), as_table(run)))
    return _check_finite(_nested(Path("run"), run))


def _check_finite(entries: Entries) -> Entries:
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(entries.scores.astype(np.float32)))
    if len(bad):
        raise InputError(
            f"{entries.locate(int(bad[0]))}: a score must be a finite float32 number (bad scores: {len(bad):,})",
            "Remove the entry, or give it a finite score",
        )
    return entries


class _Columns:
    """Entries that are read one by one; one string object for each distinct id."""

    def __init__(self, path: Path) -> None:
        self.path, self.ids = path, dict[str, str]()
        self.queries, self.documents, self.scores = list[str](), list[str](), array("d")
        self.numbers = array("q")

    def add(self, number: int, query: str, document: str, score: float) -> None:
        self.queries.append(self.ids.setdefault(query, query))
        self.documents.append(self.ids.setdefault(document, document))
        self.scores.append(score)
        self.numbers.append(number)

    def entries(self) -> Entries:
        numbers = self.numbers
        return Entries(
            self.path, self.queries, self.documents, _float64(self.scores), lambda i: f"{self.path}:{numbers[i]}"
        )


def _text(path: Path, memory: int) -> Entries:
    """Return the entries of a TREC run, or of a table of query, document and score or rank."""
    columns, split = _Columns(path), splitter(path)
    column_numbers, width, size = dict[str, int](), 0, 0
    for number, line in text_lines(path):
        size += len(line)
        _check_size(path, size * _MEMORY_FACTORS["text"], memory)
        words = split(line)
        if not width:
            width = len(words)
            if column_numbers := header_of(words, _ROLES | {"rank": ("rank",)}):
                if not {"score", "rank"} & column_numbers.keys():
                    raise InputError(f"{path}:{number} must name a column of scores, got {line!r:.90}", _COLUMNS[1])
                continue
        try:
            if column_numbers:
                query, document = words[column_numbers["query"]], words[column_numbers["document"]]
                score = words[column_numbers.get("score", column_numbers.get("rank", 0))]
            elif width == 3:
                query, document, score = words
            else:
                query, mark, document, _, score, _ = words
                if mark == ENCODED:
                    query, document = unescape(query), unescape(document)
            columns.add(number, query, document, decimal(score))
        except (ValueError, IndexError) as error:
            raise InputError(f"{path}:{number} must be {_COLUMNS[0]}, got {line!r:.90}", _COLUMNS[1]) from error
    entries = columns.entries()
    has_ranks = "score" not in column_numbers if column_numbers else width == 3
    return _by_rank(entries) if has_ranks and len(entries.scores) else entries


def _by_rank(entries: Entries) -> Entries:
    """Return entries whose numbers are scores, as rank 1 is best, if the numbers of each query are 1, 2, 3 and so on.

    Raises:
        InputError: they are 1 to n of each query in mixed order, which may be ranks or scores.
    """
    numbers_of: dict[str, list[float]] = {}
    for query, number in zip(entries.queries, entries.scores.tolist(), strict=True):
        numbers_of.setdefault(query, []).append(number)
    lists = list(numbers_of.values())
    if not all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in lists):
        return entries
    if all(numbers == sorted(numbers) for numbers in lists):
        say(f"{entries.path}: the numbers of each query are 1, 2, 3 and so on, and were read as ranks")
        return Entries(entries.path, entries.queries, entries.documents, -entries.scores, entries.locate)
    if all(numbers == sorted(numbers, reverse=True) for numbers in lists):
        return entries
    raise InputError(
        f"{entries.path} must tell ranks from scores, but each query has the numbers 1 to n in mixed order",
        "Write the six columns of TREC, or sort each query by rank",
    )


class _Object(list[tuple[str, Any]]):
    """A JSON object whose keys may repeat."""


def _json(path: Path, memory: int) -> Entries:
    data = bytearray()
    for block in read_blocks(path):
        data += block
        _check_size(path, len(data) * _MEMORY_FACTORS["json"], memory)
    run = json.loads(data, object_pairs_hook=_Object)
    if isinstance(run, list) and not isinstance(run, _Object):
        return _records(path, enumerate(json.loads(data), 1))
    names = [name for name, _ in run] if isinstance(run, _Object) else []
    return _nested(path, _of_mteb(path, run) if PREDICTIONS in names else run)


def _of_mteb(path: Path, run: _Object) -> Any:
    """Return the run of a file of predictions of MTEB, with one split of one subset."""
    splits = [
        (f"{subset}, {split}", split_run)
        for subset, members in run
        if subset != PREDICTIONS
        for split, split_run in _members(path, members, f"the subset {subset!r}")
    ]
    if len(splits) != 1:
        names = "; ".join(name for name, _ in splits) or "none"
        raise InputError(f"{path} must have one subset and split, got {names}", "Write each to a file of its own")
    return splits[0][1]


def _json_lines(path: Path, memory: int) -> Entries:
    _check_size(path, path.stat().st_size * _MEMORY_FACTORS["text"], memory)
    return _records(path, json_records(path))


def _records(path: Path, records: Iterable[tuple[int, Any]]) -> Entries:
    """Return the entries of records of query, document and score, or of query and ``results``, a list of the others."""
    columns = _Columns(path)
    for number, record in records:
        place = f"{path}:{number}"
        query = id_of(record_value(place, record, "query", QUERY), place)
        for result in record["results"] if isinstance(record.get("results"), list) else [record]:
            document = id_of(record_value(place, result, "document", DOCUMENT), place)
            score = _number(record_value(place, result, "score", _SCORE), f"{place}: the score")
            columns.add(number, query, document, score)
    return columns.entries()


def _check_size(path: Path, needed: int, memory: int) -> None:
    if needed > memory:
        raise InputError(
            f"the run {path} needs more than {memory / 2**20:,.0f} MiB of memory",
            "Give the command more with --memory, or divide the run by queries",
        )


def _nested(path: Path, run: Any) -> Entries:
    """Return the entries of ``{query: {document: score}}``."""
    queries, documents, scores = list[str](), list[str](), array("d")
    for query, scored in _members(path, run, "the run"):
        for document, score in _members(path, scored, f"query {query!r}"):
            scores.append(_number(score, f"{path}: the score of query {query!r}, document {document!r}"))
            queries.append(query)
            documents.append(document)

    def locate(entry: int) -> str:
        return f"{path}: query {queries[entry]!r}, document {documents[entry]!r}"

    return Entries(path, queries, documents, _float64(scores), locate)


def _members(path: Path, value: Any, description: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, _Object | Mapping):
        raise _shape_error(f"{path}: {description}", "an object, as in {query: {document: score}}", value)
    seen = set[str]()
    for key, member in value if isinstance(value, _Object) else value.items():
        name = id_of(key, f"{path}: {description}")
        if name in seen:
            raise InputError(f"{path}: {description} must have each key once, got {name!r} twice", "Keep one of them")
        seen.add(name)
        yield name, member


def _number(value: Any, subject: str) -> float:
    if not isinstance(value, Real) or value is True or value is False:
        raise _shape_error(subject, "a number", value)
    return float(value)


def _shape_error(subject: str, expected: str, got: Any) -> InputError:
    return InputError(f"{subject} must be {expected}, got {got!r:.60}", "Write the run again")


def _parquet(path: Path, memory: int) -> Entries:
    if path.suffix == ".gz":
        raise InputError(f"{path} must be Parquet without gzip around it", "Unpack it: Parquet is compressed inside")
    _check_size(path, pq.read_metadata(path).num_rows * _ROW_BYTES, memory)
    return _table(path, pq.read_table(path, columns=_column_names(path, pq.read_schema(path).names)))


def _column_names(path: Path, names: Sequence[str]) -> list[str]:
    """Return the names of the columns of query, document and score."""
    columns = []
    for role, spellings in _ROLES.items():
        matches = column_of(names, spellings)
        if len(matches) != 1:
            raise InputError(
                f"{path} must have one column for the {role}, got {', '.join(names)}",
                f"Name it {spellings[0]}" + (f", one of {', '.join(spellings)}" if len(spellings) > 1 else ""),
            )
        columns += matches
    return columns


def _table(path: Path, frame: pa.Table) -> Entries:
    table = frame.select(_column_names(path, frame.column_names))
    for column in table.columns[:2]:
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            raise InputError(f"{path}: ids must be strings or integers, got {column.type}", "Write them as strings")

    def locate(entry: int) -> str:
        return f"{path} row {entry + 1}"

    for column in table.columns:
        if column.null_count:
            entry = column.is_null().to_pylist().index(True)
            raise InputError(f"{locate(entry)}: an entry must be complete, got a missing value", "Remove it or fill it")
    queries, documents = (column.cast(pa.large_string()).to_pylist() for column in table.columns[:2])
    return Entries(path, queries, documents, _float64(table.column(2).cast(pa.float64()).to_numpy()), locate)


def _float64(scores: Iterable[float]) -> npt.NDArray[np.float64]:
    """Return scores without negative zero."""
    return np.asarray(scores, np.float64) + 0.0
