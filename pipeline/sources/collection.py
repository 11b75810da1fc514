"""A user's own collection: JSON lines or Parquet, with a mapping from our columns to the collection's."""

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
"""Columns of a paper; all but ``paper_id`` are optional."""

_MAX_KEYS = 100
"""Maximum number of keys remembered from a record without id, for the error message."""


def parse_columns(text: str | None) -> dict[str, str]:
    """Return the collection's name of each of :data:`COLUMNS`, given like ``paper_id=id,title=headline``."""
    columns = {name: name for name in COLUMNS}
    for entry, ours, theirs in pairs(text or ""):
        if not entry:
            continue
        if ours not in COLUMNS:
            remedy = f"Write it like paper_id=id, our name first. {nearest(ours, COLUMNS)}"
            raise InputError(f"--columns maps {ours!r}, which is not a column of ours", remedy)
        if not theirs:
            raise InputError(f"--columns gives {ours!r} no name", "Write it like paper_id=id,title=headline")
        columns[ours] = theirs
    return columns


@dataclass(frozen=True)
class JsonLines(FileRelease):
    """A folder of JSON lines, or one file.

    Attributes:
        columns: a mapping for :func:`parse_columns`; ``a.b`` is the key ``b`` of the object ``a``.
        allow_truncated: keep the complete lines of a truncated gzip file instead of refusing it.
    """

    columns: str | None = None
    allow_truncated: bool = False
    source = "jsonl"
    patterns: ClassVar[Sequence[str]] = ("*.jsonl", "*.jsonl.gz", "*.json.gz", "*.ndjson")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_columns(self.columns)  # refuses a bad mapping before files are searched

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
        """Return the files' checksums, the mapping and the settings."""
        return {**super().identity(), "columns": self.names}

    def papers(self, path: Path, tally: Tally) -> Iterator[Paper]:
        """Yield the records with an id; InputError if none has one. Mapped columns that no record has are warned of."""
        keys: set[str] = set()
        with_id = 0
        never_found = {theirs for ours, theirs in self.names.items() if ours != theirs}
        for line_number, record in self._records(path, tally):
            paper_id = _lookup(record, self.names["paper_id"])
            if paper_id is None or paper_id == "":
                keys.update(itertools.islice(record, _MAX_KEYS))
                tally.drop("no_paper_id", line_number)
                continue
            with_id += 1
            if never_found:
                never_found -= {name for name in never_found if _lookup(record, name) is not None}
            try:
                paper = self._paper(record)
            except (ValueError, OverflowError, msgspec.ValidationError) as error:
                tally.drop("wrong_type", line_number, str(error))
            else:
                yield paper
        if keys and not with_id:
            id_name = self.names["paper_id"]
            hint = nearest(id_name, sorted(keys)).rstrip("?")
            raise InputError(f"no record of {path} has an id in {id_name!r}", f"{hint}; use --columns")
        for name in sorted(never_found):
            tally.noted[f"column_never_found: {name}"] += 1
            warn(f"no record of {path} has a {name!r}, which --columns maps")

    def refuse_untitled(self) -> None:
        """Raise InputError, which names the columns that the first record has."""
        names = ", ".join(self._own_names()[:_MAX_KEYS])
        raise InputError(
            f"no record of {self.folder} has a title in {self.names['title']!r}; the first has {names}",
            "Name the one with the title: --columns=title=NAME",
        )

    def _own_names(self) -> list[str]:
        """Return the names in the first record, those of an object with a dot."""
        _, first = next(record for path in self.files() for record in self._records(path, Tally(path)))
        return [
            f"{key}.{name}" if name else key
            for key, value in first.items()
            for name in (value if isinstance(value, Mapping) else [""])
        ]

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

    def _own_names(self) -> list[str]:
        """Return the names of the columns, those of a struct with a dot."""
        names: list[str] = open_parquet(self.files()[0]).schema_arrow.empty_table().flatten().column_names
        return names

    def _records(self, path: Path, tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
        names = open_parquet(path).schema_arrow.names
        paper_id = self.names["paper_id"]
        if paper_id.partition(".")[0] not in names:
            raise InputError(f"{path} has no column {paper_id!r}", nearest(paper_id, names))
        mapped = {name.partition(".")[0] for name in self.names.values()}
        return read_columns(path, [name for name in names if name in mapped], tally)


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
    """Return the value at ``name``: a key, else a path of keys separated by dots."""
    if name in record:
        return record[name]
    for step in name.split("."):
        if not isinstance(record, Mapping):
            return None
        record = record.get(step)
    return record


def _year(value: Any) -> int | None:
    """Return the year of a number, a date, or a text that begins with four digits; ValueError if there is none."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, datetime.date):
        return value.year
    if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
        return int(value)
    if isinstance(value, str) and value[:4].isascii() and value[:4].isdecimal() and not value[4:5].isdecimal():
        return int(value[:4])
    raise ValueError(f"{value!r:.60} is not a year")
