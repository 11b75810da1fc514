"""Convert raw records to batches of papers: text rules, reference keys, impossible years, unknown fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import distinct_pairs, offsets_of
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import Keys, doi_key, id_keys, normalise_all, reference_keys
from pipeline.sources.base import (
    BATCH_CHARS,
    BATCH_ROWS,
    RAW_PAPERS,
    WITHDRAWN,
    PaperBatch,
    Release,
    find_files,
    fingerprint,
)
from pipeline.sources.content import refuse_unread
from pipeline.sources.options import MAX_TEXT
from pipeline.sources.records import Tally

YEARS = range(1500, 2101)
"""Possible years of a paper; any other year counts as missing."""

_REFERENCE_CHARS = 32
"""Characters that a reference counts in :data:`BATCH_CHARS`: about the memory of its string."""


class Paper(msgspec.Struct, kw_only=True, gc=False):
    """A paper as in its release.

    ``inbound`` is the distinct ids of the citing papers, or their number. The lines of a ``lined`` abstract are
    sentences given by the release (:func:`pipeline.core.text.one_a_line`).
    """

    id: str
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    fields: list[str] | None = None
    outbound: list[str] | None = None
    inbound: set[str] | int | None = None
    doi: str | None = None
    lined: bool = False


@dataclass(frozen=True)
class FileRelease(Release):
    """A release whose parts are files. The fields of subclasses are settings that decide the content.

    Attributes:
        folder: folder of the files, or one file.
    """

    folder: Path
    patterns: ClassVar[Sequence[str]] = ()
    """Names of the files below the folder."""
    contents: ClassVar[str] = "files"
    """What the files are, for messages."""

    @property
    def root(self) -> Path:
        """Folder that the names of parts are relative to."""
        return self.folder.parent if self.folder.is_file() else self.folder

    def files(self) -> list[Path]:
        """Return the files, in the release's order."""
        return [self.folder] if self.folder.is_file() else find_files(self.folder, self.patterns, self.contents)

    @abstractmethod
    def papers(self, path: Path, tally: Tally) -> Iterator[Paper]:
        """Yield the kept papers of one file; count dropped records in ``tally``."""

    def joined_bytes(self) -> int:
        """Return the approximate memory of all papers and their references together, in bytes."""
        return sum(path.stat().st_size * (4 if path.suffix == ".gz" else 2) for path in self.files())

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _COMMON_FIELDS}
        return {"files": fingerprint(self.files(), self.root), **settings}

    def parts(self) -> Sequence[str]:
        """Return the paths of the files below :attr:`root`."""
        return [path.relative_to(self.root).as_posix() for path in self.files()]

    def read(self, part: str) -> Iterator[Any]:
        """Yield the papers of one file.

        Raises:
            CorruptError: the file is truncated or damaged.
            InputError: the file has no papers, but full text or another format that is not read.
        """
        if (self.root / part).is_file():  # a part of MTEB is none
            refuse_unread(self.root / part)
        buffer = PaperBuffer(self.root / part, self.max_text, self.markup)
        return buffer.batches(self.papers(self.root / part, buffer))


_COMMON_FIELDS = {field.name for field in fields(FileRelease)}


class PaperBuffer(Tally):
    """Collects the papers of one file into batches."""

    def __init__(self, path: Path, max_text: int = MAX_TEXT, markup: str = "keep") -> None:
        super().__init__(path, max_text, markup)
        self._clear()

    def _clear(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._cited: list[str] = []
        self._chars = 0

    def add(self, paper: Paper) -> None:
        """Add a paper."""
        cited, inbound = paper.outbound or (), paper.inbound or 0
        title, abstract = self.cut(paper.title), self.cut(paper.abstract)
        self._chars += len(title or "") + len(abstract or "") + _REFERENCE_CHARS * len(cited)
        self._cited.extend(cited)
        year, mask = self._year(paper.year), self._mask(paper.fields) if paper.fields else 0
        inbound = inbound if isinstance(inbound, int) else len(inbound) - (paper.id in inbound)
        doi = doi_key(paper.doi) if paper.doi else 0
        self._rows.append((paper.id, title, abstract, year, mask, inbound, doi, len(cited), paper.lined))

    @property
    def full(self) -> bool:
        """Whether the buffer has enough papers for a batch."""
        return len(self._rows) >= BATCH_ROWS or self._chars >= BATCH_CHARS

    def batches(self, papers: Iterable[Paper]) -> Iterator[PaperBatch]:
        """Yield papers in batches; the last, which may be empty, has the remaining counts and the withdrawn papers."""
        for paper in papers:
            self.add(paper)
            if self.full:
                yield self.flush()
        for paper_id in self.withdrawn:
            self._rows.append((paper_id, None, None, WITHDRAWN, 0, 0, 0, 0, False))
            self.read -= 1
        yield self.flush()

    def flush(self) -> PaperBatch:
        """Return the papers and the counts since the last flush."""
        self.read += len(self._rows)
        columns = list(zip(*self._rows, strict=True)) or [()] * 9
        names, titles, abstracts, years, masks, inbound, dois, lengths, lined = columns
        ids, cited = pa.array(names, pa.large_string()), reference_keys(self._cited)
        offsets, cited = distinct_references(id_keys(ids), np.array(lengths, np.int64), cited)
        self.noted["references_repeated_or_self"] += len(self._cited) - len(cited)
        arrays = [
            ids,
            normalise_all(titles),
            normalise_all(abstracts, {row for row, is_lined in enumerate(lined) if is_lined}),
            pa.array(years, pa.int16()),
            pa.array(masks, pa.uint32()),
            pa.LargeListArray.from_arrays(offsets, cited, type=RAW_PAPERS.field("outbound").type),
            pa.array(inbound, pa.int32()),
            pa.array(dois, pa.uint64()),
        ]
        self._clear()
        return PaperBatch(pa.RecordBatch.from_arrays(arrays, schema=RAW_PAPERS), **self.counts())

    def _year(self, year: int | None) -> int:
        if year is None:
            return NO_YEAR
        if year in YEARS:
            return year
        self.noted["impossible_year"] += 1
        return NO_YEAR

    def _mask(self, fields: Sequence[str]) -> int:
        mask = 0
        for name in fields:
            bit = FIELD_BIT.get(name)
            if bit is None:
                self.noted[f"unknown_field: {name}"] += 1
            else:
                mask |= 1 << bit
        return mask


def papers_of(documents: Iterable[tuple[int, Any]], tally: Tally) -> Iterator[Paper]:
    """Yield documents of a benchmark, records with ``id``, ``title`` and ``text``, as papers with these alone."""
    for line_number, document in documents:
        if document.id in (None, ""):
            tally.drop("no_paper_id", line_number)
        else:
            yield Paper(id=str(document.id), title=document.title, abstract=document.text)


def distinct_references(keys: Keys, lengths: npt.NDArray[np.int64], cited: Keys) -> tuple[npt.NDArray[np.int64], Keys]:
    """Remove self-citations and repetitions from each paper's references.

    Args:
        keys: keys of the papers, uint64 ``[n]``.
        lengths: number of references of each paper, int64 ``[n]``.
        cited: concatenated keys of the references, uint64 ``[sum(lengths)]``.

    Returns:
        Offsets, int64 ``[n + 1]``, and the remaining references, uint64, rising within a paper.
    """
    owner = np.repeat(np.arange(len(keys), dtype=np.min_scalar_type(len(keys))), lengths)  # 16 bits sort fast
    is_other = cited != keys[owner]
    owner, cited = distinct_pairs(owner[is_other], cited[is_other])
    return offsets_of(owner, len(keys)), cited
