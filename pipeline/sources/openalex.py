"""OpenAlex snapshots (Priem et al. 2022): works in the layout of 2023 and the JSONL and Parquet layouts of 2026."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.core.config import counted
from pipeline.core.errors import CorruptError, InputError, require_known
from pipeline.core.progress import warn
from pipeline.sources import options
from pipeline.sources.authors import Authored
from pipeline.sources.base import find_files
from pipeline.sources.fieldmaps import FOLDED, OPENALEX_FIELDS, OPENALEX_SUBFIELDS
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, converted, open_parquet, read_columns, read_records

_PLACES = (
    *("", "works", "data/works", "legacy-data/works", "jsonl/works", "parquet/works"),
    *("data/jsonl/works", "data/parquet/works"),
)
"""Folders of works in a snapshot, in its part of one format, or in ``data``."""
_API = ("*.jsonl", "*.jsonl.gz", "*.json", "*.json.gz", "*.ndjson", "*.ndjson.gz", "*.parquet")
_WORKS = "OpenAlex works"

_MAX_INT32 = 2**31 - 1

_LEAST_SCORE = 0.3
"""Score that a level-0 concept needs to be a field; ancestors of assigned concepts have the score 0."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

DELETED = "W4285719527"
"""A work of the title *Deleted Work*, into which OpenAlex merges what it deletes."""


class _Entity(msgspec.Struct):
    id: int | str | None = None  # a number, or an address that ends in one


class _Topic(msgspec.Struct):
    field: _Entity | None = None
    subfield: _Entity | None = None


class _Concept(msgspec.Struct):
    display_name: str | None = None
    level: int | None = None
    score: float | str | None = None


class Work(msgspec.Struct):
    """The fields of a work that are read."""

    id: str | None = None
    title: str | None = None
    display_name: str | None = None
    publication_year: int | None = None
    abstract_inverted_index: dict[str, list[int] | None] | list[tuple[str, list[int]]] | str | None = None
    abstract: str | None = None  # of openalexR
    referenced_works: list[str] | None = None
    cited_by_count: int | None = None
    concepts: list[_Concept] | None = None
    primary_topic: _Topic | None = None
    topics: list[_Topic] | None = None
    doi: str | None = None
    is_retracted: bool | None = None
    is_paratext: bool | None = None
    is_xpac: bool | None = None


class _Person(msgspec.Struct):
    id: str | None = None
    display_name: str | None = None


class _Authorship(msgspec.Struct):
    author: _Person | None = None


class _Authored(msgspec.Struct):
    id: str | None = None
    authorships: list[_Authorship] | None = None


class _Entry(msgspec.Struct):
    url: str


class _Manifest(msgspec.Struct):
    files: list[_Entry] | None = None  # since 2026
    entries: list[_Entry] | None = None  # until 2025


