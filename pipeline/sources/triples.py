"""Files of query, document and number of any tool, such as runs and qrels: TREC, tables, JSON, JSON lines and Parquet.

Lines that start with ``#`` are comments, as for trec_eval 10, and a header is recognised. White space separates
columns; in tables tabs, commas, semicolons or bars do. Ids are read as they are, unless our mark in the second column
of a TREC file says that they are percent-encoded. ``.gz`` may follow each ending but that of Parquet.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import CorruptError, EmptyFileError, InputError
from pipeline.core.text import unescape
from pipeline.sources.content import read_blocks, read_lines
from pipeline.sources.records import StrictTally, open_parquet, read_records
from pipeline.sources.tables import SEPARATORS, Dialect, open_table

QUERY = ("query_id", "query-id", "qid", "q_id", "topic_id", "topic", "query")
DOCUMENT = ("doc_id", "docno", "docid", "doc-id", "corpus-id", "corpus_id", "paper_id", "pid", "doc", "document")
"""Accepted names of the columns of ids; the last one counts only if no other is there."""

PREDICTIONS = "mteb_model_meta"
"""Key of the files of predictions of MTEB, beside subsets of splits of runs."""

_JSON_FACTOR, _TEXT_FACTOR, _ROW_BYTES = 20, 8, 128
"""Approximate maximum memory of a file, as a multiple of its text, and of a row of a Parquet file in bytes."""


class Form(NamedTuple):
    """What distinguishes kinds of these files.

    Attributes:
        name: what a file is: ``run``.
        numbers: accepted names of the column of numbers by what they are, the best first.
        of_words: returns query, document, number and whether ids are encoded of a line without header; ValueError: it
            is none. Takes also the number of columns of the first line.
        number: converts the text of a number, or refuses it by ValueError.
        line: what is said of a bad line, and its remedy.
        remedy: what to give in place of a file that is missing or cannot be read.
    """

    name: str
    numbers: Mapping[str, Sequence[str]]
    of_words: Callable[[Sequence[str], int], tuple[str, str, str, bool]]
    number: Callable[[str], Any]
    line: tuple[str, str]
    remedy: str

    @property
    def roles(self) -> dict[str, Sequence[str]]:
        """Accepted names of the columns of query, document and number by what they hold."""
        return {"query": QUERY, "document": DOCUMENT, **dict(itertools.islice(self.numbers.items(), 1))}


Row = tuple[int, str, str, Any]
"""Line, row or position from 1 (0 in an object), query id, document id, and the number as it was read."""


class Triples(NamedTuple):
    """The entries of a file.

    Attributes:
        rows: the entries in order.
        file: names it before the number of an entry; of ``{query: {document: number}}``, before its ids.
        may_be_ranks: whether the numbers may be ranks.
    """

    rows: Iterable[Row]
    file: str
    may_be_ranks: bool = False

    def locate(self, number: int, query: str, document: str) -> str:
        """Return the place of an entry: ``my.run:7``."""
        numbered = self.file.endswith((":", " row "))
        return f"{self.file}{number}" if numbered else f"{self.file}: query {query!r}, document {document!r}"


def read_triples(given: Any, form: Form, memory: float = math.inf) -> Triples:
    """Return the entries of a file, ``{query: {document: number}}``, or a frame of polars, pandas or Arrow.

    The ending of a file's name gives its format. Reading stops beyond ``memory`` bytes, approximately.

    Raises:
        InputError: it cannot be read, here or when its rows are read.
    """
    if isinstance(given, Mapping):
        return Triples(_nested(f"the {form.name}", given), f"the {form.name}")
    if not isinstance(given, Path):
        if not hasattr(given, "__arrow_c_stream__"):
            what = f"runs and qrels must be files, mappings or frames, got {type(given).__name__}"
            raise InputError(what, "Give {query: {document: number}}, or a frame of polars, pandas or Arrow")
        try:
            records = pa.table(given).to_pylist()
        except pa.ArrowException as error:
            what = f"the {form.name} must be a table, got {type(given).__name__} ({error})"
            raise InputError(what, form.remedy) from error
        return _records(f"the {form.name} row ", enumerate(records, 1), form)
    with _errors(given, form):
        found = _opened(files.given(given), form, memory)

    def rows() -> Iterator[Row]:
        with _errors(given, form):
            yield from found.rows

    return found._replace(rows=rows())


@contextlib.contextmanager
def _errors(path: Path, form: Form) -> Iterator[None]:
    try:
        yield
    except (CorruptError, EmptyFileError) as error:
        raise InputError(error.what, f"Write or fetch the {form.name} again") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", form.remedy) from error
    except (OSError, EOFError, ValueError, ArithmeticError, RuntimeError, LookupError) as error:
        raise InputError(f"the {form.name} {path} cannot be read ({str(error)[:200]})", form.remedy) from error


def _opened(path: Path, form: Form, memory: float) -> Triples:
    """Return the entries of a file by the ending of its name."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending in ("parquet", "parq"):
        file = open_parquet(path)
        _check_size(path, form, [file.metadata.num_rows * _ROW_BYTES], memory)
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        return _records(f"{path} row ", enumerate(rows, 1), form)
    factor = _JSON_FACTOR if ending == "json" else _TEXT_FACTOR
    _check_size(path, form, (len(block) * factor for block in read_blocks(path)), memory)
    if ending in ("jsonl", "ndjson"):
        tally = StrictTally(path, "row")
        return _records(f"{path}:", ((tally.line, row) for row in read_records(dict[str, Any], tally)), form)
    if ending != "json":
        return _text(path, form, is_table=ending in ("csv", "tsv"))
    value = files.given_json(path, b"".join(read_blocks(path)))
    if isinstance(value, list):
        return _records(f"{path} row ", enumerate(value, 1), form)
    if isinstance(value, Mapping) and PREDICTIONS in value:
        splits = dict(splits_of(path, value))
        if len(splits) != 1:
            names = "; ".join(map(", ".join, splits)) or "none"
            raise InputError(f"{path} must have one subset and split, got {names}", "Write each to a separate file")
        (value,) = splits.values()
    return Triples(_nested(path, value), str(path))


