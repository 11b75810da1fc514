"""Semantic Scholar Academic Graph datasets (Kinney et al. 2023): ``papers``, ``abstracts`` and ``citations``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from pipeline.core.errors import InputError, require_known
from pipeline.core.text import id_keys, normalise
from pipeline.sources import options
from pipeline.sources.authors import Authored
from pipeline.sources.base import BATCH_CHARS, BATCH_ROWS, PaperBatch, TableBatch, find_files, grouped
from pipeline.sources.citations import citation_batches
from pipeline.sources.content import first_record
from pipeline.sources.fieldmaps import FOLDED, S2_SOURCES
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, read_records

_DATE = re.compile(r"(?<![0-9])(20[0-9]{2})-?(0[1-9]|1[0-2])-?([0-3][0-9])(?![0-9])")
"""Date in the name of a file: all files of a data set in a release have one."""

DATASETS = ("papers", "abstracts", "citations")
"""Datasets of a corpus; authors, venues and citation contexts are not read."""


class _ExternalIds(msgspec.Struct):
    DOI: str | None = None


class _FieldOfStudy(msgspec.Struct):
    category: str | None = None
    source: str | None = None


class _Paper(msgspec.Struct):
    corpusid: int | str | None = None
    title: str | None = None
    year: int | None = None
    s2fieldsofstudy: list[_FieldOfStudy] | None = None
    externalids: _ExternalIds | None = None


class _Author(msgspec.Struct):
    authorId: str | None = None  # noqa: N815
    name: str | None = None


class _Authored(msgspec.Struct):
    corpusid: int | str | None = None
    authors: list[_Author] | None = None


class _Abstract(msgspec.Struct):
    corpusid: int | str | None = None
    abstract: str | None = None


class _Citation(msgspec.Struct, gc=False):
    citingcorpusid: int | str | None = None
    citedcorpusid: int | str | None = None


@dataclass(frozen=True)
class S2ag(FileRelease, options.S2ag):
    """A release in folders ``papers``, ``abstracts`` and ``citations``, or in files such as ``papers-*.jsonl.gz``."""

    source = "s2ag"
    record = _Paper

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known(self.fields_from, S2_SOURCES, f"S2AG has no fields of study from {self.fields_from!r}")

    def _files(self, dataset: str) -> list[Path]:
        patterns = [f"{dataset}{gap}*{end}" for gap in "/-_" for end in (".jsonl.gz", ".gz", ".jsonl", ".json")]
        return find_files(self.folder, (*patterns, f"{dataset}.jsonl.gz", f"{dataset}.jsonl"), f"S2AG {dataset}")

    def files(self) -> list[Path]:
        """Return the files of the datasets, one after the other; InputError if they are of two releases."""
        paths = [path for dataset in DATASETS for path in self._files(dataset)]
        dates = sorted({"-".join(found.groups()) for path in paths if (found := _DATE.search(path.name))})
        if len(dates) > 1:
            what = f"{self.folder} holds files of {len(dates)} releases ({', '.join(dates)})"
            raise InputError(what, f"Remove those before {dates[-1]}, or give a folder with one release")
        return paths

    def is_joined(self) -> bool:
        """Return True: papers, abstracts and citations are tables."""
        return True

    def read(self, part: str) -> Iterator[PaperBatch | TableBatch]:
        """Yield the batches of one file."""
        if part.startswith("papers"):
            return super().read(part)
        if part.startswith("abstracts"):
            return abstract_batches(Tally(self.folder / part, self))
        tally = Tally(self.folder / part, self)
        if (first := first_record(tally.path)) and first.keys().isdisjoint(_Citation.__struct_encode_fields__):
            self._refuse(tally.path, "a citing and a cited paper", _Citation)
        return citation_batches(_citations(tally), tally)

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the records of ``papers``, without abstracts and references."""
        for record in read_records(_Paper, tally):
            subjects = record.s2fieldsofstudy or ()
            names = [s.category for s in subjects if s.category and self.fields_from in ("any", s.source)]
            fields = [FOLDED.get(name.casefold(), name) for name in names]
            doi = record.externalids.DOI if record.externalids else None
            yield Paper(id=_id(record), title=record.title, year=record.year, fields=fields, doi=doi)

    def authors(self, part: str) -> Iterator[Authored]:
        """Yield the papers of one file with the ids and names of their authors."""
        records = read_records(_Authored, Tally(self.folder / part, self)) if part.startswith("papers") else ()
        for record in records:
            yield _id(record), [(author.name or "", author.authorId or "") for author in record.authors or ()]


def _id(record: _Paper | _Abstract | _Authored) -> str:
    return "" if record.corpusid is None else str(record.corpusid)


def abstract_batches(tally: Tally) -> Iterator[TableBatch]:
    """Yield the abstracts of a file that are not withheld."""

    def abstracts() -> Iterator[tuple[str, str]]:
        for record in read_records(_Abstract, tally):
            if not _id(record):
                tally.drop("no_paper_id")
            elif text := normalise(tally.cut(record.abstract)):
                tally.read += 1
                yield _id(record), text
            else:
                tally.drop_expected("withheld")

    for block in grouped(abstracts(), lambda abstract: len(abstract[1]), BATCH_CHARS, BATCH_ROWS):
        ids, texts = zip(*block, strict=True) if block else ((), ())
        columns = {"key": id_keys(ids), "text": pa.array(texts, pa.large_string())}
        yield TableBatch("abstracts", columns, **tally.counts())


def _citations(tally: Tally) -> Iterator[tuple[str, str]]:
    for edge in read_records(_Citation, tally):
        if edge.citingcorpusid is None or edge.citedcorpusid is None:
            tally.drop_expected("null_citing_id" if edge.citingcorpusid is None else "null_cited_id")
        else:
            tally.read += 1
            yield str(edge.citingcorpusid), str(edge.citedcorpusid)
