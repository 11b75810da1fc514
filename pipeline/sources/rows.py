"""The one path from raw records to batches: text rules, reference keys, impossible years, unknown fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key, id_keys, normalise
from pipeline.sources.base import BATCH_ROWS, EXAMPLES, RAW_PAPERS, Batch

YEARS = range(1500, 2101)
"""Years a paper can have; another one counts as missing."""


class Kept(NamedTuple):
    """A record that is to be kept, as its release has it.

    Attributes:
        id: of the paper.
        title: as it is written.
        abstract: as it is written.
        year: of publication.
        fields: names of its fields of study.
        outbound: ids of the papers it cites.
        inbound: ids of the papers that cite it; their number where the release does not list them.
        doi: as it is written.
    """

    id: str
    title: str | None
    abstract: str | None
    year: int | None = None
    fields: Sequence[str] = ()
    outbound: Sequence[str] = ()
    inbound: Sequence[str] | int = ()
    doi: str | None = None

    @property
    def citing(self) -> int:
        """How many other papers cite it."""
        if isinstance(self.inbound, int):
            return self.inbound
        distinct = set(self.inbound)
        return len(distinct) - (self.id in distinct)


class Rows(ABC):
    """Collects records of one part, and counts them: read, dropped by reason, and what else was noted.

    Args:
        path: the file the records come from, named in examples of bad records.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown: Counter[str] = Counter()
        self._restart()

    def _restart(self) -> None:
        self._read = 0
        self._dropped: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._examples: list[str] = []

    @abstractmethod
    def add(self, paper: Kept) -> None:
        """Add one record."""

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count one record that is not kept, and keep the first few of each reason to be shown."""
        self._read += 1
        self._dropped[reason] += 1
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self._examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def batch(self, papers: pa.RecordBatch) -> Batch:
        """Return papers with what was counted since the last call."""
        batch = Batch(papers, self._read, self._dropped, +self._noted, self._examples)
        self._restart()
        return batch

    def year(self, year: int | None) -> int:
        """Return a possible year, or :data:`pipeline.core.schema.NO_YEAR`; an impossible one is noted."""
        if year is None:
            return NO_YEAR
        if year not in YEARS:
            self._noted["impossible_year"] += 1
            return NO_YEAR
        return year

    def mask(self, fields: Sequence[str]) -> int:
        """Return the mask of the known fields; the others are noted by name."""
        mask = 0
        for name in fields:
            bit = FIELD_BIT.get(name)
            if bit is None:
                self._noted[f"unknown_field: {name}"] += 1
            else:
                mask |= 1 << bit
        return mask


class RowBuffer(Rows):
    """Collects records of one part and hands them out as :class:`Batch` es."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._clear()

    def _clear(self) -> None:
        self._ids: list[str] = []
        self._titles: list[str] = []
        self._abstracts: list[str] = []
        self._years: list[int] = []
        self._fields: list[int] = []
        self._outbound: list[str] = []
        self._lengths: list[int] = []
        self._inbound: list[int] = []
        self._dois: list[int] = []

    def add(self, paper: Kept) -> None:
        """Add one record."""
        self._read += 1
        self._ids.append(paper.id)
        self._titles.append(normalise(paper.title))
        self._abstracts.append(normalise(paper.abstract))
        self._years.append(self.year(paper.year))
        self._fields.append(self.mask(paper.fields))
        self._outbound.extend(paper.outbound)
        self._lengths.append(len(paper.outbound))
        self._inbound.append(paper.citing)
        self._dois.append(doi_key(paper.doi) if paper.doi else 0)

    @property
    def full(self) -> bool:
        """Whether the buffer holds a batch's worth."""
        return len(self._ids) >= BATCH_ROWS

    def flush(self) -> Batch:
        """Return what was collected since the last flush."""
        keys = id_keys(self._ids)
        lengths = np.array(self._lengths, np.int64)
        offsets, cited = distinct_references(keys, lengths, id_keys(self._outbound))
        self._noted["references_repeated_or_self"] += len(self._outbound) - len(cited)
        papers = pa.RecordBatch.from_arrays(
            [
                pa.array(self._ids, pa.large_string()),
                pa.array(self._titles, pa.large_string()),
                pa.array(self._abstracts, pa.large_string()),
                pa.array(np.array(self._years, np.int16)),
                pa.array(np.array(self._fields, np.uint32)),
                pa.LargeListArray.from_arrays(offsets, cited, type=RAW_PAPERS.field("outbound").type),
                pa.array(np.array(self._inbound, np.int32)),
                pa.array(np.array(self._dois, np.uint64)),
            ],
            schema=RAW_PAPERS,
        )
        self._clear()
        return self.batch(papers)


def distinct_references(keys: np.ndarray, lengths: np.ndarray, cited: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Remove self-citations and repetitions from each paper's references.

    Args:
        keys: uint64 ``[n]``, key of each paper.
        lengths: int64 ``[n]``, number of references each paper lists.
        cited: uint64 ``[sum(lengths)]``, keys of the references, paper after paper.

    Returns:
        offsets int64 ``[n + 1]`` and the references kept, rising within a paper.
    """
    owner = np.repeat(np.arange(len(keys)), lengths)
    kept = cited != keys[owner]
    owner, cited = owner[kept], cited[kept]
    order = np.lexsort((cited, owner))
    owner, cited = owner[order], cited[order]
    if len(cited):
        first = np.ones(len(cited), dtype=bool)
        first[1:] = (owner[1:] != owner[:-1]) | (cited[1:] != cited[:-1])
        owner, cited = owner[first], cited[first]
    return np.searchsorted(owner, np.arange(len(keys) + 1)), cited
