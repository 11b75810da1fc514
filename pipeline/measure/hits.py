"""At which ranks the relevant papers of each query were retrieved: all that a measure reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.measure.inputs import Offsets, Qrels, Run, pairs, places, query_of

_BLOCK = 1 << 22
"""Entries of a run that are looked up at a time."""

Integers = npt.NDArray[np.int64]


class Relevant(NamedTuple):
    """Relevant papers of all queries, sorted by query, then rank.

    Attributes:
        query: int64 ``[papers]``.
        rank: int64 ``[papers]``, from 1.
        grade: int64 ``[papers]``, from 1.
    """

    query: Integers
    rank: Integers
    grade: Integers

    def at(self, cutoff: int | Integers) -> Relevant:
        """Return those at a rank up to a cutoff, one for all queries or one each."""
        return self._of(self.rank <= (cutoff if isinstance(cutoff, int) else cutoff[self.query]))

    def graded(self, least: int) -> Relevant:
        """Return those of a grade of ``least`` or more."""
        return self._of(self.grade >= least)

    def _of(self, kept: npt.NDArray[np.bool_]) -> Relevant:
        return Relevant(self.query[kept], self.rank[kept], self.grade[kept])

    def nth(self) -> Integers:
        """Return the number of each paper among those of its query, from 1."""
        return np.arange(len(self.query)) - np.searchsorted(self.query, self.query) + 1


@dataclass(frozen=True, eq=False)
class Hits:
    """A run seen through its qrels.

    Attributes:
        retrieved: relevant papers at the rank where they were retrieved.
        ideal: all relevant papers in the best possible order: falling grade.
        positives: int64 ``[queries]``, relevant papers, retrieved or not.
        counted: int64 ``[queries]``, ranks that count: papers retrieved, or the cutoff.
    """

    retrieved: Relevant
    ideal: Relevant
    positives: Integers
    counted: Integers

    @classmethod
    def of(cls, qrels: Qrels, run: Run) -> Hits:
        """Look the relevant papers up in a run of the same queries."""
        judged = pairs(query_of(qrels.offsets), qrels.rows)
        order = np.argsort(judged)
        judged, grades = judged[order], qrels.grades[order]
        query, ranks = query_of(run.offsets), _ranks(run.offsets)
        parts = []
        for start in range(0, len(run.rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            place = places(pairs(query[part], run.rows[part]), judged)
            hit = np.flatnonzero(place >= 0)
            parts.append(Relevant(query[part][hit], ranks[part][hit], grades[place[hit]].astype(np.int64)))
        empty = np.empty(0, np.int64)
        retrieved = Relevant(*map(np.concatenate, zip(*parts, (empty, empty, empty), strict=True)))
        ideal = Relevant(query_of(qrels.offsets), _ranks(qrels.offsets), qrels.grades.astype(np.int64))
        return cls(retrieved, ideal, qrels.positives(), run.retrieved())

    def graded(self, least: int) -> Hits:
        """Return the hits where only papers of a grade of ``least`` or more are relevant."""
        ideal = self.ideal.graded(least)
        return Hits(
            self.retrieved.graded(least), ideal, np.bincount(ideal.query, minlength=len(self.positives)), self.counted
        )

    def share(self, percent: int) -> Hits:
        """Return the hits of the first ranks alone: a percentage of each query's, rounded down, at least one."""
        return self.at(np.maximum(self.counted * percent // 100, 1))

    def at(self, cutoff: int | Integers | None) -> Hits:
        """Return the hits of the first ranks alone; None: of the whole run."""
        if cutoff is None:
            return self
        return Hits(
            self.retrieved.at(cutoff), self.ideal.at(cutoff), self.positives, np.full_like(self.counted, cutoff)
        )


def _ranks(offsets: Offsets) -> Integers:
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
