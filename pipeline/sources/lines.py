"""Lines of plain and gzip files, in bounded memory, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.core.errors import CorruptError, EmptyFileError

_READ = 2**16
_BLOCK = 2**17  # fits in the cache of a core with the records decoded from it
MAX_LINE = 32 * 2**20
"""Bytes of the longest line that is read; a longer one comes back as None."""
MAX_VALUES = 1_000_000
"""Commas and opening brackets of the fullest line that is read, about its values; each takes up to 100 bytes."""


def read_lines(path: Path, *, allow_truncated: bool = False) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of each line.

    A line over :data:`MAX_LINE` or :data:`MAX_VALUES` comes as None. Blank lines are skipped. With ``allow_truncated``
    the whole lines of a truncated gzip file are read.

    Raises:
        CorruptError: the file is truncated or damaged.
    """
    number = 0
    for block in _line_blocks(path, allow_truncated):
        if block is None:
            number += 1
            yield number, None
            continue
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
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

    Raises:
        EmptyFileError: the file holds no byte but zeros.
        CorruptError: the file is truncated or damaged.
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
