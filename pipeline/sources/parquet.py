"""Typed records from Parquet files, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import CorruptError, InputError, nearest
from pipeline.sources.records import Tally

_ROWS = 64
"""Rows that are held as Python objects at a time."""
_ROWS_BYTES = 2**24
"""Bytes of so many rows, about, by the average of the file."""
_T = TypeVar("_T", bound=msgspec.Struct)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises:
        CorruptError: it is not a Parquet file, or is truncated.
    """
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet ({error})", "Fetch it again") from error


def read_rows(path: Path, kind: type[_T], tally: Tally, *, needed: str) -> Iterator[tuple[int, _T]]:
    """Yield (row number from 1, record) of each row that converts to ``kind``; others are dropped.

    Args:
        path: the file; columns that ``kind`` does not name are not read.
        kind: a struct whose fields are columns.
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
