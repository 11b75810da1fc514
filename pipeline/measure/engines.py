"""Measuring a run: by the definitions of the table, or by ranx; average precision of many runs by their ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, nearest
from pipeline.measure.hits import Hits, Relevant
from pipeline.measure.inputs import Qrels, Run, check_measurable, query_of
from pipeline.measure.measures import MEASURES, Measure

ENGINES = ("numpy", "ranx")
"""``numpy``: the definitions of the table. ``ranx``: the same values within 1e-12, after it compiled its kernels."""


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure], engine: str = "numpy") -> npt.NDArray[np.float64]:
    """Return the value of each measure for each query.

    Args:
        qrels: relevant papers; every query has one.
        run: retrieved papers of the same queries; a query that retrieved nothing scores 0.
        measures: what to compute.
        engine: one of :data:`ENGINES`.

    Returns:
        Fractions, float64 ``[measures, queries]``, the same whatever the number of threads.

    Raises:
        InputError: a query has no positive, qrels and run are of different queries, or there is no such engine.
    """
    check_engine(engine)
    check_measurable(qrels, run)
    for measure in (measure for measure in measures if measure.relevant > 1):
        without = np.flatnonzero(qrels.graded(measure.relevant).positives() == 0)
        if len(without):
            raise InputError(
                f"{measure} needs a paper of grade {measure.relevant} or more of each query, got none of "
                f"{len(without):,} queries, first query {without[0]}",
                "Leave the measure out",
            )
    if engine == "ranx":
        from pipeline.measure import ranx_engine

        return ranx_engine.evaluate(qrels, run, measures)
    hits = Hits.of(qrels, run)
    return np.stack([measure.compute(hits) for measure in measures])


def check_engine(engine: str) -> None:
    """Check that an engine is one of :data:`ENGINES`.

    Raises:
        InputError: it is not.
    """
    if engine not in ENGINES:
        raise InputError(f"there is no measure engine {engine!r}", nearest(engine, ENGINES))


def average_precision(ranks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the average precision of every query in every ranking, float64 ``[queries, rankings]``.

    Args:
        ranks: int64 ``[relevant, rankings]``, from 1; 0 where a relevant paper was not retrieved; in any order within a
            query.
        offsets: int64 ``[queries + 1]``, where each query's relevant papers start; a query without any has NaN.
    """
    query, positives = query_of(offsets), np.diff(offsets)
    values = np.empty((len(positives), ranks.shape[1]))
    for number, column in enumerate(ranks.T):
        order = np.lexsort((column, query))
        order = order[column[order] > 0]
        relevant = Relevant(query[order], column[order], np.ones(len(order), np.int64))
        with np.errstate(invalid="ignore"):
            values[:, number] = MEASURES["map"].compute(Hits(relevant, relevant, positives, positives))
    return values
