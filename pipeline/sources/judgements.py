"""Judgements (qrels) of any tool: TREC and BEIR's tables, CSV, JSON, JSON lines, Parquet; mappings and frames."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import counted
from pipeline.core.errors import CorruptError, EmptyFileError, InputError
from pipeline.core.progress import warn
from pipeline.core.text import ENCODED, unescape
from pipeline.sources.base import Batch, QuerySet
from pipeline.sources.content import read_blocks, read_lines
from pipeline.sources.records import Tally, open_parquet

QUERY = ("query_id", "query-id", "qid", "q_id", "topic_id", "topic", "query")
DOCUMENT = ("doc_id", "docno", "docid", "doc-id", "corpus-id", "corpus_id", "paper_id", "pid", "doc", "document")
_GRADE = ("score", "grade", "relevance", "rel", "label")

ROLES = {"query": QUERY, "document": DOCUMENT, "grade": _GRADE}
"""Accepted names of the columns of judgements; the last one of a role counts only if no other is there."""

_MAX_GRADE = 32_767
_WHOLE = re.compile(r"\s*-?[0-9]{1,5}(\.0*)?\s*")
_REMEDY = (
    "Each line must have query-id, corpus-id and score, or the four columns of TREC qrels, in UTF-8; "
    f"the score is an integer from -{_MAX_GRADE} to {_MAX_GRADE}"
)

Judgement = tuple[int, tuple[str, str], int]
"""Line, row or position from 1, (query id, document id), grade."""


_Ungraded = tuple[int, tuple[str, str], Any, str]
"""A judgement with the grade as it was read, and its place."""


def read_judgements(path: Path, *, blank: bool = False) -> Iterator[Judgement]:
    """Yield the judgements of a file: TREC or BEIR qrels, ``.csv``, ``.json``, ``.jsonl`` or ``.parquet``.

    Lines that start with ``#`` are comments, as for trec_eval 10, and a header is recognised. White space separates
    columns; in a ``.tsv`` file tabs do. Ids are read as they are, unless our mark in the second column says that they
    are percent-encoded. ``.gz`` may follow each ending but that of Parquet. ``blank`` leaves out rows without a grade.

    Raises:
        InputError: the file cannot be read, or a line or a grade is malformed.
    """
    try:
        reader = {"json": _json, "jsonl": _json_lines, "ndjson": _json_lines, "parquet": _parquet, "parq": _parquet}
        for number, pair, grade, place in reader.get(ending(path), _text)(path):
            if not blank or (grade is not None and str(grade).strip()):
                yield number, pair, _grade_of(grade, place)
    except (CorruptError, EmptyFileError) as error:
        raise InputError(error.what, "Write or fetch the qrels again") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", "Give a file of TREC qrels, BEIR's .tsv, or .json") from error


def judgements_of(qrels: Any) -> Iterator[Judgement]:
    """Yield the judgements of ``{query: {document: grade}}`` or a frame with columns :data:`ROLES`; as from a file."""
    is_mapping = isinstance(qrels, Mapping)
    ungraded = _nested("the qrels", qrels) if is_mapping else _rows("the qrels", as_table(qrels).to_pylist())
    yield from ((number, pair, _grade_of(grade, place)) for number, pair, grade, place in ungraded)


def judged_queries(
    judged: Collection[str],
    texts: Mapping[str, str],
    grades: Mapping[tuple[str, str], int],
    tally: Tally,
    of_judgements: Batch | None = None,
    **more: Any,
) -> QuerySet:
    """Return the judged queries of a benchmark that are there, with their judgements and ``more`` attributes.

    Those that are absent, or have an empty text, are counted in ``tally``, that of the queries' file, and said.

    Raises:
        InputError: no judged query is there, or none has a text.
    """
    there = {query: text for query, text in texts.items() if query in judged}
    absent, empty = sorted({*judged} - there.keys()), sorted(query for query, text in there.items() if not text)
    if absent and not there:
        what = f"{tally.path} has none of {counted(len(absent), 'judged query')}"
        raise InputError(what, "Give the queries of this split")
    if empty and len(empty) == len(there):
        what = f"{tally.path} has no text of {counted(len(empty), 'judged query')}"
        raise InputError(what, "Name their texts 'text'")
    for reason, said, queries in (
        ("judged_query_absent", "left out: {} that {} lacks, first {!r}", absent),
        ("judged_query_empty", "without a text: {} of {}, first {!r}", empty),
    ):
        if queries:
            warn(said.format(counted(len(queries), "judged query"), tally.path, queries[0]))
            tally.noted[reason] += len(queries)
            tally.examples.append(f"{reason}: {tally.path.name}: {queries[0]}")
    total = of_judgements or Batch(read=0)
    total.add_counts(tally)
    pairs = [(query, paper, grade) for (query, paper), grade in grades.items() if query in there]
    return QuerySet(there, pairs, total.dropped + total.noted, total.examples, **more)


def ending(path: Path) -> str:
    """Return the ending of a file's name without ``.gz``, in lower case: ``json``."""
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def as_table(frame: Any) -> pa.Table:
    """Return a frame of polars, pandas or Arrow as a table; InputError for other objects."""
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            f"runs and qrels must be files, mappings or frames, got {type(frame).__name__}",
            "Give {query: {document: number}}, or a frame of polars, pandas or Arrow",
        )
    return pa.table(frame)


