"""Typed records from JSON lines, for every source but the fastest path: each bad line is dropped by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.sources.base import EXAMPLES
from pipeline.sources.decode import Drops, decode_line
from pipeline.sources.lines import read_line_blocks, read_lines

_T = TypeVar("_T")


def read_records(
    path: Path, kind: type[_T], drops: Drops, *, allow_truncated: bool = False
) -> Iterator[tuple[int, bytes, _T]]:
    """Yield (line number, line, record) of each line that decodes as ``kind``; the others go to ``drops``.

    Args:
        path: JSON lines, plain or gzip.
        kind: a :class:`msgspec.Struct`, or what else :mod:`msgspec` decodes.
        drops: counts ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        allow_truncated: keep the whole lines of a gzip file that breaks off.

    Raises:
        CorruptError: the file breaks off, or is damaged.
    """
    decoder = msgspec.json.Decoder(kind)
    for number, line in read_lines(path, allow_truncated=allow_truncated):
        if line is None:
            drops.drop("line_too_long", number)
        elif (record := decode_line(line, decoder.decode, drops, number)) is not None:
            yield number, line, record


def read_record_blocks(
    path: Path, kind: type[_T], drops: Drops, *, allow_truncated: bool = False
) -> Iterator[list[_T]]:
    """Yield the records of :func:`read_records` many at a time, which is three times as fast for short ones."""
    decoder = msgspec.json.Decoder(kind)
    number = 1
    for block in read_line_blocks(path, allow_truncated=allow_truncated):
        if block is None:
            drops.drop("line_too_long", number)
            number += 1
            continue
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        try:
            records = decoder.decode_lines(block)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            records = []
        if len(records) != lines:  # a bad line, a blank one, or a line with more than one value: one after the other
            numbered = enumerate(block.split(b"\n"), number)
            found = (decode_line(line, decoder.decode, drops, at) for at, line in numbered if line.strip())
            records = [record for record in found if record is not None]
        number += lines
        yield records


class Tally:
    """Counts the records of a table that holds no papers.

    Args:
        path: the file they come from, named in examples of bad records.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown: Counter[str] = Counter()
        self.clear()

    def clear(self) -> None:
        """Start counting anew; examples of a reason stay shown."""
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.examples: list[str] = []

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count one record that is not kept, and keep the first few of each reason to be shown."""
        self.read += 1
        self.dropped[reason] += 1
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def pass_over(self, reason: str, count: int = 1) -> None:
        """Count records that are not kept for a reason that is usual in the release, and needs no example."""
        if count:
            self.read += count
            self.dropped[reason] += count

    def counts(self) -> dict[str, Any]:
        """Return what was counted since the last call, as arguments of a table batch, and start anew."""
        found = {"read": self.read, "dropped": self.dropped, "examples": self.examples}
        self.clear()
        return found
