"""Measuring a run: by the definitions of the table, or by ranx."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, nearest
from pipeline.measure.hits import Hits
from pipeline.measure.inputs import Qrels, Run, check_measurable
from pipeline.measure.measures import Measure

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
