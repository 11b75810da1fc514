"""Figures by matplotlib. In a notebook: ``mdcr.plot.by_size(frame)``, ``mdcr.plot.by_field(frame)``.

A frame has a row for each query and measure, as :meth:`pipeline.api.Workspace.scores` returns it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core import files
from pipeline.core.door import checked
from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.measure.design import Draws
from pipeline.scores import charts
from pipeline.scores.frames import Scores, load_runs
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.summary import summarise
from pipeline.scores.tables import label_of

FORMATS = ("svg", "pdf", "png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito (2008): distinguishable with any colour vision."""
MARKERS = "osD^vPX*"
WIDTH = 3.4
"""Inches: one column of a two-column page."""
_SCREEN_DPI = 150

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "svg.hashsalt": "mdcr",
}
_METADATA = {
    "svg": ({"Date": None}, "Description"),
    "pdf": ({"CreationDate": None}, "Subject"),
    "png": ({"Software": None}, "Description"),
}
"""By format: metadata left out because it changes from run to run, and the key of the provenance."""


@contextmanager
def drawing() -> Iterator[Any]:
    """Yield matplotlib's figure class with our style, independent of the configuration of the user; opens no window.

    Notebooks show its figures, whatever backend they use.

    Raises:
        InputError: matplotlib is not installed, or MPLBACKEND names no backend.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures need matplotlib, which is not installed", pip_extra("plot")) from error
    except ValueError as error:  # matplotlib reads MPLBACKEND when it is imported
        named = os.environ.get("MPLBACKEND", "")[:60]
        raise InputError(f"MPLBACKEND must be a backend of matplotlib, got {named!r}", "Correct or unset it") from error

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            image = BytesIO()
            self.savefig(image, format="png", dpi=_SCREEN_DPI)
            return image.getvalue()

    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
    with mpl.rc_context({**defaults, **_STYLE}):
        yield Shown


def save(figure: Any, stem: Path, formats: Sequence[str], source: str) -> list[Path]:
    """Write a figure as ``STEM.FORMAT`` in each format, with ``source`` in its metadata; return the paths."""
    written = []
    for suffix in formats:
        path = stem.with_name(f"{stem.name}.{suffix}")
        omitted, source_key = _METADATA[suffix]
        with files.replacing(path) as temporary:
            figure.savefig(temporary, format=suffix, metadata={**omitted, source_key: source})
        written.append(path)
    return written


def draw(figure_class: Any, chart: Chart, view: str) -> Any:
    """Return one view of a chart as a figure.

    Over categories, each system has a dot with its interval. Over positions, it has points with a band, and a line
    between the points or its own curve. Systems of a single position stand side by side, each with its interval.
    """
    series, over_categories = chart.views[view], len(chart.categories) > 0
    single = not over_categories and len({x for line in series for x in line.x}) == 1
    height = 0.6 + (0.08 + 0.035 * len(series)) * len(chart.categories) if over_categories else 2.8
    figure = figure_class(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    for number, line in enumerate(series):
        style: dict[str, Any] = {"color": COLOURS[number % 8], "marker": MARKERS[number % 8], "label": line.label}
        values, low, high = (
            [100 * v for v in ends] for ends in (line.values, _ends(line.low, line), _ends(line.high, line))
        )
        errors = [[abs(v - e) for v, e in zip(values, ends, strict=True)] for ends in (low, high)]
        apart = (number + 0.5) / len(series) - 0.5
        if over_categories:
            positions = [x + 0.7 * apart for x in line.x]
            axes.errorbar(values, positions, xerr=errors, ls="", ms=3, lw=0.8, **style)
            continue
        if single and not line.curve:
            moved = [x * 10 ** (0.1 * apart) if chart.log else x + 0.1 * apart for x in line.x]
            axes.errorbar(moved, values, yerr=errors, ls="", ms=4, lw=1.2, **style)
            continue
        axes.fill_between(line.x, low, high, color=style["color"], alpha=0.15, lw=0)
        axes.plot(line.x, values, ls="" if line.curve else "-", lw=1.2, ms=4, **style)
        if line.curve:
            axes.plot(*zip(*((x, 100 * y) for x, y in line.curve), strict=True), lw=0.8, color=style["color"])
    (_over_categories if over_categories else _over_positions)(axes, chart, f"{view} ({chart.unit})")
    figure.legend(loc="outside upper center", ncols=min(len(series), 3), fontsize=7, handlelength=1.5)
    return figure


def _over_categories(axes: Any, chart: Chart, label: str) -> None:
    count = len(chart.categories)
    for row in range(0, count, 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.95", lw=0)
    axes.set_yticks(range(count), chart.categories)
    axes.set_ylim(count - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)


def _over_positions(axes: Any, chart: Chart, label: str) -> None:
    axes.set_xscale("log" if chart.log else "linear")
    if chart.ticks:
        axes.set_xticks(list(chart.ticks), list(chart.ticks.values()))
        axes.set_xticks([], minor=True)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(label)
    axes.set_title(chart.title, fontsize=8)


def _ends(ends: Sequence[float | None], series: Series) -> list[float]:
    """Return ends of intervals; a value without interval is its own end."""
    return [value if end is None else end for value, end in zip(series.values, ends or series.values, strict=True)]


@checked
def by_size(frame: Scores, measure: str = "map", *, seed: int | None = None) -> Any:
    """Return a figure of a measure against the number of candidates: a line and a 95% band for each system.

    Args:
        frame: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`; values are drawn in percent.
        measure: canonical name.
        seed: seed of the bootstrap; None: that of the pools.

    Returns:
        A figure of matplotlib, which shows itself in a notebook.

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
    return _draw_chart(charts.by_size(points, load_runs(frame)), measure)


@checked
def by_field(frame: Scores, measure: str = "map", *, seed: int | None = None) -> Any:
    """Return a figure of a measure by field: a dot with its 95% interval for each system.

    Arguments and figure are those of :func:`by_size`.

    Raises:
        InputError: the frame has no score of the measure, or several pool sizes of one field.
    """
    points = _points(frame, measure, seed)
    if points.select("field", "label").is_duplicated().any():
        raise InputError("by_field takes one pool size", "Choose one: frame.filter(size=100_000)")
    return _draw_chart(charts.by_field(points, load_runs(frame)), measure)


def _points(frame: pl.DataFrame, measure: str, seed: int | None) -> pl.DataFrame:
    chosen = frame.filter(pl.col("measure") == measure)
    if chosen.is_empty():
        scored = ", ".join(frame["measure"].unique(maintain_order=True))
        raise InputError(f"the measure must be one that was scored, got {measure!r}", f"Choose from {scored}")
    return summarise(chosen, draws=Draws(seed=seed))


def _draw_chart(chart: Chart, measure: str) -> Any:
    with drawing() as figure_class:
        return draw(figure_class, chart, label_of(measure))
