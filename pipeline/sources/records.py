"""Read typed records of JSON and Parquet, and count unreadable records by reason."""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.config import counted
from pipeline.core.errors import CorruptError, InputError, require_known
from pipeline.core.files import given
from pipeline.core.markup import plain_text
from pipeline.core.progress import warn
from pipeline.sources.base import Batch
from pipeline.sources.content import read_json, refuse_as_parquet
from pipeline.sources.options import MAX_TEXT

EXAMPLES = 3
"""Maximum number of example records by reason and part."""

_BATCH_ROWS, _BATCH_BYTES = 64, 2**24
"""Maximum number of Parquet rows, and their approximate bytes, that are Python objects at a time."""

UNREADABLE = ("bad_bibtex", "bad_columns", "bad_json", "bad_utf8", "line_too_long", "no_paper_id", "wrong_type")
"""Reasons for dropping a record that are defects of the input, not rules of a release."""

_YEAR = re.compile(r"(?<![0-9_])[0-9]{4}(?![0-9_])", re.ASCII)
_LIST = re.compile(r"(?:array\()?[\[({](.*?)[\])}](?:, dtype=\w+\))?", re.DOTALL)
_ITEM = re.compile(r"""'([^']*)'|"([^"]*)"|([^\s,;|'"\[\]]+)""")
"""A list that Python, NumPy, JSON or a database wrote as text, and an item of one."""
_NULLS = ("nan", "None", "null")
_SEPARATOR = re.compile(r"[;|]|,\s+|,(?=[\w-]+(?:,|\Z))")
_FLOAT = re.compile(r"([0-9]+)\.0")
_WORDS = {"str": "a text", "int": "a number", "float": "a number", "bool": "true or false", "array": "a list"}
"""What a value has to be, in words, by its type in messages of :mod:`msgspec`."""

_LISTS = (list, set)

