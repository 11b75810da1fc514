"""What tables and figures of studies share: figures with intervals, in points, and charts as figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.plot import draw
from pipeline.scores.tables import grid
from pipeline.studies.base import StudyFigure, StudyTable


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


def points(figures: Iterable[float], digits: int = 1) -> str:
    """Return a difference of fractions, and the ends of its interval, in points."""
    value, low, high = (f"{100 * figure:+.{digits}f}" for figure in figures)
    return f"{value} [{low}, {high}]"


def in_points(value: str = "difference", low: str = "low", high: str = "high", digits: int = 1) -> pl.Expr:
    """Return columns of differences with their intervals as :func:`points`, named like the first."""
    figures = pl.struct(value, low, high)
    return figures.map_elements(lambda row: points(row.values(), digits), pl.String).alias(value)


def formatted(name: str, form: str) -> pl.Expr:
    """Return a column of numbers as text, such as ``.4f``; null stays."""
    return pl.col(name).map_elements(f"{{:{form}}}".format, pl.String)


def share(label: str, column: str, count: int, total: int) -> Measurement:
    """Return a share with its Wilson interval; NaN of nothing."""
    from scipy.stats import binomtest

    if not total:
        return Measurement(label, column, math.nan, math.nan, math.nan)
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return Measurement(label, column, count / total, float(interval.low), float(interval.high))


def series(frame: pl.DataFrame, label: str, x: str) -> Iterator[Series]:
    """Yield the points of each ``label`` by ``x``, with the columns ``value``, ``low`` and ``high``."""
    for rows in frame.partition_by(label, maintain_order=True):
        yield Series(rows[label][0], *(rows[name].to_list() for name in (x, "value", "low", "high")))


def views_of(name: str, chart: Chart) -> list[tuple[str, Chart, str]]:
    """Return each view of a chart, with the stem of its files: ``NAME-VIEW``."""
    return [(f"{name}-{view}".lower().replace(" ", "-"), chart, view) for view in chart.views]


def drawn(plots: Iterable[tuple[str, Chart, str]]) -> list[StudyFigure]:
    """Return views of charts (:func:`pipeline.scores.charts.figures`), which the page shows too, as figures."""
    return [StudyFigure(name, partial(draw, chart=chart, view=view), charted=True) for name, chart, view in plots]
