"""Plots of frames of scores, for notebooks: ``mdcr.plot.by_size(frame)``.

A frame has a row for each query, as :meth:`pipeline.api.Workspace.scores` returns it. Figures are matplotlib's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.report.figures import COLOURS, MARKERS, WIDTH, drawing
from pipeline.report.tables import label_of

_ROW = ["corpus", "field", "split", "size", "seed", "system", "depth", "settings", "measure"]


def summary(frame: pl.DataFrame, *, seed: int = 13) -> pl.DataFrame:
    """Return means with 95% bootstrap intervals over queries, a row for each system, pool and measure.

    Samples of a pool are averaged query by query.

    Args:
        frame: scores.
        seed: of the bootstrap.

    Returns:
        ``corpus, field, split, size, seed, system, depth, settings, measure, value, low, high, queries, samples``;
        values are fractions.
    """
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


def by_size(frame: pl.DataFrame, measure: str = "map", *, seed: int = 13) -> Any:
    """Return a figure of a measure against the number of candidates: a line and a 95% band for each system.

    Raises:
        InputError: the frame has no score of the measure, or several fields.
    """
    points = _points(frame, measure, seed)
    if points["field"].n_unique() > 1:
        raise InputError("by_size takes the scores of one field", 'Choose one: frame.filter(field="Medicine")')
    sizes = sorted(points["size"].unique())
    with drawing() as figure_class:
        figure = figure_class(figsize=(WIDTH, 2.8), layout="constrained")
        axes = figure.subplots()
        for number, (system, part) in enumerate(_systems(points)):
            line = part.sort("size")
            x, y, low, high = (line[name].to_numpy() for name in ("size", "value", "low", "high"))
            colour = COLOURS[number % len(COLOURS)]
            axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.15, lw=0)
            axes.plot(x, 100 * y, label=system, color=colour, marker=MARKERS[number % len(MARKERS)], lw=1.2, ms=4)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [format_count(size) for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("candidates")
        _finish(figure, axes.set_ylabel, measure)
    return figure


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
    with drawing() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.6 + (0.12 + 0.05 * len(systems)) * len(fields)), layout="constrained")
        axes = figure.subplots()
        for number, (system, part) in enumerate(systems):
            shift = 0.7 * ((number + 0.5) / len(systems) - 0.5)
            heights = [fields.index(field) + shift for field in part["field"]]
            value, low, high = (100 * part[name].to_numpy() for name in ("value", "low", "high"))
            look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            spread = np.maximum([value - low, high - value], 0)
            axes.errorbar(value, heights, xerr=spread, ls="", ms=3, lw=0.8, label=system, **look)
        axes.set_yticks(range(len(fields)), [str(field) for field in fields])
        axes.set_ylim(len(fields) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        _finish(figure, axes.set_xlabel, measure)
    return figure


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


def _finish(figure: Any, label_axis: Any, measure: str) -> None:
    label_axis(f"{label_of(measure)} (%)")
    figure.legend(loc="outside upper center", ncols=3, fontsize=7, handlelength=1.5)
