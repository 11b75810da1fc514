"""Figures for papers, by matplotlib: the same report gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.core.config import format_count
from pipeline.report.caption import DATASET, provenance
from pipeline.report.figures import COLOURS, FORMATS, MARKERS, WIDTH, drawing, save
from pipeline.report.model import AVERAGE, Family, Report, Summary
from pipeline.report.tables import label_of


def save_plots(report: Report, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every measure over pool sizes and over fields, and return the files written.

    The metadata of a file has the provenance that tables print, and no date.

    Raises:
        InputError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, family, measure in plots_of(report):
        draw = draw_by_size if family.kind == "sizes" else draw_by_field
        source = provenance(report, report.scored)
        with drawing() as figure_class:
            figure = draw(figure_class, report, family, measure)
            written += save(figure, folder / name, formats, source)
    return written


def plots_of(report: Report) -> list[tuple[str, Family, str]]:
    """Return the name of each figure, without suffix, with its family and measure."""
    return [
        (f"{_family_name(family)}-{measure.replace('@', '-at-')}", family, measure)
        for family in report.families
        for measure in report.measures
    ]


def draw_by_size(figure_class: Any, report: Report, family: Family, measure: str) -> Any:
    """A measure over pool size: a line and a bootstrap band for each system."""
    figure = figure_class(figsize=(WIDTH, 2.8), layout="constrained")
    axes = figure.subplots()
    for number, system in enumerate(report.systems):
        found = [report.find(system, *setup, measure) for setup in family.setups]
        points = [each for each in found if each is not None]
        sizes = [each.size for each in points]
        look = {"color": COLOURS[number % 8], "marker": MARKERS[number % 8]}
        axes.fill_between(
            sizes, _percent(points, "low"), _percent(points, "high"), color=look["color"], alpha=0.15, lw=0
        )
        axes.plot(sizes, _percent(points, "value"), label=system, lw=1.2, ms=4, **look)
    axes.set_xscale("log")
    axes.set_xticks([setup.size for setup in family.setups], [format_count(setup.size) for setup in family.setups])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("candidates")
    axes.set_ylabel(f"{label_of(measure)} (%)")
    axes.set_title(family.setups[0].field or DATASET, fontsize=8)
    _legend(figure, len(report.systems))
    return figure


def draw_by_field(figure_class: Any, report: Report, family: Family, measure: str) -> Any:
    """A measure by field: a dot with its bootstrap interval for each system; the macro average last."""
    places = [*family.setups, (AVERAGE, family.size)]
    count = len(report.systems)
    figure = figure_class(figsize=(WIDTH, 0.6 + (0.08 + 0.035 * count) * len(places)), layout="constrained")
    axes = figure.subplots()
    for place in range(0, len(places), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="0.95", lw=0)
    for number, system in enumerate(report.systems):
        shift = 0.7 * ((number + 0.5) / count - 0.5)
        found = [report.find(system, *place, measure) for place in places]
        heights = [height + shift for height, each in enumerate(found) if each is not None]
        points = [each for each in found if each is not None]
        values, low, high = (_percent(points, name) for name in ("value", "low", "high"))
        spans = [
            [v - bound for v, bound in zip(values, low, strict=True)],
            [b - v for v, b in zip(values, high, strict=True)],
        ]
        look = {"color": COLOURS[number % 8], "marker": MARKERS[number % 8]}
        axes.errorbar(values, heights, xerr=spans, ls="", ms=3, lw=0.8, label=system, **look)
    axes.set_yticks(range(len(places)), [str(field) for field, _ in places])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.axhline(len(places) - 1.5, color="0.6", lw=0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{label_of(measure)} (%)")
    _legend(figure, count)
    return figure


def _legend(figure: Any, systems: int) -> None:
    figure.legend(loc="outside upper center", ncols=min(systems, 3), fontsize=7, handlelength=1.5)


def _percent(points: Sequence[Summary], name: str) -> list[float]:
    return [100 * getattr(point, name) for point in points]


def _family_name(family: Family) -> str:
    if family.kind == "fields":
        return "fields" if family.size is None else f"fields-{format_count(family.size)}"
    return f"sizes-{(family.setups[0].field or 'dataset').lower().replace(' ', '-')}"
