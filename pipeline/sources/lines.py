"""Lines of plain and gzip files, in bounded memory, with their numbers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pipeline.core.errors import CorruptError

_READ = 4 * 2**20
MAX_LINE = 32 * 2**20
"""Bytes of the longest line that is read; a longer one comes back as None."""


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressing ``.gz`` (members may be concatenated)."""
    if path.suffix == ".gz":
        from isal import igzip

        opened: IO[bytes] = igzip.open(path, "rb")
        return opened
    return path.open("rb")


def read_lines(path: Path, *, allow_truncated: bool = False) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of each line; None for a line over :data:`MAX_LINE`.

    Blank lines are passed over. With ``allow_truncated`` a compressed file that breaks off gives its whole lines.

    Raises:
        CorruptError: the file breaks off, or is damaged.
    """
    number = 0
    rest: list[bytes] = []
    held = 0
    with open_bytes(path) as handle:
        while block := _read(handle, path, allow_truncated):
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


def _read(handle: Any, path: Path, allow_truncated: bool) -> bytes:
    try:
        block: bytes = handle.read(_READ)
        return block
    except EOFError as error:
        if allow_truncated:
            return b""
        raise CorruptError(
            f"{path} breaks off: it is a truncated gzip file",
            "Fetch it again, or keep what is readable of it with --allow-truncated",
        ) from error
    except (OSError, zlib.error) as error:
        raise CorruptError(f"{path} is damaged ({error})", "Fetch it again") from error