def _check_size(path: Path, form: Form, sizes: Iterable[float], memory: float) -> None:
    """Raise InputError once the memory that a file needs exceeds ``memory``."""
    if memory < math.inf and any(needed > memory for needed in itertools.accumulate(sizes)):
        what = f"the {form.name} {path} needs more than {memory / 2**20:,.0f} MiB of memory"
        raise InputError(what, f"Give the command more with --memory, or divide the {form.name} by queries")


def _text(path: Path, form: Form, *, is_table: bool) -> Triples:
    """Return the lines of a TREC file or of a table.

    It is a table too if its first line is without white space; else white space separates columns.
    """
    first = next((line or b"" for _, line in read_lines(path) if not (line or b"").startswith(b"#")), b"")
    many = max(first.count(separator.encode()) for separator in SEPARATORS) > 1
    is_table |= many and len(first.split()) == 1
    names, separator, lines = open_table(
        StrictTally(path, "whole row in UTF-8"),
        lambda row: bool(_header_of(row, form)),
        header=False,
        dialect=None if is_table else Dialect(" "),
    )
    header = _header_of(names, form) if names else {}
    named = [role for role in form.numbers if role in header]
    if names and not named:
        what = f"{path}:1 must name a column of {next(iter(form.numbers))}s, got {' '.join(names)!r:.90}"
        raise InputError(what, form.line[1])
    first_row = next(lines, None)
    width = len(first_row[1]) if first_row else 0

    def rows() -> Iterator[Row]:
        for number, words in itertools.chain([first_row] if first_row else [], lines):
            try:
                if header:
                    query, document, text = (words[header[role]] for role in ("query", "document", named[0]))
                else:
                    query, document, text, encoded = form.of_words(words, width)
                    query, document = map(unescape, (query, document)) if encoded else (query, document)
                value = form.number(text.replace(",", ".") if separator == ";" else text)
            except (ValueError, IndexError) as error:
                line = (separator or " ").join(words)
                raise InputError(f"{path}:{number} {form.line[0]}, got {line!r:.90}", form.line[1]) from error
            yield number, query, document, value

    return Triples(rows(), f"{path}:", named[0] == "rank" if header else width == 3)


