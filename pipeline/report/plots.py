"""Figures for papers, by matplotlib: the same report gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.config import format_count
from pipeline.report.caption import DATASET, provenance
from pipeline.report.figures import FORMATS, Series, dots_by_row, drawing, lines_by_size, save
from pipeline.report.model import AVERAGE, Family, Report
from pipeline.report.tables import label_of


def save_plots(report: Report, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every measure over pool sizes and over fields, and return the files written.

    The metadata of a file has the provenance that tables print, and no date.
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
    sizes = [setup.size for setup in family.setups]
    shown = [_series(report, system, family.setups, sizes, measure) for system in report.systems]
    figure = lines_by_size(figure_class, shown, sizes, f"{label_of(measure)} (%)")
    figure.axes[0].set_title(family.setups[0].field or DATASET, fontsize=8)
    return figure


def draw_by_field(figure_class: Any, report: Report, family: Family, measure: str) -> Any:
    """A measure by field: a dot with its bootstrap interval for each system; the macro average last."""
    setups = [*family.setups, (AVERAGE, family.size)]
    shown = [_series(report, system, setups, range(len(setups)), measure) for system in report.systems]
    figure = dots_by_row(figure_class, shown, [str(field) for field, _ in setups], f"{label_of(measure)} (%)")
    figure.axes[0].axhline(len(setups) - 1.5, color="0.6", lw=0.6)
    return figure


def _series(
    report: Report, system: str, setups: Iterable[tuple[str | None, int | None]], places: Iterable[int], measure: str
) -> Series:
    found = [(place, report.find(system, *setup, measure)) for place, setup in zip(places, setups, strict=True)]
    known = [(place, each) for place, each in found if each is not None]
    values = ([100 * getattr(each, name) for _, each in known] for name in ("value", "low", "high"))
    return Series(system, [place for place, _ in known], *values)


def _family_name(family: Family) -> str:
    if family.kind == "fields":
        return "fields" if family.size is None else f"fields-{format_count(family.size)}"
    return f"sizes-{(family.setups[0].field or 'dataset').lower().replace(' ', '-')}"
