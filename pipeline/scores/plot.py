"""Plots of frames of scores, for notebooks: ``mdcr.plot.by_size(frame)``.

A frame has a row for each query, as :meth:`pipeline.api.Workspace.scores` returns it. Figures are matplotlib's.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from pipeline.core.errors import InputError
from pipeline.scores import charts
from pipeline.scores.average import Draws
from pipeline.scores.figures import draw, drawing
from pipeline.scores.page.parts import Chart
from pipeline.scores.store import load_runs
from pipeline.scores.summary import summarise
from pipeline.scores.tables import label_of


def by_size(frame: pl.DataFrame, measure: str = "map", *, seed: int | None = None) -> Any:
    """Return a figure of a measure against the number of candidates: a line and a 95% band for each system.

    Raises:
        InputError: the frame has no score of the measure, or several fields, or pools of one size that differ.
    """
    points = _points(frame, measure, seed)
    if points["field"].n_unique() > 1:
        raise InputError("by_size takes the scores of one field", 'Choose one: frame.filter(field="Medicine")')
    if points.select("size", "label").is_duplicated().any():
        raise InputError(
            "by_size takes pools that differ in size alone", "Choose some, as in ws.scores(year=2019, queries=200)"
        )
    return _drawn(charts.by_size(points, load_runs(frame)), measure)


def by_field(frame: pl.DataFrame, measure: str = "map", *, seed: int | None = None) -> Any:
    """Return a figure of a measure by field: a dot with its 95% interval for each system.

    Raises:
        InputError: the frame has no score of the measure, or several pool sizes of one field.
    """
    points = _points(frame, measure, seed)
    if points.select("field", "label").is_duplicated().any():
        raise InputError("by_field takes one pool size", "Choose one: frame.filter(size=100_000)")
    return _drawn(charts.by_field(points, load_runs(frame)), measure)


def _points(frame: pl.DataFrame, measure: str, seed: int | None) -> pl.DataFrame:
    chosen = frame.filter(pl.col("measure") == measure)
    if chosen.is_empty():
        scored = ", ".join(frame["measure"].unique(maintain_order=True))
        raise InputError(f"the measure must be one that was scored, got {measure!r}", f"Choose from {scored}")
    return summarise(chosen, draws=Draws(seed=seed))


def _drawn(chart: Chart, measure: str) -> Any:
    with drawing() as figure_class:
        return draw(figure_class, chart, label_of(measure))
