"""Semantic Scholar Academic Graph datasets (Kinney et al. 2023): ``papers``, ``abstracts`` and ``citations``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.core.errors import InputError, nearest
from pipeline.core.text import id_keys, normalise
from pipeline.sources.base import BATCH_CHARS, BATCH_ROWS, Limits, PaperBatch, QuerySet, find_files, fingerprint
from pipeline.sources.fieldmaps import S2_CATEGORIES, S2_SOURCES
from pipeline.sources.papers import Paper, PaperBuffer
from pipeline.sources.records import Tally, read_records
from pipeline.sources.tables import BATCH_EDGES, Abstracts, Citations

_DATASETS = {"papers": (1.5, 0.4), "abstracts": (3.0, 1.0), "citations": (0.6, 0.2)}
"""Bytes the join holds for each byte of a gzip and of a plain file: authors, venues and citation contexts are not
kept."""


class ExternalIds(msgspec.Struct):
    """Identifiers elsewhere."""

    DOI: str | None = None


class FieldOfStudy(msgspec.Struct):
    """A field of study, and who says so."""

    category: str | None = None
    source: str | None = None


class PaperRecord(msgspec.Struct):
    """What is read of a record of ``papers``."""

    corpusid: int | str | None = None
    title: str | None = None
    year: int | None = None
    s2fieldsofstudy: list[FieldOfStudy] | None = None
    externalids: ExternalIds | None = None


class Abstract(msgspec.Struct):
    """What is read of a record of ``abstracts``."""

    corpusid: int | str | None = None
    abstract: str | None = None


class Citation(msgspec.Struct, gc=False):
    """What is read of a record of ``citations``."""

    citingcorpusid: int | str | None = None
    citedcorpusid: int | str | None = None


@dataclass(frozen=True)
class S2ag(Limits):
    """A folder with ``papers``, ``abstracts`` and ``citations`` of one release.

    Attributes:
        folder: holds ``papers/``, ``abstracts/`` and ``citations/``, or files of those names (``papers-*.jsonl.gz``).
        fields_from: whose fields of study count, one of :data:`pipeline.sources.fieldmaps.S2_SOURCES`.
        allow_truncated: keep the whole lines of a truncated gzip file instead of refusing it.
    """

    folder: Path
    fields_from: str = "s2-fos-model"
    allow_truncated: bool = False
    source: str = field(default="s2ag", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields_from not in S2_SOURCES:
            raise InputError(
                f"S2AG has no fields of study from {self.fields_from!r}", nearest(self.fields_from, S2_SOURCES)
            )

    def _files(self, dataset: str) -> list[Path]:
        ends = (".jsonl.gz", ".gz", ".jsonl", ".json")
        patterns = [f"{dataset}{between}*{end}" for between in ("/", "-", "_") for end in ends]
        return find_files(self.folder, (*patterns, f"{dataset}.jsonl.gz", f"{dataset}.jsonl"), f"S2AG {dataset}")

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings."""
        paths = [path for dataset in _DATASETS for path in self._files(dataset)]
        return {
            "files": fingerprint(paths, self.folder),
            "fields_from": self.fields_from,
            "allow_truncated": self.allow_truncated,
        }

    def parts(self) -> Sequence[str]:
        """Return the files of the three datasets, as ``DATASET:PATH`` with the path below the folder."""
        return [
            f"{dataset}:{path.relative_to(self.folder).as_posix()}"
            for dataset in _DATASETS
            for path in self._files(dataset)
        ]

    def queries(self) -> QuerySet | None:
        """Return None: S2AG brings no queries."""
        return None

    def joined_bytes(self) -> int:
        """Return about what the join holds of the three datasets together."""
        sizes = [
            path.stat().st_size * factors[path.suffix != ".gz"]
            for dataset, factors in _DATASETS.items()
            for path in self._files(dataset)
        ]
        return int(sum(sizes))

    def read_table(self, part: str) -> Iterator[PaperBatch | Abstracts | Citations]:
        """Yield what one file holds.

        Raises:
            CorruptError: the file is truncated or damaged.
        """
        dataset, _, name = part.partition(":")
        path = self.folder / name
        if dataset == "papers":
            yield from self._papers(path)
        elif dataset == "abstracts":
            yield from self._abstracts(path)
        else:
            yield from self._citations(path)

    def _papers(self, path: Path) -> Iterator[PaperBatch]:
        papers = PaperBuffer(path, self.max_text)
        for number, record in read_records(path, PaperRecord, papers, allow_truncated=self.allow_truncated):
            if not record.corpusid and record.corpusid != 0:
                papers.drop("no_paper_id", number)
                continue
            fields = [_field(each) for each in record.s2fieldsofstudy or () if self._counts(each)]
            doi = record.externalids.DOI if record.externalids else None
            papers.add(Paper(id=str(record.corpusid), title=record.title, year=record.year, fields=fields, doi=doi))
            if papers.full:
                yield papers.flush()
        yield papers.flush()

    def _counts(self, each: FieldOfStudy) -> bool:
        return bool(each.category) and (self.fields_from == "any" or each.source == self.fields_from)

    def _abstracts(self, path: Path) -> Iterator[Abstracts]:
        tally = Tally(path, self.max_text)
        ids: list[str] = []
        texts: list[str] = []
        chars = 0
        for number, record in read_records(path, Abstract, tally, allow_truncated=self.allow_truncated):
            if not record.corpusid and record.corpusid != 0:
                tally.drop("no_paper_id", number)
            elif text := normalise(tally.cut(record.abstract)):
                tally.read += 1
                ids.append(str(record.corpusid))
                texts.append(text)
                chars += len(text)
            else:
                tally.pass_over("withheld")
            if len(ids) >= BATCH_ROWS or chars >= BATCH_CHARS:
                yield Abstracts(id_keys(ids), pa.array(texts, pa.large_string()), **tally.counts())
                ids, texts, chars = [], [], 0
        yield Abstracts(id_keys(ids), pa.array(texts, pa.large_string()), **tally.counts())

    def _citations(self, path: Path) -> Iterator[Citations]:
        tally = Tally(path)
        citing: list[str] = []
        cited: list[str] = []
        for _, edge in read_records(path, Citation, tally, allow_truncated=self.allow_truncated):
            if edge.citingcorpusid is None:
                tally.pass_over("null_citing_id")
            elif edge.citedcorpusid is None:
                tally.pass_over("null_cited_id")
            else:
                tally.read += 1
                citing.append(str(edge.citingcorpusid))
                cited.append(str(edge.citedcorpusid))
            if len(citing) >= BATCH_EDGES:
                yield Citations(id_keys(citing), id_keys(cited), **tally.counts())
                citing, cited = [], []
        yield Citations(id_keys(citing), id_keys(cited), **tally.counts())


def _field(each: FieldOfStudy) -> str:
    category = each.category or ""
    return S2_CATEGORIES.get(category.casefold(), category)
