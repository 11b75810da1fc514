"""Tables 1, 2, 7 and 8 of Medić & Šnajder 2022 in their layout, each figure beside the published one."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator, Sequence

import polars as pl

from pipeline.core.config import file_name, format_count
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
    "In parentheses: the difference to the published figure, in points; without, none was published for pools of this "
    "size.",
)


def published(system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure, a fraction, or None.

    BM25 is published as tuned. The field ``AVG`` is the average of all 19. Without a size, or in a field whose
    published pool holds all papers, the size is not compared.
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


def tables(
    report: Report, notes_of: Callable[[Family], Sequence[str]], *, compared: bool = True
) -> Iterator[StudyTable]:
    """Yield table 1 for each family of sizes, and tables 2, 7 and 8 for each family of fields, with notes of each.

    Figures of made-up papers are not ``compared`` with published ones.
    """
    frame = with_published(report, compared=compared)
    figures = frame.select("system", "field", "size", "measure", "value", "published", "low", "high").iter_rows()
    cells = {row[:4]: Beside(*row[4:]) for row in figures}
    reading = f"Percent [{report.settings.level:.0%} interval over queries]."
    for family in report.families:
        by_size = family.kind == "sizes"
        places: list[tuple[str | None, int | None]] = [*family.setups, *([] if by_size else [(AVERAGE, family.size)])]
        own = frame.filter(pl.Series([place in places for place in frame.select("field", "size").iter_rows()]))
        notes = (reading, *(NOTES if compared else ()), *notes_of(family))
        if by_size:
            heads = [(place, measure) for place in places for measure in MEASURES]
            lines = [Line(s, tuple(cells.get((s, *place, m)) for place, m in heads)) for s in report.systems]
            labels = tuple(Column(format_count(size or 0), label_of(measure)) for (_, size), measure in heads)
            title = f"Table 1: {family.setups[0].field or 'dataset level'}"
            shown = tuple(line for line in lines if any(line.values))
            yield StudyTable(f"table-1{_name(family)}", Table(title, "system", labels, shown, notes), own)
            continue
        for measure in MEASURES:
            lines = [
                Line(str(field), tuple(cells.get((s, field, size, measure)) for s in report.systems), field == AVERAGE)
                for field, size in places
            ]
            labels = tuple(Column("", system) for system in report.systems)
            title = f"Table {_NUMBERS[measure]}: {label_of(measure)} by field, {_sizes(family)} candidates"
            table = Table(title, "field", labels, tuple(lines), notes)
            yield StudyTable(f"table-{_NUMBERS[measure]}{_name(family)}", table, own.filter(measure=measure))


def with_published(report: Report, *, compared: bool = True) -> pl.DataFrame:
    """Return every figure of a report with the published one and the difference, null unless ``compared``.

    Averages have a published figure where all 19 fields are there.
    """
    own = frame_of(report)
    whole = {f.size for f in report.families if f.kind == "fields" and len(f.setups) == len(MAG_FIELDS)}
    figures = [
        None if not compared or (field == AVERAGE and size not in whole) else published(system, field, size, measure)
        for system, field, size, measure in own.select("system", "field", "size", "measure").iter_rows()
    ]
    return own.with_columns(published=pl.Series(figures, dtype=pl.Float64)).with_columns(
        difference=pl.col("value") - pl.col("published")
    )


def _name(family: Family) -> str:
    if family.kind == "fields":
        return "" if family.size is None else f"-{format_count(family.size)}"
    field = family.setups[0].field
    return "" if field is None else f"-{file_name(field.lower())}"


def _sizes(family: Family) -> str:
    sizes = sorted({setup.size for setup in family.setups})
    return " to ".join(dict.fromkeys(format_count(size) for size in (sizes[0], sizes[-1])))
