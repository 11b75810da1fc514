"""Figures for papers, by matplotlib: the same report gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.core.config import file_name, format_count
from pipeline.report.figures import FORMATS, draw, drawing, save
from pipeline.report.model import Family, Report
from pipeline.report.page.of_report import chart_of
from pipeline.report.page.parts import Chart
from pipeline.report.tables import label_of


def save_plots(report: Report, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every measure over pool sizes and over fields, and return the files written.

    The metadata of a file has the provenance that tables print, and no date.

    Args:
        report: what :func:`pipeline.report.aggregate.summarise` made.
        folder: where they go.
        formats: some of :data:`FORMATS`.

    Raises:
        InputError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, chart, view in plots_of(report):
        with drawing() as figure_class:
            written += save(draw(figure_class, chart, view), folder / name, formats, chart.provenance)
    return written


def plots_of(report: Report) -> list[tuple[str, Chart, str]]:
    """Return the name of each figure, without suffix, with its chart and the view of it."""
    return [
        (f"{_family_name(family)}-{measure.replace('@', '-at-')}", chart_of(report, family), label_of(measure))
        for family in report.families
        for measure in report.measures
    ]


def _family_name(family: Family) -> str:
    """Return the stem of the figures of a family."""
    if family.kind == "fields":
        return "fields" if family.size is None else f"fields-{format_count(family.size)}"
    return f"sizes-{file_name((family.setups[0].field or 'dataset').lower())}"
