"""Tables 1, 2, 7 and 8 of Medić & Šnajder 2022 in their layout, each figure beside the published one."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence

import polars as pl

from pipeline.core.config import format_count
from pipeline.encode import registry
from pipeline.report.model import AVERAGE, Family, Report
from pipeline.report.tables import Beside, Column, Line, Table, label_of
from pipeline.studies.base import RECIPES, StudyTable
from pipeline.studies.common import frame_of

MEASURES = ("map", "ndcg", "recall@30")
"""What tables 1, 2, 7 and 8 give."""

_BY_FIELD = RECIPES.parent / "reference" / "fields" / "mdcr.csv"
_NUMBERS = {"map": 2, "ndcg": 7, "recall@30": 8}

NOTES = (
    "In brackets: the difference to the published figure, in points; without brackets, none was published.",
    "The published pools are of S2ORC, at the dataset level of the same size, by field of 100k candidates or all.",
)


def published(system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure, a fraction, or None.

    Args:
        system: label of a row; ``bm25`` is published as tuned.
        field: a field, None (dataset level) or ``AVG``.
        size: candidates, which only the dataset level has.
        measure: one of :data:`MEASURES`.
    """
    name = {"bm25": "", "bm25:tuned": "bm25"}.get(system, system)
    if field is not None and field != AVERAGE:
        percent = _fields().get((name, field, measure))
    else:
        experiment = "fields" if field == AVERAGE else f"dataset-{format_count(size or 0)}"
        percent = registry.published(name).get(f"{experiment}.{measure}") if name else None
    return None if percent is None else percent / 100


@functools.cache
def _fields() -> dict[tuple[str, str, str], float]:
    """Return the figures by system, field and measure; empty in an installation without the reference tables."""
    if not _BY_FIELD.is_file():
        return {}
    with _BY_FIELD.open(newline="", encoding="utf-8") as lines:
        return {(r["system"], r["field"], r["measure"]): float(r["percent"]) for r in csv.DictReader(lines)}


def tables(report: Report, notes: Sequence[str] = ()) -> list[StudyTable]:
    """Return table 1 for each family of sizes, and tables 2, 7 and 8 for each family of fields."""
    found = []
    frame = with_published(report)
    for family in report.families:
        sizes = {setup.size for setup in family.setups}
        own = frame.filter(pl.col("size").is_in(sizes) | (pl.col("field") == AVERAGE))
        name = _name(family)
        if family.kind == "sizes":
            own = own.filter(pl.col("field").eq_missing(family.setups[0].field))
            found.append(StudyTable(f"table-1{name}", _by_size(report, family, notes), own))
            continue
        for measure in MEASURES:
            number = f"table-{_NUMBERS[measure]}{name}"
            table = _by_field(report, family, measure, notes)
            found.append(StudyTable(number, table, own.filter(pl.col("measure") == measure)))
    return found


def with_published(report: Report) -> pl.DataFrame:
    """Return every figure of a report with the published one and the difference, in percent."""
    own = frame_of(report)
    keys = own.select("system", "field", "size", "measure").iter_rows()
    figures = [published(*key) for key in keys]
    return own.with_columns(published=pl.Series(figures, dtype=pl.Float64)).with_columns(
        difference=pl.col("value") - pl.col("published")
    )


def _name(family: Family) -> str:
    if family.kind == "fields":
        return "" if family.size is None else f"-{format_count(family.size)}"
    field = family.setups[0].field
    return "" if field is None else f"-{field.lower().replace(' ', '-')}"


def _by_size(report: Report, family: Family, notes: Sequence[str]) -> Table:
    """Return a row for each system; sizes are groups of columns, measures their columns."""
    columns = [(setup, measure) for setup in family.setups for measure in MEASURES]
    lines = [
        Line(system, tuple(_cell(report, system, *setup, measure) for setup, measure in columns))
        for system in report.systems
    ]
    field = family.setups[0].field
    return Table(
        f"Table 1: {field or 'dataset level'}",
        "system",
        tuple(Column(format_count(setup.size), label_of(measure)) for setup, measure in columns),
        tuple(line for line in lines if any(line.values)),
        (*NOTES, *notes),
    )


def _by_field(report: Report, family: Family, measure: str, notes: Sequence[str]) -> Table:
    """Return a row for each field, a column for each system."""
    places: list[tuple[str | None, int | None]] = [*family.setups, (AVERAGE, family.size)]
    lines = [
        Line(str(field), tuple(_cell(report, s, field, size, measure) for s in report.systems), field == AVERAGE)
        for field, size in places
    ]
    return Table(
        f"Table {_NUMBERS[measure]}: {label_of(measure)} by field",
        "field",
        tuple(Column("", system) for system in report.systems),
        tuple(lines),
        (*NOTES, *notes),
    )


def _cell(report: Report, system: str, field: str | None, size: int | None, measure: str) -> Beside | None:
    found = report.find(system, field, size, measure)
    return None if found is None else Beside(found.value, published(system, field, size, measure))
