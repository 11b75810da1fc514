"""S2ORC 2020-07-05: ``metadata_*.jsonl.gz`` (Lo et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pipeline.sources.base import Batch, QuerySet, find_files, fingerprint
from pipeline.sources.decode import decode_line
from pipeline.sources.lines import read_lines
from pipeline.sources.rows import Kept, RowBuffer, Rows

_PATTERNS = ("metadata_*.jsonl.gz", "metadata_*.jsonl", "metadata/metadata_*.jsonl.gz", "metadata/metadata_*.jsonl")

LARGE = 16 * 2**20
"""Bytes of a release from which on it is read by compiled code; a smaller one is read before that is loaded."""


class Record(msgspec.Struct):
    """What is read of a metadata record; its other keys (authors, identifiers, venues) are passed over."""

    paper_id: str
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    mag_field_of_study: list[str] | None = None
    outbound_citations: list[str] | None = None
    inbound_citations: list[str] | None = None
    doi: str | None = None


@dataclass(frozen=True)
class S2orc2020:
    """A folder of S2ORC metadata shards.

    Attributes:
        folder: where ``metadata_*.jsonl.gz`` (or plain ``.jsonl``) lie.
        allow_truncated: keep the whole lines of a gzip file that breaks off, instead of refusing it.
    """

    folder: Path
    allow_truncated: bool = False
    source: str = field(default="s2orc2020", init=False)

    def _files(self) -> list[Path]:
        return find_files(self.folder, _PATTERNS, "S2ORC metadata")

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings."""
        return {"files": fingerprint(self._files(), self.folder), "allow_truncated": self.allow_truncated}

    def parts(self) -> Sequence[str]:
        """Return the shards, by path below the folder."""
        return [path.relative_to(self.folder).as_posix() for path in self._files()]

    def queries(self) -> QuerySet | None:
        """S2ORC brings no queries."""
        return None

    def read(self, part: str) -> Iterator[Batch]:
        """Yield the papers of one shard.

        Raises:
            CorruptError: the file breaks off, or is damaged.
        """
        path = self.folder / part
        decode = msgspec.json.Decoder(Record).decode
        if self._is_large():
            from pipeline.sources.scanned import read_scanned

            def slow(rows: Rows, line: bytes, number: int) -> None:
                _add(decode, rows, line, number)

            yield from read_scanned(path, slow, allow_truncated=self.allow_truncated)
            return
        rows = RowBuffer(path)
        for number, line in read_lines(path, allow_truncated=self.allow_truncated):
            if line is None:
                rows.drop("line_too_long", number)
                continue
            _add(decode, rows, line, number)
            if rows.full:
                yield rows.flush()
        yield rows.flush()

    def _is_large(self) -> bool:
        """Whether compiled reading is worth its start: about a second a process."""
        return sum(path.stat().st_size for path in self._files()) > LARGE


def _add(decode: Callable[[bytes], Record], rows: Rows, line: bytes, number: int) -> None:
    record = decode_line(line, decode, rows, number)
    if record is None:
        return
    if not record.paper_id:
        rows.drop("no_paper_id", number, line)
        return
    rows.add(
        Kept(
            record.paper_id,
            record.title,
            record.abstract,
            record.year,
            record.mag_field_of_study or (),
            record.outbound_citations or (),
            record.inbound_citations or (),
            record.doi,
        )
    )
