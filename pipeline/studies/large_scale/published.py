"""Tables 1, 2, 7 and 8 of Medić & Šnajder 2022 in their layout, each figure beside the published one."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Sequence

import polars as pl

from pipeline.core.config import format_count
from pipeline.core.fields import MAG_FIELDS
from pipeline.encode import registry
from pipeline.report.model import AVERAGE, Family, Report
from pipeline.report.tables import Beside, Column, Line, Table, label_of
from pipeline.studies.base import RECIPES, StudyTable
from pipeline.studies.common import frame_of

MEASURES = ("map", "ndcg", "recall@30")
"""What tables 1, 2, 7 and 8 give."""

_TABLES = RECIPES.parent / "reference" / "tables" / "mdcr.csv"
"""Tuned BM25, which is no entry of ``models.toml``, and every system by field."""
_WHOLE = ("Art", "History", "Philosophy")
"""Fields whose published pools hold all papers."""
_POOL = 100_000
"""Candidates of the other fields."""
_NUMBERS = {"map": 2, "ndcg": 7, "recall@30": 8}

NOTES = (
    "In brackets: the difference to the published figure, in points; without brackets, none was published for pools of "
    "this size.",
)


def published(system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure, a fraction, or None.

    Args:
        system: label of a row; BM25 is published as tuned.
        field: a field, None (dataset level) or ``AVG``, the average of all 19 fields.
        size: candidates. Without it, or in a field whose published pool holds all papers, it is not compared.
        measure: one of :data:`MEASURES`.
    """
    if field is not None and field not in (AVERAGE, *_WHOLE) and size not in (None, _POOL):
        return None
    experiment = f"dataset-{format_count(size or 0)}" if field is None else f"field-{field}"
    experiment = "fields" if field == AVERAGE else experiment
    if system in ("bm25", "bm25:tuned"):
        percent = _tables().get(("bm25", experiment, measure)) if system == "bm25:tuned" else None
    else:
        known = registry.published(system)
        percent = known.get(f"{experiment}.{measure}", _tables().get((system, experiment, measure)))
    return None if percent is None else percent / 100


@functools.cache
def _tables() -> dict[tuple[str, str, str], float]:
    """Return figures by system, experiment and measure; empty in an installation without the reference tables."""
    if not _TABLES.is_file():
        return {}
    with _TABLES.open(newline="", encoding="utf-8") as lines:
        return {(r["system"], r["experiment"], r["measure"]): float(r["percent"]) for r in csv.DictReader(lines)}


def tables(report: Report, notes_of: Callable[[Family], Sequence[str]]) -> list[StudyTable]:
    """Return table 1 for each family of sizes, and tables 2, 7 and 8 for each family of fields, with notes of each."""
    found = []
    frame = with_published(report)
    for family in report.families:
        sizes = {setup.size for setup in family.setups}
        own = frame.filter(pl.col("size").is_in(sizes) | (pl.col("field") == AVERAGE))
        name, notes = _name(family), notes_of(family)
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
    figures = [_of_report(report, *key) for key in keys]
    return own.with_columns(published=pl.Series(figures, dtype=pl.Float64)).with_columns(
        difference=pl.col("value") - pl.col("published")
    )


def _name(family: Family) -> str:
    if family.kind == "fields":
        return "" if family.size is None else f"-{format_count(family.size)}"
    field = family.setups[0].field
    return "" if field is None else f"-{field.lower().replace(' ', '-')}"


def _sizes(family: Family) -> str:
    sizes = sorted({setup.size for setup in family.setups})
    return " to ".join(dict.fromkeys(format_count(size) for size in (sizes[0], sizes[-1])))


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
        f"Table {_NUMBERS[measure]}: {label_of(measure)} by field, {_sizes(family)} candidates",
        "field",
        tuple(Column("", system) for system in report.systems),
        tuple(lines),
        (*NOTES, *notes),
    )


def _cell(report: Report, system: str, field: str | None, size: int | None, measure: str) -> Beside | None:
    found = report.find(system, field, size, measure)
    return None if found is None else Beside(found.value, _of_report(report, system, field, size, measure))


def _of_report(report: Report, system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure; averages are compared where all 19 fields are there."""
    fields = max((len(f.setups) for f in report.families if f.kind == "fields" and f.size == size), default=0)
    return None if field == AVERAGE and fields < len(MAG_FIELDS) else published(system, field, size, measure)
