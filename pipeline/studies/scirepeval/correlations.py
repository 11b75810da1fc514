"""Correlation of the benchmark's figures over systems (Singh et al. 2023, appendix G)."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl

from pipeline.measure.statistics import Floats
from pipeline.scores.page.parts import HeatMap
from pipeline.scores.tables import frame_table
from pipeline.studies.base import StudyTable

LEAST_SYSTEMS = 3
"""Systems a correlation needs."""
_LARGEST_SUBSET = 4
_EQUAL = 12
"""Decimals to which means are compared."""


def correlations(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return the labels, and Pearson's correlation over systems, ``[figures, figures]``; NaN where one is constant."""
    names, values = by_label(figures)
    with np.errstate(invalid="ignore", divide="ignore"):
        return names, np.corrcoef(values, rowvar=False).reshape(len(names), -1)


def smallest_subset(figures: pl.DataFrame) -> list[str] | None:
    """Return the fewest figures, up to four, whose mean orders the systems like the mean of all; None: no so few do.

    Systems that are equal by one mean must be so by the other. Of several such subsets it is the one whose means are
    nearest to those of all, but for a shift.
    """
    from scipy.stats import rankdata

    names, values = by_label(figures)
    means = values.mean(axis=1)
    order = rankdata(means.round(_EQUAL))
    for size in range(1, _LARGEST_SUBSET + 1):
        distances = {}
        for chosen in itertools.combinations(range(len(names)), size):
            change = values[:, chosen].mean(axis=1) - means
            if (rankdata((means + change).round(_EQUAL)) == order).all():
                distances[chosen] = float(change.var().round(_EQUAL))
        if distances:
            return [names[place] for place in min(distances, key=distances.__getitem__)]
    return None


def by_label(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return the labels of the figures, and float64 ``[systems, figures]``."""
    parts = figures.partition_by("system", maintain_order=True)
    return parts[0]["label"].to_list(), np.array([part["value"] for part in parts])


def correlated(figures: pl.DataFrame) -> StudyTable:
    """Return the figure that each is nearest to over systems; the CSV file has all pairs."""
    names, matrix = correlations(figures)
    np.fill_diagonal(matrix, np.nan)
    cells = ((*pair, value) for pair, value in zip(itertools.product(names, names), matrix.flat, strict=True))
    pairs = pl.DataFrame(cells, ["figure", "other", "correlation"], orient="row").fill_nan(None)
    highest = pl.col("correlation").max()
    other = pl.col("other").sort_by("correlation", descending=True, nulls_last=True, maintain_order=True).first()
    nearest = pl.when(highest.is_not_null()).then(other).alias("nearest")
    rows = pairs.group_by("figure", maintain_order=True).agg(nearest, highest)
    subset = smallest_subset(figures)
    notes = [f"The mean of {' and '.join(subset)} orders the systems like the mean of all."] if subset else []
    table = frame_table("SciRepEval: correlation of figures over systems", rows, notes, decimals=2)
    return StudyTable("correlations", table, pairs.filter(pl.col("figure") != pl.col("other")))


def correlation_heat(figures: pl.DataFrame, source: str) -> HeatMap:
    """Return the correlation of each two figures over systems."""
    names, matrix = correlations(figures)
    cells = [[None if np.isnan(value) else value for value in row] for row in matrix.tolist()]
    return HeatMap("Correlation of tasks over systems", "task", names, names, {"correlation": cells}, source)
