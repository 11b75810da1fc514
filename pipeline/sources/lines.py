"""Lines of plain and gzip files, in bounded memory, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.core.errors import CorruptError

_READ = 2**20
_BLOCK = 4 * 2**20
MAX_LINE = 32 * 2**20
"""Bytes of the longest line that is read; a longer one comes back as None."""


def read_lines(path: Path, *, allow_truncated: bool = False) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of each line; None for a line over :data:`MAX_LINE`.

    Blank lines are passed over. With ``allow_truncated`` a compressed file that breaks off gives its whole lines.

    Raises:
        CorruptError: the file breaks off, or is damaged.
    """
    number = 0
    rest: list[bytes] = []
    held = 0
    for block in read_blocks(path, allow_truncated=allow_truncated):
        head, *lines = block.split(b"\n")
        if held <= MAX_LINE:
            rest.append(head)
        held += len(head)
        if not lines:
            continue
        number += 1
        yield from _line(number, b"".join(rest) if held <= MAX_LINE else None)
        for line in lines[:-1]:
            number += 1
            yield from _line(number, line if len(line) <= MAX_LINE else None)
        rest, held = [lines[-1]], len(lines[-1])
    if held:
        yield from _line(number + 1, b"".join(rest) if held <= MAX_LINE else None)


def _line(number: int, line: bytes | None) -> Iterator[tuple[int, bytes | None]]:
    if line is None or line.strip():
        yield number, line


def read_blocks(path: Path, *, allow_truncated: bool = False) -> Iterator[bytes]:
    """Yield the content of a file in blocks of at most 4 MiB, decompressing ``.gz``, whose members may be many.

    Raises:
        CorruptError: the file breaks off, or is damaged.
    """
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