_Odd = Callable[[str, Any], None]

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Tally(Batch):
    """Counts the records of a file, keeps examples of bad ones, and strips and cuts texts."""

    def __init__(self, path: Path, max_text: int = MAX_TEXT, markup: str = "keep") -> None:
        super().__init__(read=0)
        self.withdrawn: list[str] = []
        """Ids of dropped papers whose earlier records are dropped too."""
        self._path, self._max_text, self._is_plain = path, max_text, markup == "strip"
        self._shown: Counter[str] = Counter()

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count a dropped record; the first :data:`EXAMPLES` of a reason become examples."""
        self.drop_expected(reason)
        self._show(reason, line, excerpt)

    def odd(self, reason: str, value: Any, line: int) -> None:
        """Count a value that counts as missing; the first :data:`EXAMPLES` of a reason become examples."""
        self.noted[reason] += 1
        self._show(reason, line, f"{value!r:.80}")

    def _show(self, reason: str, line: int, excerpt: bytes | str) -> None:
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def cut(self, text: str | None) -> str | None:
        """Return the text, without markup if it is stripped, cut at the maximum length; count cut texts."""
        text = plain_text(text) if text and self._is_plain else text
        if text is None or len(text) <= self._max_text:
            return text
        self.noted["text_cut"] += 1
        return text[: self._max_text]

    def drop_expected(self, reason: str) -> None:
        """Count a record dropped for a reason that is usual in the release, without an example."""
        self.read += 1
        self.dropped[reason] += 1

    def leave_out_absent(self, judged: Iterable[str], texts: Mapping[str, str]) -> None:
        """Count and name the judged queries that are absent, or have an empty text; InputError if no other is left."""
        there = texts.keys() & {*judged}
        absent, empty = sorted({*judged} - there), sorted(query for query in there if not texts[query])
        if absent and not there:
            raise InputError(
                f"{self._path} has none of {counted(len(absent), 'judged query')}", "Give the queries of this split"
            )
        if empty and len(empty) == len(there):
            raise InputError(
                f"{self._path} has no text of {counted(len(empty), 'judged query')}", "Name their texts 'text'"
            )
        for reason, said, queries in (
            ("judged_query_absent", "left out: {} that {} lacks, first {!r}", absent),
            ("judged_query_empty", "without a text: {} of {}, first {!r}", empty),
        ):
            if queries:
                warn(said.format(counted(len(queries), "judged query"), self._path, queries[0]))
                self.noted[reason] += len(queries)
                self.examples.append(f"{reason}: {self._path.name}: {queries[0]}")

    def pairs_in_batches(
        self, pairs: Iterable[tuple[str, str]], rows: int, chars: float = math.inf
    ) -> Iterator[tuple[list[str], list[str], dict[str, Any]]]:
        """Yield the firsts and the seconds of pairs, about ``rows`` or ``chars`` of seconds, and :meth:`counts`."""
        firsts, seconds, length = list[str](), list[str](), 0
        for first, second in pairs:
            firsts.append(first)
            seconds.append(second)
            length += len(second)
            if len(firsts) >= rows or length >= chars:
                yield firsts, seconds, self.counts()
                firsts, seconds, length = [], [], 0
        yield firsts, seconds, self.counts()

    def counts(self) -> dict[str, Any]:
        """Return the counts since the last call, as arguments of a batch, and reset them."""
        counts = {"read": self.read, "dropped": self.dropped, "noted": +self.noted, "examples": self.examples}
        Batch.__init__(self, read=0)
        return counts


def read_records(
    path: Path, kind: type[_T], tally: Tally, *, allow_truncated: bool | None = None
) -> Iterator[tuple[int, _T]]:
    """Yield (line number, record) of the lines that are records of ``kind``; drop and count the others.

    Args:
        path: JSON lines, or lists of records (:func:`pipeline.sources.content.read_json`).
        kind: a type that :mod:`msgspec` decodes. Odd values of a struct count as missing (:func:`convert_record`).
        tally: counts ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        allow_truncated: keep the complete lines of a truncated gzip file.

    Raises:
        InputError: the file is of another kind.
        CorruptError: the file is truncated or damaged.
    """
    decode = msgspec.json.Decoder(kind).decode
    for line_number, line in read_json(path, allow_truncated=allow_truncated):
        if line is None:
            tally.drop("line_too_long", line_number)
            continue
        try:
            record = decode(line)
        except UnicodeDecodeError:
            tally.drop("bad_utf8", line_number, line)
            continue
        except (msgspec.DecodeError, RecursionError):
            try:
                record = convert_record(_lenient_json(line), kind, tally, line_number)
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", line_number, str(error))
                continue
            except (ValueError, RecursionError):
                tally.drop("bad_json", line_number, line)
                continue
        yield line_number, record


def _lenient_json(line: bytes) -> Any:
    """Return the value of a JSON line, also with ``NaN``, commas around it, or lone surrogates (as U+FFFD)."""
    value = json.loads(line.strip(b" \t\r,"))
    if b"\\ud" in line or b"\\uD" in line:
        text = json.dumps(value, ensure_ascii=False)
        value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def convert_record(values: Any, kind: type[_T], tally: Tally, line: int) -> _T:
    """Return a record of ``kind`` from plain values; only the first field of a struct, which identifies it, is strict.

    In the other fields, null and NaN are missing. Numbers in texts, texts of numbers and lists of one text are
    converted. What cannot be read is missing and counted in ``tally``; a list loses its odd items alone.

    Raises:
        msgspec.ValidationError: ``values`` is not a mapping, or its first field cannot be read.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        if not isinstance(values, Mapping) or not hasattr(kind, "__struct_fields__"):
            raise
    record: _T = _convert_fields(values, kind, functools.partial(tally.odd, line=line), _refuse)
    return record


def _convert_fields(values: Mapping[str, Any], kind: Any, odd: _Odd, odd_first: _Odd) -> Any:
    found = {}
    for position, field in enumerate(msgspec.structs.fields(kind)):
        value, name = values.get(field.encode_name), field.encode_name
        if not _is_missing(value):
            found[name] = _convert_value(value, field.type, name, odd if position else odd_first)
    return msgspec.convert({name: value for name, value in found.items() if value is not None}, kind, strict=False)


def _refuse(reason: str, value: Any) -> None:
    raise msgspec.ValidationError(f"{reason}: {value!r:.60}")


def _convert_value(value: Any, kind: Any, name: str, odd: _Odd) -> Any:
    """Return a value that converts to ``kind``; None, and a call of ``odd``, if there is none."""
    if isinstance(value, bytes):  # Parquet without a logical type
        try:
            value = value.decode()
        except UnicodeDecodeError:
            odd(f"{name} not UTF-8", value)
            return None
    if name.endswith("year"):
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if (year := year_of(value)) is None and value != "":
            odd(f"{name} not a year", value)
        return year
    kinds = (kind,) if get_origin(kind) in _LISTS else get_args(kind) or (kind,)
    try:
        msgspec.convert(value, kind, strict=False)
        return value
    except msgspec.ValidationError as error:
        expected = "str" if str in kinds else re.sub(r"\W.*", "", str(error).partition("`")[2])
        reason = f"{name} not {_WORDS.get(expected, 'of its type')}"
    items = next((get_args(member)[0] for member in kinds if get_origin(member) in _LISTS), None)
    struct = next((member for member in kinds if hasattr(member, "__struct_fields__")), None)
    if isinstance(value, list) and items:
        converted = (_convert_value(item, items, name, odd) for item in value if not _is_missing(item, odd, name))
        return [item for item in converted if item is not None]
    if isinstance(value, Mapping) and struct:
        return _convert_fields(value, struct, odd, odd)
    if isinstance(value, list) and len(value) == 1 and odd is not _refuse:
        return None if _is_missing(value[0]) else _convert_value(value[0], kind, name, odd)
    if str in kinds and _is_whole(value):
        return str(int(value))
    if value not in ("", []):
        odd(reason, value)
    return None


