"""Lines, typed records of JSON lines and of Parquet, and the counts of those that cannot be read, by reason."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import CorruptError, EmptyFileError, InputError, nearest
from pipeline.sources.base import MAX_TEXT, Batch

_READ = 2**16
_BLOCK = 2**17  # fits in the cache of a core with the records decoded from it
MAX_LINE = 32 * 2**20
"""Bytes of the longest line that is read; a longer one comes back as None."""
MAX_VALUES = 1_000_000
"""Commas and opening brackets of the fullest line that is read, about its values; each takes up to 100 bytes."""

EXAMPLES = 3
"""Bad records shown of each reason in each part."""

_ROWS, _ROWS_BYTES = 64, 2**24
"""Rows of a Parquet file, and about their bytes, that are held as Python objects at a time."""

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def read_lines(path: Path, *, allow_truncated: bool = False) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of each line that is not blank; a byte order mark is left out.

    A line over :data:`MAX_LINE` or :data:`MAX_VALUES` comes as None. With ``allow_truncated`` the whole lines of a
    truncated gzip file are read, else a truncated or damaged file raises CorruptError.
    """
    number = 0
    for block in _line_blocks(path, allow_truncated):
        if block is None:
            number += 1
            yield number, None
            continue
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line and not line.isspace():
                yield number, line


def _line_blocks(path: Path, allow_truncated: bool) -> Iterator[bytes | None]:
    """Yield whole lines, many at a time; None for a line over :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    rest: list[bytes] = []  # of a line whose end is not read yet; no longer kept once it is too long
    length = 0
    for block in read_blocks(path, allow_truncated=allow_truncated):
        first, end = block.find(b"\n"), block.rfind(b"\n") + 1
        if not end:
            if length <= MAX_LINE:
                rest.append(block)
            length += len(block)
            continue
        if _too_long(length + first, (*rest, block[:first])):
            yield None
            if first + 1 < end:
                yield block[first + 1 : end]
        else:
            yield b"".join((*rest, memoryview(block)[:end]))
        rest, length = [block[end:]], len(block) - end
    if length:
        yield None if _too_long(length, rest) else b"".join(rest)


def _too_long(length: int, pieces: Sequence[bytes]) -> bool:
    """Return whether a line exceeds :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    if length <= MAX_VALUES or length > MAX_LINE:
        return length > MAX_LINE
    return sum(piece.count(mark) for piece in pieces for mark in (b",", b"[", b"{")) > MAX_VALUES


def read_blocks(path: Path, *, allow_truncated: bool = False) -> Iterator[bytes]:
    """Yield the content of a file in blocks of at most 128 KiB, decompressing ``.gz``, whose members may be many.

    EmptyFileError if it holds no byte but zeros, CorruptError if it is truncated or damaged.
    """
    with path.open("rb") as handle:
        if not handle.read(_BLOCK).strip(b"\0"):
            raise EmptyFileError(f"{path} holds no data", "Fetch it again; mdcr corpus --allow-empty accepts it")
    if path.suffix != ".gz":
        with path.open("rb") as handle:
            while block := handle.read(_BLOCK):
                yield block
        return
    from isal import isal_zlib

    member = isal_zlib.decompressobj(31)
    inside = False
    try:
        with path.open("rb") as handle:
            while data := handle.read(_READ):
                while data:
                    if not inside and not data.strip(b"\0"):  # padding after the last member
                        break
                    inside = True
                    if block := member.decompress(data, _BLOCK):
                        yield block
                    data = member.unconsumed_tail
                    if member.eof:
                        data, member, inside = member.unused_data, isal_zlib.decompressobj(31), False
    except isal_zlib.error as error:  # type: ignore[misc]  # an exception class; the stub says otherwise
        raise CorruptError(f"{path} is damaged ({error})", "Fetch it again") from error
    if inside and not allow_truncated:
        raise CorruptError(
            f"{path} breaks off: it is a truncated gzip file",
            "Fetch it again, or keep what is readable of it with --allow-truncated",
        )


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

    Columns that are no fields of ``kind`` are not read. InputError if the ``needed`` column is not there.
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
    """Yield (row number from 1, values by column) of each row that Python can hold; the others are dropped."""
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
