"""Ranks of the judged papers in the lists of their queries: the input of all measures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of, within

Integers = npt.NDArray[np.int64]


class Relevant(NamedTuple):
    """Judged papers of all queries, by query, then rank from 1; grades are int64, exponential gains float64."""

    query: Integers
    rank: Integers
    grade: npt.NDArray[Any]

    def at(self, cutoff: int | Integers) -> Relevant:
        """Return the papers up to a cutoff, one for all queries or one for each."""
        return self._select(self.rank <= (cutoff if isinstance(cutoff, int) else cutoff[self.query]))

    def graded(self, min_grade: int) -> Relevant:
        """Return the papers of grade ``min_grade`` or more."""
        return self._select(self.grade >= min_grade)

    def _select(self, mask: npt.NDArray[np.bool_]) -> Relevant:
        return Relevant(self.query[mask], self.rank[mask], self.grade[mask])

    def nth(self) -> Integers:
        """Return the index of each paper among those of its query, from 1, int64 ``[papers]``."""
        return np.arange(len(self.query)) - np.searchsorted(self.query, self.query) + 1


NONE = Relevant(*np.empty((3, 0), np.int64))


@dataclass(frozen=True, eq=False)
class Hits:
    """The judged papers of a run.

    Attributes:
        retrieved: relevant papers at their ranks.
        ideal: all relevant papers in the best order: descending grade.
        positives: int64 ``[queries]``, number of relevant papers, retrieved or not.
        counted: int64 ``[queries]``, number of ranks that count: papers retrieved, or the cutoff.
        others: other judged papers at their ranks; :class:`pipeline.measure.inputs.Qrels` explains negative grades.
    """

    retrieved: Relevant
    ideal: Relevant
    positives: Integers
    counted: Integers
    others: Relevant = NONE

    @classmethod
    def of(cls, qrels: Qrels, run: RankedRun) -> Hits:
        """Return the hits of a run of the same queries."""
        ideal = Relevant(query_of(qrels.offsets), within(qrels.offsets) + 1, qrels.grades.astype(np.int64))
        hits = cls(_retrieved(qrels, run), ideal, qrels.positives(), run.retrieved())
        if qrels.others is None:
            return hits
        return replace(hits, others=_retrieved(qrels.others, run))

    def graded(self, min_grade: int) -> Hits:
        """Return the hits with papers of grade ``min_grade`` or more as the relevant ones."""
        ideal, less_relevant = self.ideal.graded(min_grade), self.retrieved._select(self.retrieved.grade < min_grade)
        others = [np.concatenate(columns) for columns in zip(less_relevant, self.others, strict=True)]
        order = np.lexsort((others[1], others[0]))
        return replace(
            self,
            retrieved=self.retrieved.graded(min_grade),
            ideal=ideal,
            positives=np.bincount(ideal.query, minlength=len(self.positives)),
            others=Relevant(*(column[order] for column in others)),
        )

    def nonrelevant(self) -> Relevant:
        """Return the retrieved papers that are judged not relevant."""
        return self.others.graded(0)

    def with_exponential_gains(self) -> Hits:
        """Return the hits with gains ``2**grade - 1`` as grades, divided by ``2**grade`` of each query's best paper."""
        best = np.zeros(len(self.positives), np.int64)
        np.maximum.at(best, self.ideal.query, self.ideal.grade)

        def gained(papers: Relevant) -> Relevant:
            top = best[papers.query].astype(np.float64)
            return papers._replace(grade=np.exp2(papers.grade - top) - np.exp2(-top))

        return replace(self, retrieved=gained(self.retrieved), ideal=gained(self.ideal))

    def share(self, percent: int) -> Hits:
        """Return the hits of the first ``percent`` of each query's ranks, rounded down, at least one rank."""
        return self.at(np.maximum(self.counted * percent // 100, 1))

    def at(self, cutoff: int | Integers | None) -> Hits:
        """Return the hits up to a cutoff; None: of the whole run."""
        if cutoff is None:
            return self
        return replace(
            self,
            retrieved=self.retrieved.at(cutoff),
            ideal=self.ideal.at(cutoff),
            counted=np.full_like(self.counted, cutoff),
            others=self.others.at(cutoff),
        )


def _retrieved(judged: Qrels, run: RankedRun) -> Relevant:
    """Return the judged papers that a run of the same queries retrieved, at their ranks."""
    query = query_of(judged.offsets)
    ranks = ranks_of(run, query, judged.rows)
    order = np.lexsort((ranks, query))
    hit = order[ranks[order] > 0]
    return Relevant(query[hit], ranks[hit], judged.grades[hit].astype(np.int64))
