"""Correlations of figures over systems (Singh et al. 2023, appendix G), and the figures that rank systems like all."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl

from pipeline.measure.statistics import Floats
from pipeline.scores.page.parts import HeatMap
from pipeline.scores.tables import Table, frame_table

LEAST_SYSTEMS = 3
"""Minimum number of systems of a correlation."""


def correlation_table(figures: pl.DataFrame) -> Table:
    """Return, for each figure, the figure that correlates most with it over systems; the CSV file has all pairs."""
    labels, matrix = _correlations(figures)
    np.fill_diagonal(matrix, np.nan)
    cells = ((*pair, value) for pair, value in zip(itertools.product(labels, labels), matrix.flat, strict=True))
    pairs = pl.DataFrame(cells, ["figure", "other", "correlation"], orient="row").fill_nan(None)
    highest = pl.col("correlation").max()
    other = pl.col("other").sort_by("correlation", descending=True, nulls_last=True, maintain_order=True).first()
    nearest = pl.when(highest.is_not_null()).then(other).alias("nearest")
    rows = pairs.group_by("figure", maintain_order=True).agg(nearest, highest)
    pairs, title = pairs.filter(pl.col("figure") != pl.col("other")), "SciRepEval: correlation of figures over systems"
    return frame_table("correlations", title, pairs, (), decimals=2, shown=rows)


def correlation_heat(figures: pl.DataFrame, source: str) -> HeatMap:
    """Return the correlation of each two figures over systems (Singh et al. 2023, appendix G)."""
    names, matrix = _correlations(figures)
    cells = pl.DataFrame(matrix).fill_nan(None).rows()
    return HeatMap("Correlation of tasks over systems", "task", names, names, {"correlation": cells}, source)


def _correlations(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return labels and Pearson's correlations over systems, ``[figures, figures]``; NaN for a constant figure."""
    names, values = by_label(figures)
    with np.errstate(invalid="ignore", divide="ignore"):
        return names, np.corrcoef(values, rowvar=False).reshape(len(names), -1)


def by_label(figures: pl.DataFrame) -> tuple[list[str], Floats]:
    """Return the labels of the figures, and float64 ``[systems, figures]``."""
    systems = figures.partition_by("system", maintain_order=True)
    return systems[0]["label"].to_list(), np.array([system["value"] for system in systems])