def _header_of(columns: Sequence[str], form: Form) -> dict[str, int]:
    """Return the positions of the roles in a header by role; empty if the first line is none."""
    roles = {"query": QUERY, "document": DOCUMENT, **form.numbers}
    found = {role: _columns_of(columns, spellings) for role, spellings in roles.items()}
    if not (found["query"] and found["document"]):
        return {}
    return {role: columns.index(names[0]) for role, names in found.items() if names}


def _columns_of(names: Iterable[str], spellings: Sequence[str]) -> list[str]:
    """Return the names of columns that have a role; its last spelling counts only if there is no other."""
    matches = [name for name in names if name.strip().casefold() in spellings]
    return [name for name in matches if name.strip().casefold() != spellings[-1]] or matches


def id_of(value: Any, place: str) -> str:
    """Return an id as text; InputError unless it is a text or an integer."""
    if isinstance(value, Integral) and value is not True and value is not False:
        return str(value)
    if not isinstance(value, str) or not value or re.search("[\ud800-\udfff]", value):
        raise InputError(f"{place}: ids must be strings or integers, got {value!r:.60}", "Write them as strings")
    return value


def splits_of(path: Path, predictions: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield subset and split, and the run, of each split of a file of predictions of MTEB."""
    for subset, splits in predictions.items():
        if subset != PREDICTIONS:
            yield from (((subset, split), run) for split, run in _members(f"{path}: the subset {subset!r}", splits))


def _nested(place: Path | str, numbers_of: Any) -> Iterator[Row]:
    """Yield the entries of ``{query: {document: number}}``, or of ``{query_document: number}``."""
    for query, numbers in _members(place, numbers_of):
        where = f"{place}: query {query!r}"
        name = id_of(query, where)
        if isinstance(numbers, Real) and name.count("_") == 1:  # a score file of MDCR
            name, document = name.split("_")
            numbers = {document: numbers}
        for document, number in _members(where, numbers):
            yield 0, name, id_of(document, where), number


def _members(place: Path | str, value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the members of a mapping from outside; InputError if it is another object."""
    if not isinstance(value, Mapping):
        what = f"{place} must be an object, as in {{query: {{document: number}}}}, got {value!r:.60}"
        raise InputError(what, "Write it again")
    return value.items()


def _records(file: str, records: Iterable[tuple[int, Any]], form: Form) -> Triples:
    """Return the entries of numbered records of query, document and number, or of query and a list of ``results``."""

    @functools.cache
    def columns(names: Iterable[str], role: str) -> list[str]:
        return _columns_of(names, form.roles[role])

    def value_of(record: Any, role: str, place: str) -> Any:
        names = tuple(record) if isinstance(record, Mapping) else ()
        if len(found := columns(names, role)) != 1:
            first, *others = form.roles[role]
            what = f"{place} must have one column for the {role}, got {', '.join(names) or repr(record):.90}"
            raise InputError(what, f"Name it {', or '.join(filter(None, [first, ', '.join(others)]))}")
        return record[found[0]]

    def rows() -> Iterator[Row]:
        for number, record in records:
            place = f"{file}{number}"
            query = id_of(value_of(record, "query", place), place)
            for result in record["results"] if isinstance(record.get("results"), list) else [record]:
                document = id_of(value_of(result, "document", place), place)
                yield number, query, document, value_of(result, next(iter(form.numbers)), place)

    return Triples(rows(), file)
