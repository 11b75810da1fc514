"""Convert raw records to batches of papers: text rules, reference keys, impossible years, unknown fields."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Keys, distinct_pairs, offsets_of
from pipeline.core.errors import InputError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key, id_keys, normalise_all, reference_keys
from pipeline.sources.base import (
    BATCH_CHARS,
    BATCH_ROWS,
    RAW_PAPERS,
    WITHDRAWN,
    PaperBatch,
    Release,
    find_files,
    fingerprint,
    grouped,
)
from pipeline.sources.content import first_record, lines_command
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
    record: ClassVar[Any] = None
    """Struct whose keys are read, if the files are JSON."""

    @property
    def root(self) -> Path:
        """Folder that the names of parts are relative to."""
        return self.folder.parent if self.folder.is_file() else self.folder

    def files(self) -> list[Path]:
        """Return the files, in the release's order."""
        return [self.folder] if self.folder.is_file() else find_files(self.folder, self.patterns, self.contents)

    @abstractmethod
    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the papers of one file, those without an id too; count dropped records in ``tally``."""

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the settings; truncated files are refused."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _COMMON_FIELDS}
        return {"files": fingerprint(self.files(), self.root), "allow_truncated": False, **settings}

    def parts(self) -> Sequence[str]:
        """Return the paths of the files below :attr:`root`."""
        return [path.relative_to(self.root).as_posix() for path in self.files()]

    def read(self, part: str) -> Iterator[Any]:
        """Yield the papers of one file.

        Raises:
            CorruptError: the file is truncated or damaged.
            InputError: no record of the file has an id.
        """
        tally = Tally(self.root / part, self)
        return paper_batches(self._with_ids(self.papers(tally), tally.path), tally)

    def _with_ids(self, papers: Iterable[Paper], path: Path) -> Iterator[Paper]:
        """Yield papers; InputError if there are some, and none has an id."""
        with_id = without = 0
        for paper in papers:
            with_id, without = with_id + bool(paper.id), without + (not paper.id)
            yield paper
        if without and not with_id:
            self._refuse(path, "an id")

    def refuse_untitled(self) -> None:
        """Raise InputError if the first record has no key of a title."""
        path = self.files()[0]
        if self.record and not first_record(path).keys() & {"title", "display_name"}:
            self._refuse(path, "a title")

    def _refuse(self, path: Path, lacking: str, record: type[msgspec.Struct] | None = None) -> None:
        found, known = list(first_record(path))[:20], getattr(record or self.record, "__struct_encode_fields__", ())
        command = lines_command(path, first_record(path))
        raise InputError(
            f"no record of {path} has {lacking}: the first has {', '.join(found) or 'no keys'}"
            f"{', and read are ' * bool(known)}{', '.join(known)}",
            f"Write a paper a line: {command}" if command else "Give the files of this source, or see --source jsonl",
        )


_COMMON_FIELDS = {field.name for field in fields(FileRelease)}

_Row = tuple[str, str | None, str | None, int, int, int, int, int, bool]
"""Id, title, abstract, year, mask of fields, citing papers, key of the DOI, number of references, whether lined."""


def paper_batches(papers: Iterable[Paper], tally: Tally) -> Iterator[PaperBatch]:
    """Yield the papers of a file that have an id in batches, with the counts of ``tally``; drop the others.

    The last batch, which may be empty, has the remaining counts and the withdrawn papers.
    """
    cited = list[str]()  # by the papers of the block, one after the other
    withdrawn: Iterator[_Row] = ((name, None, None, WITHDRAWN, 0, 0, 0, 0, False) for name in tally.withdrawn)
    rows = itertools.chain(_rows(papers, tally, cited), withdrawn)
    for block in grouped(rows, _chars, BATCH_CHARS, BATCH_ROWS):
        columns = list(zip(*block, strict=True)) or [()] * 9
        names, titles, abstracts, years, masks, inbound, dois, lengths, lined = columns
        ids, keys = pa.array(names, pa.large_string()), reference_keys(cited)
        offsets, outbound = distinct_references(id_keys(ids), np.array(lengths, np.int64), keys)
        tally.noted["references_repeated_or_self"] += len(keys) - len(outbound)
        cited.clear()
        arrays = [
            ids,
            normalise_all(titles),
            normalise_all(abstracts, {row for row, is_lined in enumerate(lined) if is_lined}),
            pa.array(years, pa.int16()),
            pa.array(masks, pa.uint32()),
            pa.LargeListArray.from_arrays(offsets, outbound, type=RAW_PAPERS.field("outbound").type),
            pa.array(inbound, pa.int32()),
            pa.array(dois, pa.uint64()),
        ]
        yield PaperBatch(pa.RecordBatch.from_arrays(arrays, schema=RAW_PAPERS), **tally.counts())


def _rows(papers: Iterable[Paper], tally: Tally, cited: list[str]) -> Iterator[_Row]:
    for paper in papers:
        if not paper.id:
            tally.drop("no_paper_id")
            continue
        tally.read += 1
        year, outbound, inbound = paper.year, paper.outbound or (), paper.inbound or 0
        if year is not None and year not in YEARS:
            tally.noted["impossible_year"] += 1
            year = None
        inbound = inbound if isinstance(inbound, int) else len(inbound) - (paper.id in inbound)
        mask, doi = _mask(paper.fields, tally) if paper.fields else 0, doi_key(paper.doi) if paper.doi else 0
        title, abstract = tally.cut(paper.title), tally.cut(paper.abstract)
        cited.extend(outbound)
        year = NO_YEAR if year is None else year
        yield paper.id, title, abstract, year, mask, inbound, doi, len(outbound), paper.lined


def _chars(row: _Row) -> int:
    return len(row[1] or "") + len(row[2] or "") + _REFERENCE_CHARS * row[7]


def _mask(fields: Sequence[str], tally: Tally) -> int:
    mask = 0
    for name in fields:
        bit = FIELD_BIT.get(name)
        if bit is None:
            tally.noted[f"unknown_field: {name}"] += 1
        else:
            mask |= 1 << bit
    return mask


class Document(msgspec.Struct):
    """A document or a query of a benchmark; a text may be in pieces."""

    id: str | int | None = None
    title: str | None = None
    text: str | list[str] | None = None

    @property
    def whole(self) -> str | None:
        """The text."""
        return " ".join(self.text) if isinstance(self.text, list) else self.text


def papers_of(documents: Iterable[Document]) -> Iterator[Paper]:
    """Yield documents of a benchmark as papers without year, field or references."""
    for document in documents:
        yield Paper(id="" if document.id is None else str(document.id), title=document.title, abstract=document.whole)


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
