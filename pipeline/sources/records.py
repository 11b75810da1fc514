"""Read lines, and typed records of JSON lines and Parquet; count unreadable records by reason."""

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

_READ_BYTES = 2**16
_BLOCK_BYTES = 2**17  # fits in the cache of a core with the records decoded from it
MAX_LINE = 32 * 2**20
"""Maximum length of a line in bytes; a longer line is None."""
MAX_VALUES = 1_000_000
"""Maximum number of commas and opening brackets of a line: about its values, which take up to 100 bytes each."""

EXAMPLES = 3
"""Maximum number of example records by reason and part."""

_BATCH_ROWS, _BATCH_BYTES = 64, 2**24
"""Maximum number of Parquet rows, and their approximate bytes, that are Python objects at a time."""

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def read_lines(path: Path, *, allow_truncated: bool | None = None) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of the lines that are not blank, without a byte order mark.

    A line over :data:`MAX_LINE` or :data:`MAX_VALUES` is None. With ``allow_truncated`` the complete lines of a
    truncated gzip file are read; otherwise CorruptError, which names the option unless it is None. So for a damaged
    file.
    """
    line_number = 0
    for block in _line_blocks(path, allow_truncated):
        if block is None:
            line_number += 1
            yield line_number, None
            continue
        for line in block.removesuffix(b"\n").split(b"\n"):
            line_number += 1
            if line_number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line and not line.isspace():
                yield line_number, line


def _line_blocks(path: Path, allow_truncated: bool | None) -> Iterator[bytes | None]:
    """Yield blocks of complete lines; None for a line over :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    pending: list[bytes] = []  # start of a line whose end is not read yet; dropped once it is too long
    length = 0
    for block in read_blocks(path, allow_truncated=allow_truncated):
        first_end, last_end = block.find(b"\n"), block.rfind(b"\n") + 1
        if not last_end:
            if length <= MAX_LINE:
                pending.append(block)
            length += len(block)
            continue
        if _too_long(length + first_end, (*pending, block[:first_end])):
            yield None
            if first_end + 1 < last_end:
                yield block[first_end + 1 : last_end]
        else:
            yield b"".join((*pending, memoryview(block)[:last_end]))
        pending, length = [block[last_end:]], len(block) - last_end
    if length:
        yield None if _too_long(length, pending) else b"".join(pending)


def _too_long(length: int, pieces: Sequence[bytes]) -> bool:
    """Return whether a line exceeds :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    if length <= MAX_VALUES or length > MAX_LINE:
        return length > MAX_LINE
    return sum(piece.count(mark) for piece in pieces for mark in (b",", b"[", b"{")) > MAX_VALUES


def read_blocks(path: Path, *, allow_truncated: bool | None = None) -> Iterator[bytes]:
    """Yield the content of a file in blocks of at most 128 KiB; ``.gz`` files, also of several members, are unpacked.

    EmptyFileError if the file has only zero bytes or none, CorruptError if it is truncated or damaged.
    """
    with path.open("rb") as handle:
        if not handle.read(_BLOCK_BYTES).strip(b"\0"):
            raise EmptyFileError(f"{path} holds no data", "Fetch it again")
    if path.suffix != ".gz":
        with path.open("rb") as handle:
            while block := handle.read(_BLOCK_BYTES):
                yield block
        return
    from isal import isal_zlib

    member = isal_zlib.decompressobj(31)
    inside = False
    try:
        with path.open("rb") as handle:
            while data := handle.read(_READ_BYTES):
                while data:
                    if not inside and not data.strip(b"\0"):  # padding after the last member
                        break
                    inside = True
                    if block := member.decompress(data, _BLOCK_BYTES):
                        yield block
                    data = member.unconsumed_tail
                    if member.eof:
                        data, member, inside = member.unused_data, isal_zlib.decompressobj(31), False
    except isal_zlib.error as error:  # type: ignore[misc]  # an exception class; the stub says otherwise
        raise CorruptError(f"{path} is damaged ({error})", "Fetch it again") from error
    if inside and not allow_truncated:
        raise CorruptError(
            f"{path} is a truncated gzip file",
            "Fetch it again" + (", or keep its readable lines with --allow-truncated" * (allow_truncated is not None)),
        )


class Tally(Batch):
    """Counts the records of a file, keeps examples of bad ones, and cuts texts at ``max_text`` characters."""

    def __init__(self, path: Path, max_text: int = MAX_TEXT) -> None:
        super().__init__(read=0)
        self._path, self._max_text = path, max_text
        self._shown: Counter[str] = Counter()

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count a dropped record; the first :data:`EXAMPLES` of a reason become examples."""
        self.drop_expected(reason)
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def cut(self, text: str | None) -> str | None:
        """Return the text, cut at the maximum length; count cut texts."""
        if text is None or len(text) <= self._max_text:
            return text
        self.noted["text_cut"] += 1
        return text[: self._max_text]

    def drop_expected(self, reason: str) -> None:
        """Count a record dropped for a reason that is usual in the release, without an example."""
        self.read += 1
        self.dropped[reason] += 1

    def counts(self) -> dict[str, Any]:
        """Return the counts since the last call, as arguments of a batch, and reset them."""
        counts = {"read": self.read, "dropped": self.dropped, "noted": +self.noted, "examples": self.examples}
        Batch.__init__(self, read=0)
        return counts