def _is_missing(value: Any, odd: _Odd | None = None, name: str = "") -> bool:
    """Return whether a value is null or NaN; ``odd`` counts those that are items of a list."""
    is_missing = value is None or (isinstance(value, float) and value != value)
    if is_missing and odd:
        odd(f"null in {name}", value)
    return is_missing


def plain_id(value: Any) -> str:
    """Return an id as text, without white space around it; a whole number that was written as 3.0 as 3."""
    text = str("" if value is None else value).strip()
    return text[:-2] if _FLOAT.fullmatch(text) else text


def split_ids(values: list[Any] | str | int | None, separator: re.Pattern[str] = _SEPARATOR) -> list[str]:
    """Return the texts of a list, of a list written as text, or between separators, without empty ones."""
    if isinstance(values, str):
        if written := _LIST.fullmatch(values.strip()):
            items = _ITEM.findall(written[1])
            values = [quoted or double or bare for quoted, double, bare in items if bare not in _NULLS]
        else:
            values = separator.split(values)
    values = values if isinstance(values, list) else [values]
    return [text for value in values if (text := plain_id(value))]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and value % 1 == 0


def year_of(value: Any) -> int | None:
    """Return the year of a whole number, a date, or a text with a number of four digits; None if there is none."""
    if isinstance(value, datetime.date):
        return value.year
    if _is_whole(value):
        return int(value)
    found = _YEAR.search(value) if isinstance(value, str) else None
    return int(found[0]) if found else None


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; InputError if it is something else that is known, CorruptError if it is damaged."""
    try:
        return pq.ParquetFile(given(path), memory_map=True)
    except (pa.ArrowException, OSError) as error:
        if path.is_file():
            refuse_as_parquet(path)
        raise CorruptError(f"{path} cannot be read as Parquet ({error})", "Fetch it again") from error


def read_rows(path: Path, kind: type[_Struct], tally: Tally, *, required: str) -> Iterator[tuple[int, _Struct]]:
    """Yield (row number from 1, record) of the rows of a Parquet file that convert to ``kind``; drop the others.

    Only the columns that are fields of ``kind`` are read. InputError if the ``required`` column is missing.
    """
    names = open_parquet(path).schema_arrow.names
    require_known(required, names, f"{path} has no column {required!r}")
    columns = [field.name for field in msgspec.structs.fields(kind) if field.name in names]
    return converted(read_columns(path, columns, tally), kind, tally)


def converted(rows: Iterable[tuple[int, Any]], kind: type[_T], tally: Tally) -> Iterator[tuple[int, _T]]:
    """Yield (line number, record) of the rows that convert to ``kind`` (:func:`convert_record`); drop the others."""
    for row_number, row in rows:
        try:
            record = convert_record(row, kind, tally, row_number)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", row_number, str(error))
        else:
            yield row_number, record


def read_columns(path: Path, columns: list[str], tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row number from 1, values by column) of the rows that convert to Python objects; drop the others."""
    row_number = 0
    try:
        file = open_parquet(path)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        average = sum(group.total_byte_size for group in groups) // max(file.metadata.num_rows, 1)
        rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(average, 1)))
        for batch in file.iter_batches(rows, columns=columns):
            yield from enumerate(_rows(batch, row_number + 1, tally), row_number + 1)
            row_number += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path} is damaged after row {row_number} ({error})", "Fetch it again") from error


def _rows(batch: pa.RecordBatch, first: int, tally: Tally) -> list[dict[str, Any]]:
    """Return the rows of a batch, the number of the first of which is ``first``."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):  # bad UTF-8, or a date after the year 9999
        columns = list(zip(batch.schema.names, batch.columns, strict=True))
        rows = [
            {name: _cell(column[row], name, tally, first + row) for name, column in columns}
            for row in range(len(batch))
        ]
    return rows


def _cell(cell: pa.Scalar, name: str, tally: Tally, row_number: int) -> Any:
    """Return a value; one that Python cannot hold is missing."""
    try:
        return cell.as_py()
    except (ValueError, OverflowError) as error:
        expected = "UTF-8" if isinstance(error, UnicodeDecodeError) else "of its type"
        tally.odd(f"{name} not {expected}", str(error), row_number)
