"""S2ORC 2020-07-05: ``metadata_*.jsonl.gz`` (Lo et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from pipeline.sources.authors import Authored
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, read_records


class Record(Paper):
    """The keys of a metadata record that are read."""

    id: str = msgspec.field(name="paper_id", default="")
    fields: list[str] | None = msgspec.field(name="mag_field_of_study", default=None)
    outbound: list[str] | None = msgspec.field(name="outbound_citations", default=None)
    inbound: set[str] | None = msgspec.field(name="inbound_citations", default=None)


class _Name(msgspec.Struct):
    first: str | None = None
    middle: list[str] | None = None
    last: str | None = None


class _Authored(msgspec.Struct):
    paper_id: str = ""
    authors: list[_Name] | None = None


@dataclass(frozen=True)
class S2orc2020(FileRelease):
    """A folder of S2ORC metadata shards, gzip or plain, or one of them."""

    source = "s2orc2020"
    record = Record
    patterns = ("metadata_*.jsonl.gz", "metadata_*.jsonl", "metadata/metadata_*.jsonl.gz", "metadata/metadata_*.jsonl")
    contents = "S2ORC metadata"

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the records."""
        return read_records(Record, tally)

    def authors(self, part: str) -> Iterator[Authored]:
        """Yield the papers of one file with the names of their authors."""
        for record in read_records(_Authored, Tally(self.root / part, self)):
            names = record.authors or ()
            yield record.paper_id, [(f"{n.last or ''}, {n.first or ''} {' '.join(n.middle or ())}", "") for n in names]
