"""Stores in segments: what is computed of a paper once, whatever number of pools it is in.

A segment is an artifact for one pool, with the papers that earlier segments lack: ``rows.arrow`` (its papers, rising)
and numbered files, each of consecutive papers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.artifact import Artifact, published
from pipeline.core.csr import Ints, find_sorted
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.order import Rows

ROWS = "rows.arrow"
AGAIN = "Remove that folder and run the same command again"


class Place(NamedTuple):
    """Papers of one file of a segment: rising rows, ``[n]``, and their positions among the papers of the file."""

    segment: int
    number: int
    rows: Rows
    positions: Ints


class _Segment:
    def __init__(self, artifact: Artifact, table: pa.Table, numbers: Ints, papers: Ints) -> None:
        self.artifact, self.numbers = artifact, numbers
        self.rows: Rows = table.column("row").chunk(0).to_numpy()
        self.edges: Ints = np.concatenate([[0], np.cumsum(papers, dtype=np.int64)])
        if self.edges[-1] != len(self.rows):
            raise CorruptError(
                f"{artifact.path} has files of {self.edges[-1]:,} papers and lists {len(self.rows):,}", AGAIN
            )


class SegmentStore(ABC):
    """Reads a store; a paper in several segments is read from the first of them by name.

    Memory: 4 bytes a stored paper. Messages say what papers outside have not (``absent``), and what adds them
    (``remedy``). Raises CorruptError if a segment's list of rows differs from its manifest or its files.
    """

    absent: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(self, folder: Path, segments: Iterable[Artifact]) -> None:
        self._folder = folder
        tables = ((artifact, artifact.arrow(ROWS)) for artifact in segments)
        self._segments = [_Segment(artifact, table, *self._files(artifact, table)) for artifact, table in tables]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the store in ``folder`` with all segments published there."""
        return cls(folder, published(folder))

    @classmethod
    def without(cls, folder: Path, pool: Artifact) -> Self:
        """Open the store without the segment of one pool."""
        return cls(folder, (segment for segment in published(folder) if segment.manifest.inputs["pool"] != pool.id))

    @property
    def rows(self) -> Rows:
        """Rows of all papers of the store: uint32, rising."""
        return np.unique(np.concatenate([np.empty(0, np.uint32), *(segment.rows for segment in self._segments)]))

    def missing(self, rows: npt.NDArray[np.integer]) -> Rows:
        """Return those of ``rows`` that no segment has."""
        return np.asarray(rows, np.uint32)[self._locate(rows)[0] < 0]

    def check(self, rows: Rows) -> None:
        """Raise StageError if papers are in no segment."""
        missing = self.missing(rows)
        if len(missing):
            raise StageError(
                f"{len(missing):,} of {len(rows):,} papers have no {self.absent} in {self._folder} (the first: row "
                f"{missing[0]})",
                f"{self.remedy}; if a folder was removed there by hand, remove the whole store first",
            )

    def places(self, rows: Rows) -> Iterator[Place]:
        """Yield the papers at ``rows``, which rise and are in the store, file by file."""
        owners, positions = self._locate(rows)
        for index, segment in enumerate(self._segments):
            own = np.flatnonzero(owners == index)
            bounds = np.searchsorted(positions[own], segment.edges)
            for file in np.flatnonzero(np.diff(bounds)).tolist():
                papers = own[bounds[file] : bounds[file + 1]]
                yield Place(index, int(segment.numbers[file]), rows[papers], positions[papers] - segment.edges[file])

    @abstractmethod
    def _files(self, artifact: Artifact, table: pa.Table) -> tuple[Ints, Ints]:
        """Return the numbers of a segment's files, rising, and their numbers of papers; ``table`` is its list."""

    def _locate(self, rows: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int32], Ints]:
        """Return the number of the segment of each row, or -1, and the position of the row in its list."""
        owners, positions = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
        for index, segment in enumerate(self._segments):
            position, present = find_sorted(segment.rows, rows)
            found = present & (owners < 0)
            owners[found], positions[found] = index, position[found]
        return owners, positions
