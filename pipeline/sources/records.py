"""Read typed records of JSON and Parquet, and count unreadable records by reason."""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.files import given
from pipeline.core.markup import plain_text
from pipeline.sources.base import Batch
from pipeline.sources.content import read_json, refuse_as_parquet
from pipeline.sources.options import Options

EXAMPLES = 3
"""Maximum number of example records by reason and part."""

_BATCH_ROWS, _BATCH_BYTES = 64, 2**24
"""Maximum number of Parquet rows, and their approximate bytes, that are Python objects at a time."""

UNREADABLE = ("bad_bibtex", "bad_columns", "bad_json", "bad_utf8", "line_too_long", "no_paper_id", "wrong_type")
"""Reasons for dropping a record that are defects of the input, not rules of a release."""

_YEAR = re.compile(r"(?<![0-9_])[0-9]{4}(?![0-9_])", re.ASCII)
_WORD = re.compile(r"[^\s,;|]+")
_WORDS = {"str": "a text", "int": "a number", "float": "a number", "bool": "true or false", "array": "a list"}
"""What a value has to be, in words, by its type in messages of :mod:`msgspec`."""

_LISTS = (list, set)

_DEFAULTS = Options()

_fields = functools.cache(msgspec.structs.fields)
_Odd = Callable[[str, Any], None]

_T = TypeVar("_T")


class Tally(Batch):
    """A file while it is read: its options, the line of the present record, counts and examples of bad records.

    Readers set ``line``, a line or row from 1, before they yield a record. ``withdrawn`` are ids of dropped papers
    whose earlier records are dropped too.
    """

    says_dialect = True
    """Whether what is guessed of a table is printed."""

    def __init__(self, path: Path, options: Options = _DEFAULTS) -> None:
        super().__init__(read=0)
        self.path, self.options, self.line = path, options, 0
        self.withdrawn: list[str] = []
        self._is_plain = options.markup == "strip"
        self._shown: Counter[str] = Counter()

    def drop(self, reason: str, excerpt: bytes | str = b"") -> None:
        """Count a dropped record; the first :data:`EXAMPLES` of a reason become examples."""
        self.drop_expected(reason)
        self.show(reason, excerpt)

    def odd(self, reason: str, value: Any) -> None:
        """Count a value that counts as missing; the first :data:`EXAMPLES` of a reason become examples."""
        self.noted[reason] += 1
        self.show(reason, f"{value!r:.80}")

    def show(self, reason: str, excerpt: bytes | str) -> None:
        """Keep an excerpt as an example, of the first :data:`EXAMPLES` of a reason."""
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self.path.name}:{self.line}: {text}")

    def cut(self, text: str | None) -> str | None:
        """Return the text, without markup if it is stripped, cut at the maximum length; count cut texts."""
        text = plain_text(text) if text and self._is_plain else text
        if text is None or len(text) <= self.options.max_text:
            return text
        self.noted["text_cut"] += 1
        return text[: self.options.max_text]

    def drop_expected(self, reason: str) -> None:
        """Count a record dropped for a reason that is usual in the release, without an example."""
        self.read += 1
        self.dropped[reason] += 1

    def counts(self) -> dict[str, Any]:
        """Return the counts since the last call, as arguments of a batch, and reset them."""
        counts = {"read": self.read, "dropped": self.dropped, "noted": +self.noted, "examples": self.examples}
        Batch.__init__(self, read=0)
        return counts


class StrictTally(Tally):
    """Raises InputError for a bad record of a benchmark, which needs all of them; ``kind`` is what a record is."""

    says_dialect = False

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(path)
        self._kind = kind

    def drop(self, reason: str, excerpt: bytes | str = b"") -> None:
        """Refuse a record."""
        raise InputError(
            f"{self.path}:{self.line} is not a {self._kind} ({reason}: {excerpt!r:.60})",
            "Correct it, or fetch it again",
        )

    def odd(self, reason: str, value: Any) -> None:
        """Refuse a value."""
        self.drop(reason, f"{value!r}")


