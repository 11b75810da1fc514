"""S2ORC 2020-07-05: ``metadata_*.jsonl.gz`` (Lo et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pipeline.sources.base import Limits, PaperBatch, find_files, fingerprint
from pipeline.sources.papers import Paper, PaperBuffer
from pipeline.sources.records import Tally, read_records

_PATTERNS = ("metadata_*.jsonl.gz", "metadata_*.jsonl", "metadata/metadata_*.jsonl.gz", "metadata/metadata_*.jsonl")


class Record(Paper):
    """What is read of a metadata record; its other keys (authors, identifiers, venues) are skipped."""

    id: str = msgspec.field(name="paper_id")
    fields: list[str] | None = msgspec.field(name="mag_field_of_study", default=None)
    outbound: list[str] | None = msgspec.field(name="outbound_citations", default=None)
    inbound: set[str] | None = msgspec.field(name="inbound_citations", default=None)


@dataclass(frozen=True)
class S2orc2020(Limits):
    """A folder of S2ORC metadata shards.

    Attributes:
        folder: where ``metadata_*.jsonl.gz`` (or plain ``.jsonl``) are.
        allow_truncated: keep the whole lines of a truncated gzip file instead of refusing it.
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

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one shard.

        Raises:
            CorruptError: the file is truncated or damaged.
        """
        buffer = PaperBuffer(self.folder / part, self.max_text)
        return buffer.batches(self._papers(self.folder / part, buffer))

    def _papers(self, path: Path, tally: Tally) -> Iterator[Record]:
        for number, record in read_records(path, Record, tally, allow_truncated=self.allow_truncated):
            if record.id:
                yield record
            else:
                tally.drop("no_paper_id", number)
