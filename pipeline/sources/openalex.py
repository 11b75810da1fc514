"""OpenAlex snapshots (Priem et al. 2022): works in the layout of 2023 and the JSONL and Parquet layouts of 2026."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipeline.core.csr import Keys, find_sorted
from pipeline.core.errors import CorruptError, InputError, require_known
from pipeline.core.text import id_keys
from pipeline.sources import options
from pipeline.sources.base import PaperBatch, fingerprint
from pipeline.sources.fieldmaps import FOLDED, OPENALEX_FIELDS, OPENALEX_SOURCES, OPENALEX_SUBFIELDS
from pipeline.sources.openalex_files import Layout
from pipeline.sources.papers import FileRelease, Paper, distinct_references
from pipeline.sources.records import Tally, read_records, read_rows

_MAX_INT32 = 2**31 - 1

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


@dataclass(frozen=True)
class OpenAlex(FileRelease, options.OpenAlex):
    """A snapshot on disk: its root, or the folder of one of its formats."""

    source = "openalex"
    record = Work

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known(self.fields_from, OPENALEX_SOURCES, f"OpenAlex has no fields from {self.fields_from!r}")
        if not 0 <= self.min_concept_score <= 1:
            raise InputError(
                f"--min-concept-score must be a number from 0 to 1, got {self.min_concept_score:g}",
                "Leave it out for 0.3",
            )

    @functools.cached_property
    def layout(self) -> Layout:
        """Layout of the snapshot."""
        return Layout.find(self.folder)

    @property
    def root(self) -> Path:
        """Folder of the works."""
        return self.layout.works

    def files(self) -> list[Path]:
        """Return the files of works."""
        return self.layout.files

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings."""
        merged_ids = [fingerprint([path], path.parent)[path.name] for path in self.layout.merged]
        return {**super().identity(), "merged_ids": merged_ids}

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the works of one file; CorruptError if it is damaged, or their number differs from the manifest."""
        merged, record_count = read_merged(self.layout.merged), 0
        for batch in super().read(part):
            record_count += batch.read
            yield merged.apply(batch)
        entry = self.layout.manifest.get(part)
        if entry and entry.records not in (None, record_count) and not self.allow_truncated:
            expected = f"its manifest says {entry.records:,}"
            raise CorruptError(f"{self.root / part} holds {record_count:,} works, {expected}", "Fetch it again")

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the works, except retracted ones, paratext and those of low quality."""
        parquet = tally.path.suffix == ".parquet"
        for work in read_rows(Work, tally, required="id") if parquet else read_records(Work, tally):
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
                tally.withdrawn += [paper_id] * self.layout.may_repeat

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
        for concept in (work.concepts or ()) if self.fields_from != "topics" else ():
            try:
                is_certain = float(concept.score or 0) >= self.min_concept_score
            except ValueError:
                tally.odd("score not a number", concept.score)
                continue
            if concept.level == 0 and concept.display_name and is_certain:
                fields.append(FOLDED.get(concept.display_name.casefold(), concept.display_name))
        if fields or self.fields_from == "concepts":
            return fields
        topic = work.primary_topic or (work.topics[0] if work.topics else None)
        return topic_fields(topic) if topic else []


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


class Merged(NamedTuple):
    """Keys of works that were merged into others, rising, and the keys of those others."""

    ids: Keys
    into: Keys

    def apply(self, batch: PaperBatch) -> PaperBatch:
        """Drop the merged works of a batch, and redirect references to merged works."""
        papers = batch.papers
        keys = id_keys(papers.column("paper_id"))
        _, is_merged = find_sorted(self.ids, keys)
        if is_merged.any():
            papers, keys = papers.filter(pa.array(~is_merged)), keys[~is_merged]
            batch.dropped["merged_into_another"] += int(np.count_nonzero(is_merged))
        outbound = papers.column("outbound")
        cited = outbound.flatten().to_numpy()
        positions, cites_merged = find_sorted(self.ids, cited)
        if cites_merged.any():
            lengths = np.asarray(pc.list_value_length(outbound))
            redirected = np.where(cites_merged, self.into[positions], cited)
            is_deleted = redirected == id_keys([DELETED])[0]
            redirected = np.where(is_deleted, np.repeat(keys, lengths), redirected)  # dropped as those to itself
            offsets, distinct = distinct_references(keys, lengths, redirected)
            batch.noted["references_redirected_to_merged"] += int(np.count_nonzero(cites_merged))
            batch.noted["references_repeated_or_self"] += len(cited) - len(distinct)
            lists = pa.LargeListArray.from_arrays(offsets, distinct, type=papers.schema.field("outbound").type)
            papers = papers.set_column(papers.schema.names.index("outbound"), papers.schema.field("outbound"), lists)
        batch.papers = papers
        return batch


@functools.lru_cache(maxsize=2)
def read_merged(paths: tuple[Path, ...]) -> Merged:
    """Return the merged ids of CSV files, cached per process; the last line of a work counts.

    Uses 16 bytes a merged work, about 80 while reading. CorruptError if a file is malformed or ids form a cycle.
    """
    tables = [_read_csv(path) for path in paths]
    ids, into = (
        np.concatenate([np.empty(0, np.uint64), *(_work_keys(table.column(name)) for table in tables)])
        for name in ("id", "merge_into_id")
    )
    merged_ids, last_lines = np.unique(ids[::-1], return_index=True)
    into = into[::-1][last_lines]
    for _ in range(64):
        positions, chained = find_sorted(merged_ids, into)
        chained &= into[positions] != into
        if not chained.any():
            break
        into = np.where(chained, into[positions], into)
    if chained.any() or np.any(into == merged_ids):
        raise CorruptError(f"the merged ids of {paths[0].parent} form a cycle", "Fetch them again")
    return Merged(merged_ids, into)


def _read_csv(path: Path) -> pa.Table:
    types = dict.fromkeys(("id", "merge_into_id"), pa.large_string())
    try:
        return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types)).select([*types])
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptError(f"{path} is not a list of merged ids ({error})", "Fetch it again") from error


def _work_keys(addresses: pa.ChunkedArray) -> Keys:
    return id_keys(pc.replace_substring_regex(addresses.combine_chunks(), r"^https://openalex\.org/", ""))
