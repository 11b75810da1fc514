"""A user's own collection: JSON lines or Parquet, with a map from our columns to the collection's."""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from pipeline.core.config import pairs
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import warn
from pipeline.sources.base import find_files
from pipeline.sources.fieldmaps import FOLDED
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, open_parquet, read_columns, read_records

COLUMNS = ("paper_id", "title", "abstract", "year", "fields", "references", "n_inbound", "doi")
"""Our columns of a paper; all but ``paper_id`` may be missing."""

_KEYS_SHOWN = 100
"""Keys of a record without id that an error may name."""


def parse_columns(text: str | None) -> dict[str, str]:
    """Read a map such as ``paper_id=id,title=headline``; columns of :data:`COLUMNS` it does not name keep our names."""
    columns = {name: name for name in COLUMNS}
    for piece, ours, theirs in pairs(text or ""):
        if not piece:
            continue
        if ours not in COLUMNS:
            raise InputError(f"--columns maps {ours!r}, which is not a column of ours", nearest(ours, COLUMNS))
        if not theirs:
            raise InputError(f"--columns gives {ours!r} no name", "Write it like paper_id=id,title=headline")
        columns[ours] = theirs
    return columns


@dataclass(frozen=True)
class JsonLines(FileRelease):
    """A folder of JSON lines, or one file.

    Attributes:
        columns: a map as :func:`parse_columns` reads it; a dot leads into a JSON object.
        allow_truncated: keep the whole lines of a truncated gzip file instead of refusing it.
    """

    columns: str | None = None
    allow_truncated: bool = False
    source = "jsonl"
    patterns: ClassVar[Sequence[str]] = ("*.jsonl", "*.jsonl.gz", "*.json.gz", "*.ndjson")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_columns(self.columns)  # before files are looked for

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The collection's name of each of :data:`COLUMNS`."""
        return parse_columns(self.columns)

    @property
    def root(self) -> Path:
        """The folder of the files."""
        return self.folder.parent if self.folder.is_file() else self.folder

    def files(self) -> list[Path]:
        """Return the files."""
        if self.folder.is_file():
            return [self.folder]
        return find_files(self.folder, self.patterns, f"{self.source} files")

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums, the map and the settings."""
        return {**super().identity(), "columns": self.names}

    def papers(self, path: Path, tally: Tally) -> Iterator[Paper]:
        """Yield the records that have an id, InputError if none has; tell and count a mapped column that none has."""
        keys: set[str] = set()
        with_id = 0
        unseen = {theirs for ours, theirs in self.names.items() if ours != theirs}
        for number, record in self._records(path, tally):
            value = _lookup(record, self.names["paper_id"])
            if value is None or value == "":
                keys.update(itertools.islice(record, _KEYS_SHOWN))
                tally.drop("no_paper_id", number)
                continue
            with_id += 1
            if unseen:
                unseen -= {name for name in unseen if _lookup(record, name) is not None}
            try:
                paper = self._paper(record)
            except (ValueError, OverflowError, msgspec.ValidationError) as error:
                tally.drop("wrong_type", number, str(error))
            else:
                yield paper
        if keys and not with_id:
            wanted = self.names["paper_id"]
            hint = nearest(wanted, sorted(keys)).rstrip("?")
            raise InputError(f"no record of {path} has an id in {wanted!r}", f"{hint}; use --columns")
        for name in sorted(unseen):
            tally.noted[f"column_never_found: {name}"] += 1
            warn(f"no record of {path} has a {name!r}, which --columns maps")

    def _records(self, path: Path, tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
        return read_records(path, dict[str, Any], tally, allow_truncated=self.allow_truncated)

    def _paper(self, record: Mapping[str, Any]) -> Paper:
        values = {name: _lookup(record, theirs) for name, theirs in self.names.items()}
        values["year"] = _year(values["year"])
        paper = msgspec.convert(values, _Record)
        fields = [paper.fields] if isinstance(paper.fields, str) else paper.fields or []
        return Paper(
            id=str(paper.paper_id),
            title=paper.title,
            abstract=paper.abstract,
            year=paper.year,
            fields=[FOLDED.get(name.casefold(), name) for name in fields],
            outbound=[str(reference) for reference in paper.references or ()],
            inbound=paper.n_inbound,
            doi=paper.doi,
        )


@dataclass(frozen=True)
class ParquetFiles(JsonLines):
    """A folder of Parquet files, or one file."""

    source = "parquet"
    patterns: ClassVar[Sequence[str]] = ("*.parquet",)

    def _records(self, path: Path, tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
        names = open_parquet(path).schema_arrow.names
        paper_id = self.names["paper_id"]
        if paper_id.partition(".")[0] not in names:
            raise InputError(f"{path} has no column {paper_id!r}", nearest(paper_id, names))
        wanted = {name.partition(".")[0] for name in self.names.values()}
        return read_columns(path, [name for name in names if name in wanted], tally)


class _Record(msgspec.Struct):
    paper_id: str | int
    title: str | None
    abstract: str | None
    year: int | None
    fields: list[str] | str | None
    references: list[str | int] | None
    n_inbound: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None
    doi: str | None


def _lookup(record: Any, name: str) -> Any:
    """Return what ``name`` leads to; a key that holds a dot comes before a path."""
    if name in record:
        return record[name]
    for step in name.split("."):
        if not isinstance(record, Mapping):
            return None
        record = record.get(step)
    return record


def _year(value: Any) -> int | None:
    """Return the year of a number, a date, or a text that begins with four digits. ValueError if it is not a year."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, datetime.date):
        return value.year
    if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
        return int(value)
    if isinstance(value, str) and value[:4].isascii() and value[:4].isdecimal() and not value[4:5].isdecimal():
        return int(value[:4])
    raise ValueError(f"{value!r:.60} is not a year")
