"""At which ranks the judged papers of each query were retrieved: all that a measure reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.measure.inputs import Qrels, Run, pairs, query_of, ranks_of, within

Integers = npt.NDArray[np.int64]


class Relevant(NamedTuple):
    """Judged papers of all queries, mostly relevant ones, sorted by query, then rank.

    Attributes:
        query: int64 ``[papers]``.
        rank: int64 ``[papers]``, from 1.
        grade: int64 ``[papers]``, from 1 where the papers are relevant.
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

    def below(self, grade: int) -> Relevant:
        """Return those of a lower grade."""
        return self._of(self.grade < grade)

    def _of(self, kept: npt.NDArray[np.bool_]) -> Relevant:
        return Relevant(self.query[kept], self.rank[kept], self.grade[kept])

    def above(self, others: Relevant) -> Integers:
        """Return how many of ``others`` stand above each paper in the list of its query."""
        places, other_places = (pairs(papers.query, papers.rank) for papers in (self, others))
        return np.searchsorted(other_places, places) - np.searchsorted(others.query, self.query)

    def nth(self) -> Integers:
        """Return the number of each paper among those of its query, from 1."""
        return np.arange(len(self.query)) - np.searchsorted(self.query, self.query) + 1


NONE = Relevant(*np.empty((3, 0), np.int64))


@dataclass(frozen=True, eq=False)
class Hits:
    """A run seen through its qrels.

    Attributes:
        retrieved: relevant papers at the rank where they were retrieved.
        ideal: all relevant papers in the best possible order: falling grade.
        positives: int64 ``[queries]``, relevant papers, retrieved or not.
        counted: int64 ``[queries]``, ranks that count: papers retrieved, or the cutoff.
        others: retrieved papers with a judgement that are not relevant, at their ranks; negative grades are as of
            :class:`pipeline.measure.inputs.Qrels`.
        negatives: int64 ``[queries]`` or 0, papers judged not relevant, retrieved or not.
    """

    retrieved: Relevant
    ideal: Relevant
    positives: Integers
    counted: Integers
    others: Relevant = NONE
    negatives: Integers | int = 0

    @classmethod
    def of(cls, qrels: Qrels, run: Run) -> Hits:
        """Look the judged papers up in a run of the same queries."""
        ideal = Relevant(query_of(qrels.offsets), within(qrels.offsets) + 1, qrels.grades.astype(np.int64))
        hits = cls(_found(qrels, run), ideal, qrels.positives(), run.retrieved())
        if qrels.others is None:
            return hits
        refused = query_of(qrels.others.offsets)[qrels.others.grades == 0]
        negatives = np.bincount(refused, minlength=len(hits.positives))
        return replace(hits, others=_found(qrels.others, run), negatives=negatives)

    def graded(self, least: int) -> Hits:
        """Return the hits where only papers of a grade of ``least`` or more are relevant."""
        ideal, lower = self.ideal.graded(least), self.retrieved.below(least)
        positives = np.bincount(ideal.query, minlength=len(self.positives))
        others = [np.concatenate(columns) for columns in zip(lower, self.others, strict=True)]
        order = np.lexsort((others[1], others[0]))
        return replace(
            self,
            retrieved=self.retrieved.graded(least),
            ideal=ideal,
            positives=positives,
            others=Relevant(*(column[order] for column in others)),
            negatives=self.negatives + self.positives - positives,
        )

    def refused(self) -> Relevant:
        """Return the retrieved papers that are judged not relevant."""
        return self.others.graded(0)

    def condensed(self) -> Hits:
        """Return the hits as if what is not judged were not retrieved."""
        retrieved, refused = self.retrieved, self.refused()
        places = [retrieved.nth() + retrieved.above(refused), refused.nth() + refused.above(retrieved)]
        judged = np.bincount(np.concatenate([retrieved.query, refused.query]), minlength=len(self.positives))
        return replace(
            self,
            retrieved=retrieved._replace(rank=places[0]),
            others=refused._replace(rank=places[1]),
            counted=judged,
        )

    def share(self, percent: int) -> Hits:
        """Return the hits of the first ranks alone: a percentage of each query's, rounded down, at least one."""
        return self.at(np.maximum(self.counted * percent // 100, 1))

    def at(self, cutoff: int | Integers | None) -> Hits:
        """Return the hits of the first ranks alone; None: of the whole run."""
        if cutoff is None:
            return self
        return replace(
            self,
            retrieved=self.retrieved.at(cutoff),
            ideal=self.ideal.at(cutoff),
            counted=np.full_like(self.counted, cutoff),
            others=self.others.at(cutoff),
        )


def _found(judged: Qrels, run: Run) -> Relevant:
    """Return the judged papers at the ranks where a run of the same queries retrieved them."""
    query = query_of(judged.offsets)
    ranks = ranks_of(run, query, judged.rows)
    order = np.lexsort((ranks, query))
    hit = order[ranks[order] > 0]
    return Relevant(query[hit], ranks[hit], judged.grades[hit].astype(np.int64))