def read_records(kind: type[_T], tally: Tally) -> Iterator[_T]:
    """Yield the records of a file (:func:`pipeline.sources.content.read_json`); drop and count what is none.

    ``kind`` is a type that :mod:`msgspec` decodes; odd values of a struct count as missing (:func:`convert_record`).
    Reasons are ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.

    Raises:
        InputError: the file is of another kind.
        CorruptError: the file is truncated or damaged.
    """
    decode = msgspec.json.Decoder(kind).decode
    lines = read_json(tally.path)
    for tally.line, line in lines:
        if line is None:
            tally.drop("line_too_long")
            continue
        try:
            record = decode(line)
        except UnicodeDecodeError:
            tally.drop("bad_utf8", line)
            continue
        except (msgspec.DecodeError, RecursionError):
            try:
                record = convert_record(_lenient_json(line), kind, tally)
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", str(error))
                continue
            except (ValueError, RecursionError):
                tally.drop("bad_json", line)
                continue
        yield record


def _lenient_json(line: bytes) -> Any:
    """Return the value of a JSON line, also with ``NaN``, commas around it, or lone surrogates (as U+FFFD)."""
    value = json.loads(line.strip(b" \t\r,"))
    if b"\\ud" in line or b"\\uD" in line:
        text = json.dumps(value, ensure_ascii=False)
        value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def convert_record(values: Any, kind: type[_T], tally: Tally) -> _T:
    """Return a record of ``kind`` from plain values; only the first field of a struct, which identifies it, is strict.

    In the other fields, null and NaN are missing. Numbers in texts, texts of numbers and lists of one text are
    converted, for the first field too. What cannot be read is missing and counted in ``tally``; a list loses its odd
    items alone.

    Raises:
        msgspec.ValidationError: ``values`` is not a mapping, or its first field cannot be read.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        if not isinstance(values, Mapping) or not hasattr(kind, "__struct_fields__"):
            raise
    record: _T = _convert_fields(values, kind, tally.odd, _refuse)
    return record


def _convert_fields(values: Mapping[str, Any], kind: Any, odd: _Odd, odd_first: _Odd) -> Any:
    found = {}
    for position, field in enumerate(_fields(kind)):
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
        while isinstance(value, list) and value:
            value = value[0]  # Crossref's and CSL's date-parts: year, month, day
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
    if isinstance(value, list) and len(value) == 1:  # R writes each value as a list
        return None if _is_missing(value[0]) else _convert_value(value[0], kind, name, odd)
    if isinstance(value, str) and items is str and _WORD.fullmatch(value):  # and a list of one as its item
        return [value]
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


def numbered(rows: Iterable[_T], tally: Tally) -> Iterator[_T]:
    """Yield rows; their number, from 1, is the line of the tally."""
    for tally.line, row in enumerate(rows, 1):
        yield row


def converted(rows: Iterable[Any], kind: type[_T], tally: Tally) -> Iterator[_T]:
    """Yield the rows that convert to ``kind`` (:func:`convert_record`); drop the others."""
    for row in rows:
        try:
            record = convert_record(row, kind, tally)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", str(error))
        else:
            yield record


def read_columns(columns: list[str], tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file as values by column; a value that Python cannot hold is missing."""
    try:
        file = open_parquet(tally.path)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        average = sum(group.total_byte_size for group in groups) // max(file.metadata.num_rows, 1)
        rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(average, 1)))
        for batch in file.iter_batches(rows, columns=columns):
            yield from _rows(batch, tally)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{tally.path} is damaged after row {tally.line} ({error})", "Fetch it again") from error


def _rows(batch: pa.RecordBatch, tally: Tally) -> Iterator[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with suppress(ValueError, OverflowError):  # bad UTF-8, or a date after the year 9999
        rows = batch.to_pylist()
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    for number in range(len(batch)):
        tally.line += 1
        yield rows[number] if rows else {name: _cell(column[number], name, tally) for name, column in columns}


def _cell(cell: pa.Scalar, name: str, tally: Tally) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError) as error:
        expected = "UTF-8" if isinstance(error, UnicodeDecodeError) else "of its type"
        tally.odd(f"{name} not {expected}", str(error))
