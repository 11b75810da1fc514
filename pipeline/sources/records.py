"""Typed records from JSON lines and Parquet, and the counts of those that cannot be read, each by its reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import CorruptError, InputError, nearest
from pipeline.sources.base import MAX_TEXT, Batch
from pipeline.sources.lines import read_lines

EXAMPLES = 3
"""Bad records shown of each reason in each part."""

_ROWS, _ROWS_BYTES = 64, 2**24
"""Rows of a Parquet file, and about their bytes, that are held as Python objects at a time."""

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Tally(Batch):
    """Counts the records of a file, which examples of bad records name; longer texts than ``max_text`` are cut."""

    def __init__(self, path: Path, max_text: int = MAX_TEXT) -> None:
        super().__init__(read=0)
        self._path, self._max_text = path, max_text
        self._shown: Counter[str] = Counter()

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count one record that is not kept, and show the first few of each reason."""
        self.pass_over(reason)
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def cut(self, text: str | None) -> str | None:
        """Return the text, cut at the length that is kept; cut texts are counted."""
        if text is None or len(text) <= self._max_text:
            return text
        self.noted["text_cut"] += 1
        return text[: self._max_text]

    def pass_over(self, reason: str) -> None:
        """Count one record that is dropped for a reason that is usual in the release; no example is shown."""
        self.read += 1
        self.dropped[reason] += 1

    def counts(self) -> dict[str, Any]:
        """Return what was counted since the last call, as arguments of a batch, and start anew."""
        counts = {"read": self.read, "dropped": self.dropped, "noted": +self.noted, "examples": self.examples}
        Batch.__init__(self, read=0)
        return counts


def read_records(
    path: Path, kind: type[_T], tally: Tally, *, allow_truncated: bool = False
) -> Iterator[tuple[int, _T]]:
    """Yield (line number, record) of each line that decodes as ``kind``; the others are dropped.

    Args:
        path: JSON lines, plain or gzip.
        kind: a type that :mod:`msgspec` decodes.
        tally: counts ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        allow_truncated: keep the whole lines of a truncated gzip file.

    Raises:
        CorruptError: the file is truncated or damaged.
    """
    decode = msgspec.json.Decoder(kind).decode
    for number, line in read_lines(path, allow_truncated=allow_truncated):
        if line is None:
            tally.drop("line_too_long", number)
            continue
        try:
            record = decode(line)
        except UnicodeDecodeError:
            tally.drop("bad_utf8", number, line)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", number, str(error))
        except (msgspec.DecodeError, RecursionError):
            try:
                record = decode(_replace_surrogates(line))
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", number, str(error))
            except (ValueError, RecursionError):
                tally.drop("bad_json", number, line)
            else:
                yield number, record
        else:
            yield number, record


def _replace_surrogates(line: bytes) -> bytes:
    """Return a JSON line with lone surrogates replaced by U+FFFD; ValueError if it is not JSON."""
    text = json.dumps(json.loads(line, parse_constant=_not_json), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; CorruptError where it is none, or truncated."""
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet ({error})", "Fetch it again") from error


def read_rows(path: Path, kind: type[_Struct], tally: Tally, *, needed: str) -> Iterator[tuple[int, _Struct]]:
    """Yield (row number from 1, record) of each row of a Parquet file that converts to ``kind``; others are dropped.

    Args:
        path: the file; columns that ``kind`` does not name are not read.
        kind: a :class:`msgspec.Struct` whose fields are columns.
        tally: counts ``wrong_type`` and ``bad_utf8``.
        needed: a column that has to be there.

    Raises:
        CorruptError: it is not a Parquet file, or is damaged.
        InputError: the needed column is not there.
    """
    there = open_parquet(path).schema_arrow.names
    if needed not in there:
        raise InputError(f"{path} has no column {needed!r}", nearest(needed, there))
    columns = [field.name for field in msgspec.structs.fields(kind) if field.name in there]
    for number, row in read_columns(path, columns, tally):
        try:
            record = msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", number, str(error))
            continue
        yield number, record


def read_columns(path: Path, columns: list[str], tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row number from 1, values by column) of each row; rows with values that Python cannot hold are dropped.

    Raises:
        CorruptError: it is not a Parquet file, or is damaged.
    """
    number = 0
    try:
        file = open_parquet(path)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        average = sum(group.total_byte_size for group in groups) // max(file.metadata.num_rows, 1)
        rows = min(_ROWS, max(1, _ROWS_BYTES // max(average, 1)))
        for batch in file.iter_batches(rows, columns=columns):
            yield from _rows(batch, number, tally)
            number += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path} is damaged after row {number} ({error})", "Fetch it again") from error


def _rows(batch: pa.RecordBatch, before: int, tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a batch, numbered from ``before + 1``."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:  # bad UTF-8, or a date after the year 9999
        if len(batch) > 1:
            for place in range(len(batch)):
                yield from _rows(batch.slice(place, 1), before + place, tally)
        else:
            reason = "bad_utf8" if isinstance(error, UnicodeDecodeError) else "wrong_type"
            tally.drop(reason, before + 1, str(error))
        return
    yield from enumerate(rows, before + 1)
