"""The look of figures, and writing them: the same figure gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core import files
from pipeline.core.config import format_count
from pipeline.core.errors import InputError

FORMATS = ("svg", "pdf", "png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito (2008): distinguishable with any colour vision."""
MARKERS = "osD^vPX*"
WIDTH = 3.4
"""Inches: one column of a two-column page."""

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
    """Give matplotlib's figure class in our style, whatever the user's configuration; no window, no global state."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures need matplotlib, which is not installed", "pip install matplotlib") from error
    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
    with mpl.rc_context({**defaults, **_STYLE}):
        yield Figure


def save(figure: Any, stem: Path, formats: Sequence[str], source: str) -> list[Path]:
    """Write a figure as ``STEM.FORMAT`` in some of :data:`FORMATS`, with ``source`` and no date in its metadata."""
    written = []
    for each in formats:
        path = stem.with_name(f"{stem.name}.{each}")
        unset, described = _METADATA[each]
        with files.replacing(path) as temporary:
            figure.savefig(temporary, format=each, metadata={**unset, described: source})
        written.append(path)
    return written


class Series(NamedTuple):
    """The figures of one system in percent, each with the ends of its interval.

    Attributes:
        label: name of the system.
        places: numbers of candidates, or rows from 0.
        values: one a place; so are ``low`` and ``high``.
    """

    label: str
    places: Sequence[float]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def lines_by_size(figure_class: Any, shown: Sequence[Series], sizes: Sequence[int], label: str) -> Any:
    """Return a figure over the number of candidates: a line and a band for each system."""
    figure = figure_class(figsize=(WIDTH, 2.8), layout="constrained")
    axes = figure.subplots()
    for number, each in enumerate(shown):
        look = _look(number)
        axes.fill_between(each.places, each.low, each.high, color=look["color"], alpha=0.15, lw=0)
        axes.plot(each.places, each.values, label=each.label, lw=1.2, ms=4, **look)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [format_count(size) for size in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("candidates")
    axes.set_ylabel(label)
    _legend(figure, shown)
    return figure


def dots_by_row(figure_class: Any, shown: Sequence[Series], names: Sequence[str], label: str) -> Any:
    """Return a figure of named rows: a dot with its interval for each system."""
    height = 0.6 + (0.08 + 0.035 * len(shown)) * len(names)
    figure = figure_class(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    for row in range(0, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.95", lw=0)
    for number, each in enumerate(shown):
        shift = 0.7 * ((number + 0.5) / len(shown) - 0.5)
        spans = [
            [max(v - bound, 0) for v, bound in zip(each.values, each.low, strict=True)],
            [max(bound - v, 0) for v, bound in zip(each.values, each.high, strict=True)],
        ]
        heights = [row + shift for row in each.places]
        axes.errorbar(each.values, heights, xerr=spans, ls="", ms=3, lw=0.8, label=each.label, **_look(number))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    _legend(figure, shown)
    return figure


def _look(number: int) -> dict[str, str]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def _legend(figure: Any, shown: Sequence[Series]) -> None:
    figure.legend(loc="outside upper center", ncols=min(len(shown), 3), fontsize=7, handlelength=1.5)