def column_of(names: Iterable[str], role: Sequence[str]) -> list[str]:
    """Return the names of columns that have a role; its last spelling counts only if there is no other."""
    matches = [name for name in names if name.strip().casefold() in role]
    return [name for name in matches if name.strip().casefold() != role[-1]] or matches


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of the lines that are not blank or comments; InputError if one is not UTF-8."""
    for number, line in read_lines(path):
        if line is None or not line.startswith(b"#"):
            try:
                yield number, (line or b"").decode().rstrip("\r")
            except UnicodeDecodeError as error:
                raise InputError(f"{path}:{number} must be a text in UTF-8, got {line!r:.90}", "Convert it") from error


def splitter(path: Path) -> Callable[[str], list[str]]:
    """Return the function that divides a line of a text file into columns."""
    kind = ending(path)
    if kind == "csv":
        return lambda line: next(csv.reader([line])) if "," in line else line.split()
    return lambda line: line.split("\t") if kind == "tsv" and "\t" in line else line.split()


def header_of(columns: Sequence[str], roles: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the positions of the roles in a header by role; empty if the first line is none."""
    found = {role: column_of(columns, spellings) for role, spellings in roles.items()}
    if not (found["query"] and found["document"]):
        return {}
    return {role: columns.index(names[0]) for role, names in found.items() if names}


def id_of(value: Any, place: str) -> str:
    """Return an id as text; InputError unless it is a text or an integer."""
    if isinstance(value, Integral) and value is not True and value is not False:
        return str(value)
    if not isinstance(value, str) or not value or re.search("[\ud800-\udfff]", value):
        raise InputError(f"{place}: ids must be strings or integers, got {value!r:.60}", "Write them as strings")
    return value


def _grade_of(value: Any, place: str) -> int:
    """Return a grade; whole numbers of any type count, also ``1.0``."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = float(value)
    is_number = isinstance(value, Real) and value is not True and value is not False
    if not is_number or not abs(value) <= _MAX_GRADE or value != int(value):
        is_fraction = is_number and abs(value) <= _MAX_GRADE
        example = ", such as 6 for 0.6," if is_fraction else " in this range,"
        raise InputError(
            f"{place} is not a judgement: a grade must be a whole number from -{_MAX_GRADE:,} to {_MAX_GRADE:,}, "
            f"got {value!r:.60}",
            f"Write whole grades{example} or leave the judgement out",
        )
    return int(value)


def _text(path: Path) -> Iterator[_Ungraded]:
    split, column_numbers = splitter(path), dict[str, int]()
    for position, (number, line) in enumerate(text_lines(path)):
        columns = split(line)
        if position == 0 and (column_numbers := header_of(columns, ROLES)):
            if "grade" not in column_numbers:
                raise InputError(f"{path}:{number} must name a column of grades, got {line!r:.90}", _REMEDY)
            continue
        if len(columns) <= max(column_numbers.values()) if column_numbers else len(columns) not in (3, 4):
            raise InputError(f"{path}:{number} is not a judgement", _REMEDY)
        pair = columns[column_numbers.get("query", 0)], columns[column_numbers.get("document", -2)]
        if not column_numbers and len(columns) == 4 and columns[1] == ENCODED:
            pair = unescape(pair[0]), unescape(pair[1])
        yield number, pair, columns[column_numbers.get("grade", -1)], f"{path}:{number}"


def _json(path: Path) -> Iterator[_Ungraded]:
    value = files.given_json(path, b"".join(read_blocks(path)))
    return _rows(path, value) if isinstance(value, list) else _nested(path, value)


def _json_lines(path: Path) -> Iterator[_Ungraded]:
    return _rows(path, (record for _, record in json_records(path)))


def json_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line number, record) of JSON lines; InputError if one is not JSON."""
    for number, line in read_lines(path):
        try:
            yield number, msgspec.json.decode(line or b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}:{number} is not JSON ({error})", "Write an object a line") from error


def _parquet(path: Path) -> Iterator[_Ungraded]:
    try:
        return _rows(path, open_parquet(path).read().to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet ({error})", "Fetch it again") from error


def _nested(place: Path | str, grades_of: Any) -> Iterator[_Ungraded]:
    """Yield the judgements of ``{query: {document: grade}}``."""
    number = 0
    for query, grades in members(place, grades_of):
        for document, grade in members(f"{place}, query {query!r},", grades):
            number += 1
            where = f"{place}, query {query!r}, document {document!r},"
            yield number, (id_of(query, where), id_of(document, where)), grade, where


def members(place: Path | str, value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the members of a mapping from outside; InputError if it is another object."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{place} must be an object, as in {{query: {{document: number}}}}, got {value!r:.60}", "Write it again"
        )
    return value.items()


def _rows(path: Path | str, rows: Iterable[Any]) -> Iterator[_Ungraded]:
    """Yield the judgements of records with the columns :data:`ROLES`."""
    for number, record in enumerate(rows, 1):
        place = f"{path} row {number}"
        names = [record_value(place, record, role, spellings) for role, spellings in ROLES.items()]
        yield number, (id_of(names[0], place), id_of(names[1], place)), names[2], place


def record_value(place: str, record: Any, role: str, spellings: Sequence[str]) -> Any:
    """Return the value of a record that has a role; InputError unless one column has it."""
    names = column_of(record, spellings) if isinstance(record, Mapping) else []
    if len(names) != 1:
        raise InputError(
            f"{place} must have one column for the {role}, got {', '.join(record) if names else repr(record):.90}",
            f"Name it {spellings[0]}, one of {', '.join(spellings)}",
        )
    return record[names[0]]