def read_records(
    path: Path, kind: type[_T], tally: Tally, *, allow_truncated: bool | None = None
) -> Iterator[tuple[int, _T]]:
    """Yield (line number, record) of the lines that decode as ``kind``; drop and count the others.

    Args:
        path: JSON lines, plain or gzip.
        kind: a type that :mod:`msgspec` decodes.
        tally: counts ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        allow_truncated: keep the complete lines of a truncated gzip file.

    Raises:
        CorruptError: the file is truncated or damaged.
    """
    decode = msgspec.json.Decoder(kind).decode
    for line_number, line in read_lines(path, allow_truncated=allow_truncated):
        if line is None:
            tally.drop("line_too_long", line_number)
            continue
        try:
            record = decode(line)
        except UnicodeDecodeError:
            tally.drop("bad_utf8", line_number, line)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", line_number, str(error))
        except (msgspec.DecodeError, RecursionError):
            try:
                record = decode(_replace_surrogates(line))
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", line_number, str(error))
            except (ValueError, RecursionError):
                tally.drop("bad_json", line_number, line)
            else:
                yield line_number, record
        else:
            yield line_number, record


def _replace_surrogates(line: bytes) -> bytes:
    """Return a JSON line with lone surrogates replaced by U+FFFD; ValueError if it is not JSON."""
    text = json.dumps(json.loads(line, parse_constant=_not_json), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; CorruptError if it is not Parquet, or truncated."""
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet ({error})", "Fetch it again") from error


def read_rows(path: Path, kind: type[_Struct], tally: Tally, *, required: str) -> Iterator[tuple[int, _Struct]]:
    """Yield (row number from 1, record) of the rows of a Parquet file that convert to ``kind``; drop the others.

    Only the columns that are fields of ``kind`` are read. InputError if the ``required`` column is missing.
    """
    names = open_parquet(path).schema_arrow.names
    if required not in names:
        raise InputError(f"{path} has no column {required!r}", nearest(required, names))
    columns = [field.name for field in msgspec.structs.fields(kind) if field.name in names]
    for row_number, row in read_columns(path, columns, tally):
        try:
            record = msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            tally.drop("wrong_type", row_number, str(error))
            continue
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
            yield from _rows(batch, row_number, tally)
            row_number += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path} is damaged after row {row_number} ({error})", "Fetch it again") from error


def _rows(batch: pa.RecordBatch, rows_before: int, tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a batch, numbered from ``before + 1``."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:  # bad UTF-8, or a date after the year 9999
        if len(batch) > 1:
            for index in range(len(batch)):
                yield from _rows(batch.slice(index, 1), rows_before + index, tally)
        else:
            reason = "bad_utf8" if isinstance(error, UnicodeDecodeError) else "wrong_type"
            tally.drop(reason, rows_before + 1, str(error))
        return
    yield from enumerate(rows, rows_before + 1)
