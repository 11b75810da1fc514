"""A user's own collection: JSON lines or Parquet, with a mapping from our columns to the collection's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import warn
from pipeline.core.text import plain_doi
from pipeline.sources.base import find_files
from pipeline.sources.fieldmaps import FOLDED
from pipeline.sources.options import Gzipped
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import (
    Tally,
    convert_record,
    open_parquet,
    plain_id,
    read_columns,
    read_records,
    split_ids,
)
from pipeline.sources.tables import read_bibtex, read_table

COLUMNS = ("paper_id", "title", "abstract", "year", "fields", "references", "n_inbound", "doi")
"""Columns of a paper; all but ``paper_id`` are optional."""

_BETWEEN_FIELDS = re.compile("[;|]")

_MAX_KEYS = 100
"""Maximum number of keys remembered from a record without id, for the error message."""


@dataclass(frozen=True)
class JsonLines(FileRelease, Gzipped):
    """A folder of JSON lines, or one file. A name ``a.b`` in ``columns`` is the key ``b`` of the object ``a``."""

    source = "jsonl"
    own_columns = COLUMNS
    patterns: ClassVar[Sequence[str]] = ("*.jsonl", "*.jsonl.gz", "*.json.gz", "*.ndjson")
    contents = "jsonl files"

    def files(self) -> list[Path]:
        """Return the files of JSON lines; without any, those of JSON."""
        if self.folder.is_dir() and not any(next(self.folder.glob(pattern), None) for pattern in self.patterns):
            return find_files(self.folder, (*self.patterns, "*.json", "*.ndjson.gz"), self.contents)
        return super().files()

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums, the mapping and the settings."""
        return {**super().identity(), "columns": {name: self.names[name] for name in COLUMNS}}

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the records with an id; InputError if none has one. Mapped columns that no record has are warned of."""
        keys: set[str] = set()
        with_id = 0
        never_found = {self.names[name] for name in COLUMNS if self.columns and self.names[name] != name}
        for record in self._records(tally):
            paper_id = _lookup(record, self.names["paper_id"])
            if paper_id is None or paper_id == "" or paper_id != paper_id:
                keys.update(itertools.islice(record, _MAX_KEYS))
                tally.drop("no_paper_id")
                continue
            with_id += 1
            if never_found:
                never_found -= {name for name in never_found if _lookup(record, name) is not None}
            try:
                paper = self._paper(record, tally)
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", str(error))
            else:
                yield paper
        if keys and not with_id:
            id_name = self.names["paper_id"]
            raise InputError(f"no record of {tally.path} has an id in {id_name!r}", _hint(id_name, keys, record))
        for name in sorted(never_found):
            tally.noted[f"column_never_found: {name}"] += 1
            warn(f"no record of {tally.path} has a {name!r}, which --columns maps")

    def refuse_untitled(self) -> None:
        """Raise InputError, which names the columns that the first record has."""
        names = ", ".join(self._own_names()[:_MAX_KEYS])
        raise InputError(
            f"no record of {self.folder} has a title in {self.names['title']!r}; the first has {names}",
            "Name the one with the title: --columns=title=NAME",
        )

    def _own_names(self) -> list[str]:
        """Return the names in the first record, those of an object with a dot."""
        first = next(record for path in self.files() for record in self._records(Tally(path, self)))
        return [
            f"{key}.{name}" if name else key
            for key, value in first.items()
            for name in (value if isinstance(value, Mapping) else [""])
        ]

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        return read_records(dict[str, Any], tally)

    def _paper(self, record: Mapping[str, Any], tally: Tally) -> Paper:
        values = {name: _lookup(record, self.names[name]) for name in COLUMNS}
        paper = convert_record(values, _Record, tally)
        return Paper(
            id=(paper_id := plain_id(paper.paper_id)),
            title=paper.title,
            abstract=paper.abstract,
            year=paper.year,
            fields=[FOLDED.get(name.casefold(), name) for name in split_ids(paper.fields, _BETWEEN_FIELDS)],
            outbound=split_ids(paper.references),
            inbound=paper.n_inbound,
            doi=paper.doi or plain_doi(paper_id),
        )


@dataclass(frozen=True)
class ParquetFiles(JsonLines):
    """A folder of Parquet files, or one file."""

    source = "parquet"
    patterns: ClassVar[Sequence[str]] = ("*.parquet",)
    contents = "parquet files"

    def _own_names(self) -> list[str]:
        """Return the names of the columns, those of a struct with a dot."""
        names: list[str] = open_parquet(self.files()[0]).schema_arrow.empty_table().flatten().column_names
        return names

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        names = open_parquet(tally.path).schema_arrow.names
        paper_id = self.names["paper_id"]
        if paper_id not in names and paper_id.partition(".")[0] not in names:
            raise InputError(f"{tally.path} has no column {paper_id!r}", nearest(paper_id, names))
        mapped = {
            ".".join(steps[:end])
            for name in COLUMNS
            for steps in [self.names[name].split(".")]
            for end in range(1, len(steps) + 1)
        }
        return read_columns([name for name in names if name in mapped], tally)


@dataclass(frozen=True)
class Tables(JsonLines):
    """A folder of CSV or TSV files with a header, or one file."""

    source = "csv"
    patterns: ClassVar[Sequence[str]] = ("*.csv", "*.csv.gz", "*.tsv", "*.tsv.gz")
    contents = "CSV or TSV files"
    _records = staticmethod(read_table)


@dataclass(frozen=True)
class Bibtex(JsonLines):
    """A folder of BibTeX files, or one file."""

    source = "bibtex"
    patterns: ClassVar[Sequence[str]] = ("*.bib", "*.bib.gz")
    contents = "BibTeX files"
    _records = staticmethod(read_bibtex)


def _hint(id_name: str, keys: set[str], record: Mapping[str, Any]) -> str:
    """Return what to do about records without an id, the last of which is given."""
    if {"columns", "data"} <= keys:
        return "Write a paper a line: to_json(orient='records', lines=True) of pandas"
    if all(isinstance(value, Mapping) for value in record.values()):
        return "Write a paper a line, not papers by id"
    within = {
        f"{name}.{inner}": value for name, of in record.items() if isinstance(of, dict) for inner, value in of.items()
    }
    lists = [
        name
        for name, value in {**record, **within}.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    if lists:
        return f"Write a paper a line: jq -c '.{lists[0]}[]'"
    if id_name in keys:
        return "All its values are missing; name another with --columns"
    return f"{nearest(id_name, sorted(keys)).rstrip('?')}; use --columns"


class _Record(msgspec.Struct):
    paper_id: str | int
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    fields: list[str] | str | None = None
    references: list[str | int] | str | int | None = None
    n_inbound: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    doi: str | None = None


def _lookup(record: Any, name: str) -> Any:
    """Return the value at ``name``: a key, else a path of keys separated by dots; of a list, those of its items."""
    if isinstance(record, list):
        return [_lookup(item, name) for item in record]
    if not isinstance(record, Mapping) or name in record:
        return record[name] if isinstance(record, Mapping) else None
    steps = name.split(".")
    for end in range(len(steps) - 1, 0, -1):
        if (key := ".".join(steps[:end])) in record:
            return _lookup(record[key], ".".join(steps[end:]))
    return None
