"""Tables that studies share: figures with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from pipeline.scores.tables import grid
from pipeline.studies.base import StudyTable


class Measurement(NamedTuple):
    """One figure: where it stands in a table, its value and 95% interval, its standard deviation if it has one."""

    label: str
    column: str
    value: float
    low: float
    high: float
    deviation: float | None = None


_SCHEMA = {"label": pl.String, "column": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}


def interval_table(
    name: str, title: str, corner: str, rows: Iterable[Measurement], notes: Sequence[str] = (), scale: float = 100
) -> StudyTable:
    """Return figures as a table; ``scale`` multiplies them where they are shown, and NaN is left out."""
    rows = list(rows)
    frame = pl.DataFrame([row[:5] for row in rows], schema=_SCHEMA, orient="row").rename({"label": corner})
    cells = {row[:2]: text(row, scale) for row in rows}
    return StudyTable(name, grid(title, corner, cells, (*notes, "Brackets: 95% interval.")), frame)


def text(row: Measurement, scale: float = 100) -> str | None:
    """Return a figure as shown; its interval is left out where none is known."""
    if math.isnan(row.value):
        return None
    value, low, high = (f"{scale * figure:.{1 if scale > 1 else 2}f}" for figure in row[2:5])
    return value if math.isnan(row.low) else f"{value} [{low}, {high}]"


def points(row: Mapping[str, Any]) -> str:
    """Return a ``difference`` with its interval, in points."""
    difference, low, high = (f"{100 * row[name]:+.1f}" for name in ("difference", "low", "high"))
    return f"{difference} [{low}, {high}]"


def share(label: str, column: str, count: int, total: int) -> Measurement:
    """Return a share with its Wilson interval; NaN of nothing."""
    from scipy.stats import binomtest

    if not total:
        return Measurement(label, column, math.nan, math.nan, math.nan)
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return Measurement(label, column, count / total, float(interval.low), float(interval.high))
