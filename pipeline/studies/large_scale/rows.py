"""Tables of figures with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from pipeline.report.tables import Column, Line, Table
from pipeline.studies.base import StudyTable


class Row(NamedTuple):
    """One figure: where it stands in a table, its value and 95% interval."""

    label: str
    column: str
    value: float
    low: float
    high: float


def table(
    name: str, title: str, corner: str, rows: Iterable[Row], notes: Sequence[str] = (), scale: float = 100
) -> StudyTable:
    """Return figures as a table; ``scale`` multiplies them where they are shown, and NaN is left out."""
    found = list(rows)
    frame = pl.DataFrame([row._asdict() for row in found], schema=_SCHEMA).rename({"label": corner})
    columns, labels = (list(dict.fromkeys(each)) for each in ([r.column for r in found], [r.label for r in found]))
    cells = {(row.label, row.column): text(row, scale) for row in found}
    lines = [Line(label, tuple(cells.get((label, column)) for column in columns)) for label in labels]
    told = (*notes, "Brackets: 95% interval.")
    return StudyTable(
        name, Table(title, corner, tuple(Column("", each) for each in columns), tuple(lines), told), frame
    )


_SCHEMA = {"label": pl.String, "column": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}


def text(row: Row, scale: float = 100) -> str | None:
    """Return a figure as shown; its interval is left out where none is known."""
    if math.isnan(row.value):
        return None
    value, low, high = (f"{scale * each:.{1 if scale > 1 else 2}f}" for each in row[2:])
    return value if math.isnan(row.low) else f"{value} [{low}, {high}]"


def share(label: str, column: str, count: int, total: int) -> Row:
    """Return a share with its Wilson interval; NaN of nothing."""
    from scipy.stats import binomtest

    if not total:
        return Row(label, column, math.nan, math.nan, math.nan)
    found = binomtest(count, total).proportion_ci(method="wilson")
    return Row(label, column, count / total, float(found.low), float(found.high))
