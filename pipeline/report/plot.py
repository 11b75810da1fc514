"""Plots of frames of scores, for notebooks: ``mdcr.plot.by_size(frame)``.

A frame has a row for each query, as :meth:`pipeline.api.Workspace.scores` returns it. Figures are matplotlib's.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.report.figures import draw, drawing
from pipeline.report.frame import as_json
from pipeline.report.page.parts import Chart, Series
from pipeline.report.tables import label_of

_ROW = ["corpus", "field", "year", "split", "size", "seed", "pool_settings", "system", "depth", "settings", "measure"]


def summary(frame: pl.DataFrame, *, seed: int = 13) -> pl.DataFrame:
    """Return means with 95% bootstrap intervals over queries, a row for each system, pool and measure.

    Samples of a pool are averaged query by query. Pools that differ in another setting have rows of their own.

    Args:
        frame: scores.
        seed: of the bootstrap.

    Returns:
        ``corpus, field, year, split, size, seed, pool_settings, system, depth, settings, measure, value, low, high,
        queries, samples``; values are fractions, and ``pool_settings`` leave out the sample.
    """
    unsampled = {text: _without_sample(text) for text in frame["pool_settings"].unique()}
    frame = frame.with_columns(pl.col("pool_settings").replace_strict(unsampled, return_dtype=pl.String))
    by_query = frame.group_by([*_ROW, "query"], maintain_order=True).agg(
        pl.col("value").mean(), pl.col("sample").n_unique().alias("samples")
    )
    rows = []
    for key, part in by_query.group_by(_ROW, maintain_order=True):
        values = part.sort("query")["value"].to_numpy()[None, :]
        named = dict(zip(_ROW, key, strict=True))
        means = bootstrap_means(values, seed=seed, item=named["field"] or "")
        low, high = confidence_interval(means, values)
        found = {"value": values.mean(), "low": low[0], "high": high[0], "queries": values.shape[1]}
        rows.append({**named, **found, "samples": part["samples"].max()})
    return pl.DataFrame(rows, infer_schema_length=None)


def _without_sample(pool_settings: str) -> str:
    return as_json({name: value for name, value in json.loads(pool_settings).items() if name != "sample"})


def by_size(frame: pl.DataFrame, measure: str = "map", *, seed: int = 13) -> Any:
    """Return a figure of a measure against the number of candidates: a line and a 95% band for each system.

    Raises:
        InputError: the frame has no score of the measure, or several fields, or pools of one size that differ.
    """
    points = _points(frame, measure, seed)
    if points["field"].n_unique() > 1:
        raise InputError("by_size takes the scores of one field", 'Choose one: frame.filter(field="Medicine")')
    sizes = sorted(points["size"].unique())
    lines = [(system, part.sort("size")) for system, part in _systems(points)]
    if any(part["size"].is_duplicated().any() for _, part in lines):
        raise InputError(
            "by_size takes pools that differ in size alone", "Choose some, as in ws.scores(year=2019, queries=200)"
        )
    series = [_series(system, part, part["size"].to_list()) for system, part in lines]
    ticks = {size: format_count(size) for size in sizes}
    return _drawn(Chart("", "candidates", "%", {label_of(measure): series}, log=True, ticks=ticks), measure)


def by_field(frame: pl.DataFrame, measure: str = "map", *, seed: int = 13) -> Any:
    """Return a figure of a measure by field: a dot with its 95% interval for each system.

    Raises:
        InputError: the frame has no score of the measure, or several pool sizes of one field.
    """
    points = _points(frame, measure, seed)
    fields = sorted(points["field"].unique().to_list(), key=str)
    systems = _systems(points)
    if any(part["field"].is_duplicated().any() for _, part in systems):
        raise InputError("by_field takes one pool size", "Choose one: frame.filter(size=100_000)")
    series = [_series(system, part, [fields.index(field) for field in part["field"]]) for system, part in systems]
    return _drawn(Chart("", "", "%", {label_of(measure): series}, categories=list(map(str, fields))), measure)


def _points(frame: pl.DataFrame, measure: str, seed: int) -> pl.DataFrame:
    chosen = frame.filter(pl.col("measure") == measure)
    if chosen.is_empty():
        known = ", ".join(frame["measure"].unique(maintain_order=True))
        raise InputError(f"the measure must be one that was scored, got {measure!r}", f"Choose from {known}")
    return summary(chosen, seed=seed)


def _systems(points: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the points of each system; the label names its depth where systems of one name differ in it."""
    several = points.group_by("system").agg(pl.col("depth").n_unique()).filter(pl.col("depth") > 1)["system"].to_list()
    return [
        (f"{system} (depth {depth})" if system in several else str(system), part)
        for (system, depth), part in points.group_by(["system", "depth"], maintain_order=True)
    ]


def _series(system: str, part: pl.DataFrame, places: list[float]) -> Series:
    return Series(system, places, *(part[name].to_list() for name in ("value", "low", "high")))


def _drawn(chart: Chart, measure: str) -> Any:
    with drawing() as figure_class:
        return draw(figure_class, chart, label_of(measure))