@dataclass(frozen=True)
class OpenAlex(FileRelease, options.OpenAlex):
    """A snapshot on disk: its root, or the folder of one of its formats; or works of the API, a line each."""

    source = "openalex"
    record = Work

    @functools.cached_property
    def _copy(self) -> tuple[Path, str]:
        """Folder of ``updated_date=*/part_*`` and the ending of these files; empty, of works of the API.

        Raises:
            InputError: the works are there twice, or not at all.
        """
        copies = [
            (path, ending)
            for path in (self.folder / place for place in _PLACES)
            for ending in (".gz", ".parquet")
            if next(path.glob(f"updated_date=*/[!.]*{ending}"), None)
        ]
        if len(copies) > 1:
            found = " and ".join(f"{path} ({ending})" for path, ending in copies)
            raise InputError(f"{self.folder} holds the works twice: {found}", "Give one of the two with --input")
        if not copies:
            find_files(self.folder, (*(f"{place}/updated_date=*/part_*" for place in _PLACES[1:]), *_API), _WORKS)
        return copies[0] if copies else (self.folder, "")

    @property
    def root(self) -> Path:
        """Folder of the works."""
        return self.folder.parent if self.folder.is_file() else self._copy[0]

    @functools.cached_property
    def _files(self) -> list[Path]:
        if self.folder.is_file():
            return [self.folder]
        _, ending = self._copy
        paths = find_files(self.root, [f"updated_date=*/*{ending}"] if ending else _API, _WORKS)
        paths.sort(key=lambda path: path.parent.name, reverse=True)  # stable: files of a partition keep their order
        listed, names = self._listed, {path.relative_to(self.root).as_posix(): path for path in paths}
        if missing := [name for name in listed if not (self.root / name).is_file()]:
            raise CorruptError(
                f"{self.root} lacks {len(missing)} of the files of its manifest, first {missing[0]}",
                "Fetch the rest, or remove the manifest to build from the files that are there",
            )
        if stale := [name for name in names if listed and name not in listed]:
            left_out = counted(len(stale), "file")
            warn(f"left out: {left_out} that the manifest of {self.root} lacks, first {stale[0]}")
        return [path for name, path in names.items() if name not in stale]

    def files(self) -> list[Path]:
        """Return the files of works, those of the newest partition first.

        Files that the manifest lacks are of an earlier snapshot: they are left out, with a line. CorruptError if a file
        of the manifest is missing.
        """
        return self._files

    @functools.cached_property
    def may_repeat(self) -> bool:
        """Whether a work may be in several partitions: OpenAlex moves what changes, but copies may keep old files."""
        return not self._listed and len({path.parent for path in self.files()}) > 1

    @functools.cached_property
    def _listed(self) -> list[str]:
        """Paths below :attr:`root` in its manifest; empty if there is no manifest."""
        path = next(filter(Path.is_file, (self.root / "manifest.json", self.root / "manifest")), None)
        if path is None:
            return []
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
            entries = manifest.entries if manifest.files is None else manifest.files
            if entries is None:
                raise msgspec.ValidationError("it lists no files")
            return [entry.url.rpartition("works/")[2] for entry in entries]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"{path} is not a manifest of OpenAlex works ({error!r})", "Fetch it again") from error

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings; there are no lists of merged works."""
        return {**super().identity(), "fields_from": "auto", "min_concept_score": _LEAST_SCORE, "merged_ids": []}

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the works, except retracted ones, paratext and those of low quality."""
        for work in _read(Work, tally):
            paper_id = short_id(work.id or "")
            reasons = {
                "deleted": paper_id == DELETED,
                "retracted": work.is_retracted,
                "paratext": work.is_paratext,
                "xpac": work.is_xpac and not self.include_xpac,
            }
            reason = next((reason for reason, holds in reasons.items() if holds and paper_id), None)
            if reason is None:
                yield self._paper(paper_id, work, tally)
            else:
                tally.drop(reason, paper_id)
                tally.withdrawn += [paper_id] * self.may_repeat

    def authors(self, part: str) -> Iterator[Authored]:
        """Yield the works of one file with the ids and names of their authors."""
        for work in _read(_Authored, Tally(self.root / part, self)):
            people = [authorship.author or _Person() for authorship in work.authorships or ()]
            yield short_id(work.id or ""), [(who.display_name or "", short_id(who.id or "")) for who in people]

    def _paper(self, paper_id: str, work: Work, tally: Tally) -> Paper:
        try:
            abstract = plain_abstract(work.abstract_inverted_index, self.max_text)
        except (ValueError, msgspec.DecodeError):
            tally.odd("abstract_inverted_index not an index", work.abstract_inverted_index)
            abstract = ""
        return Paper(
            id=paper_id,
            title=work.title or work.display_name,
            abstract=abstract or work.abstract,
            year=work.publication_year,
            fields=self._fields(work, tally),
            outbound=[cited for cited in map(short_id, work.referenced_works or ()) if cited != DELETED],
            inbound=min(max(work.cited_by_count or 0, 0), _MAX_INT32),
            doi=work.doi,
        )

    def _fields(self, work: Work, tally: Tally) -> list[str]:
        fields = []
        for concept in work.concepts or ():
            try:
                is_certain = float(concept.score or 0) >= _LEAST_SCORE
            except ValueError:
                tally.odd("score not a number", concept.score)
                continue
            if concept.level == 0 and concept.display_name and is_certain:
                fields.append(FOLDED.get(concept.display_name.casefold(), concept.display_name))
        topic = work.primary_topic or (work.topics[0] if work.topics else None)
        return fields or (topic_fields(topic) if topic else [])


def _read(kind: type[_Struct], tally: Tally) -> Iterator[_Struct]:
    if tally.path.suffix != ".parquet":
        return read_records(kind, tally)
    names = open_parquet(tally.path).schema_arrow.names
    require_known("id", names, f"{tally.path} has no column 'id'")
    columns = [name for name in kind.__struct_encode_fields__ if name in names]
    return converted(read_columns(columns, tally), kind, tally)


def short_id(address: str) -> str:
    """Return ``W123`` of ``https://openalex.org/W123``."""
    return address.rpartition("/")[2]


def plain_abstract(
    index: dict[str, list[int] | None] | list[tuple[str, list[int]]] | str | None, max_text: int = options.MAX_TEXT
) -> str:
    """Return the text of an inverted index: its words in the order of their positions, without gaps.

    The index is a mapping, pairs (a Parquet map) or JSON (a Parquet string), which may raise
    :class:`msgspec.DecodeError`. The text ends with the word that exceeds ``max_text``, since a long word may have many
    positions.
    """
    if isinstance(index, str):
        index = msgspec.json.decode(index, type=dict[str, list[int] | None] | None) if index else None
    if not index:
        return ""
    pairs = index.items() if isinstance(index, dict) else index
    occurrences = [(position, word) for word, positions in pairs for position in positions or ()]
    words: list[str | None] = [None] * len(occurrences)
    try:
        for position, word in occurrences:
            words[position] = word
    except IndexError:  # gaps between the positions
        occurrences.sort()
        words = [word for _, word in occurrences]
    text = [word for word in words if word is not None]
    if sum(map(len, text)) + len(text) > max_text:
        ends = accumulate(len(word) + 1 for word in text)
        text = [word for word, end in zip(text, ends, strict=True) if end - len(word) - 1 <= max_text]
    return " ".join(text)


def topic_fields(topic: _Topic) -> list[str]:
    """Return the field of a topic, in a list: that of its subfield if mapped, else that of its field."""
    for entity, table in ((topic.subfield, OPENALEX_SUBFIELDS), (topic.field, OPENALEX_FIELDS)):
        entity_id = short_id(str(entity.id)) if entity else ""
        if entity_id.isascii() and entity_id.isdecimal() and int(entity_id) in table:
            return [table[int(entity_id)][1]]
    return [f"topic field {short_id(str(topic.field.id))}"] if topic.field else []
