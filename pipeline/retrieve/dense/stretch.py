"""Candidates of several blocks that are scored together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pipeline.core.order import Rows
from pipeline.retrieve.base import Vectors
from pipeline.retrieve.dense import kernels
from pipeline.retrieve.dense.frame import CODES, Frame
from pipeline.retrieve.dense.pairs import Doubles, Visits


@dataclass
class Chunk:
    """Candidates that follow one another, the work of one thread.

    Attributes:
        number: of the chunk.
        start: position of its first candidate.
        rows: uint32 ``[m]``.
        vectors: the stored values ``[m, d]``; float32 from when it is worked at.
        norms: float64 ``[m]``, lengths of ``vectors``, where the metric is about them; written when it is worked at.
    """

    number: int
    start: int
    rows: Rows
    vectors: Vectors
    norms: Doubles

    def __len__(self) -> int:
        return len(self.rows)


class Stretch:
    """Candidates met so far, some of them not worked at yet. One thread adds to it while others score."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._length = 0
        self._rows: Rows = np.empty(0, np.uint32)

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> Rows:
        """Rows of all candidates, uint32, rising; joined when somebody asks."""
        rows, chunks = self._rows, list(self.chunks)
        if not chunks or len(rows) < chunks[-1].start + len(chunks[-1]):
            self._rows = rows = np.concatenate([rows[:0], *(chunk.rows for chunk in chunks)])
        return rows

    def add(self, rows: Rows, vectors: Vectors, count: int) -> list[Chunk]:
        """Add candidates and return them in so many chunks."""
        limits = np.linspace(0, len(rows), count + 1).astype(np.int64).tolist()
        added: list[Chunk] = []
        for first, last in itertools.pairwise(limits):
            if last > first:
                here, start = slice(first, last), self._length + first
                added.append(
                    Chunk(len(self.chunks) + len(added), start, rows[here], vectors[here], np.empty(last - first))
                )
        self.chunks.extend(added)
        self._length += len(rows)
        return added

    def score(self, frame: Frame, visits: Visits, canonical: Doubles) -> None:
        """Write the canonical scores of pairs before their rounding (:func:`pipeline.retrieve.dense.kernels.score`)."""
        above = visits.query_bits + visits.index_bits
        chunks = list(self.chunks)
        limits = np.array([chunk.start for chunk in chunks] + [self._length], np.int64)
        places = np.searchsorted(visits.packed, limits << above).tolist()
        for chunk, first, last in zip(chunks, places[:-1], places[1:], strict=True):
            if last > first:
                here = visits._replace(packed=visits.packed[first:last] - (chunk.start << above))
                kernels.score(
                    CODES[frame.metric], frame.queries, frame.norms, chunk.vectors, chunk.norms, here, canonical
                )
