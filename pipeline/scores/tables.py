"""Tables as objects, with the notes below them. Formats only render them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.core.text import printable
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import AVERAGE
from pipeline.scores.caption import title
from pipeline.scores.notes import notes
from pipeline.scores.store import load_runs
from pipeline.scores.summary import USUAL, summarise

SHOWN = ("map", "ndcg", "recall@30")
"""Measures of a table by default: those of Medić & Šnajder 2022."""

_FACTS = {"candidates": "size", "queries": "queries", "positives": "positives"}
"""Columns of a table by field besides its figures."""


@dataclass(frozen=True)
class Cell:
    """A figure of a table, as fractions; ``best`` of its comparison, ``marked`` if it differs from the baseline."""

    value: float
    deviation: float | None
    low: float
    high: float
    best: bool
    marked: bool


@dataclass(frozen=True)
class PublishedCell:
    """A figure beside a published one, as fractions; ``published`` and the ends of its interval are None if unknown."""

    value: float
    published: float | None
    low: float | None = None
    high: float | None = None

    @property
    def worse(self) -> bool | None:
        """Whether it is below the published figure; None: equal when printed, or nothing to compare with."""
        difference = None if self.published is None else round(100 * (self.value - self.published), 1)
        return difference < 0 if difference else None

    @property
    def interval(self) -> str:
        """The interval in brackets; empty where there is none."""
        return "" if self.low is None or self.high is None else f"[{percent(self.low)}, {percent(self.high)}]"

    @property
    def difference(self) -> str:
        """The difference to the published figure in parentheses; empty where there is none."""
        return "" if self.published is None else f"({100 * (self.value - self.published):+.1f})"

    def __str__(self) -> str:
        return " ".join(filter(None, (percent(self.value), self.interval, self.difference)))


Value = Cell | PublishedCell | str | None
"""None: not measured, which is not zero. Text is shown as it is."""


@dataclass(frozen=True)
class Column:
    """A column of figures: its label, below the label of its group."""

    group: str
    label: str


@dataclass(frozen=True)
class TableRow:
    """A row; a rule separates a ``summary`` from the rows above."""

    label: str
    values: tuple[Value, ...]
    summary: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        corner: label of the row labels.
        columns: in order; those of one group are adjacent.
        lines: in order, one value a column.
        notes: how to read it, its provenance last.

    Its texts may come from data: what is not printable is escaped, line ends included, in every format.
    """

    title: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[TableRow, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        shown = {
            "title": printable(self.title),
            "corner": printable(self.corner),
            "columns": tuple(Column(printable(each.group), printable(each.label)) for each in self.columns),
            "lines": tuple(TableRow(printable(e.label), tuple(map(_shown, e.values)), e.summary) for e in self.lines),
            "notes": tuple(map(printable, self.notes)),
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        from pipeline.scores.terminal import render

        return render(self)

    def _repr_markdown_(self) -> str:
        from pipeline.scores.render import render_table

        return render_table(self, "markdown")


def _shown(value: Value) -> Value:
    return printable(value) if isinstance(value, str) else value


def tables(scores: pl.DataFrame, measures: Sequence[str] = SHOWN, *, baseline: str | None = USUAL) -> tuple[Table, ...]:
    """Return the tables of some scores, as the command line prints them.

    Args:
        scores: columns :data:`pipeline.scores.store.SCORES_SCHEMA`.
        measures: what is shown, in order; what was not scored is left out.
        baseline: as of :func:`pipeline.scores.summary.summarise`.
    """
    names = [str(measure) for measure in parse_measures(measures)]
    return build_tables(shown(summarise(scores, baseline=baseline), names), load_runs(scores))


def build_tables(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[Table, ...]:
    """Return the tables of a summary, with their notes.

    Pool sizes give systems by size and measure (as table 1 of Medić & Šnajder 2022). Fields give fields by measure and
    system, with the macro average below (their tables 2, 7 and 8, transposed).

    Args:
        summary: columns :data:`pipeline.scores.summary.SUMMARY`, with the measures that are shown, in order.
        runs: the rankings behind it (:func:`pipeline.scores.store.load_runs`).
    """
    return tuple(table_of(part, runs) for part in summary.partition_by("table", maintain_order=True))


def shown(summary: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a summary of some measures, in their order."""
    place = pl.col("measure").replace_strict({name: n for n, name in enumerate(measures)}, default=None)
    group = pl.struct("table", "field", "size", "label").rle_id()
    kept = summary.with_columns(group.alias("group"), place.alias("place")).filter(pl.col("place").is_not_null())
    return kept.sort("group", "place", maintain_order=True).drop("group", "place")


def runs_of(table: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings behind some rows of a summary."""
    return runs.filter(pl.col("pool").is_in(table["pools"].explode().unique().to_list()))


def table_of(table: pl.DataFrame, runs: pl.DataFrame) -> Table:
    """Return one table of a summary (:func:`build_tables`)."""
    own = runs_of(table, runs)
    if table["over"][0] == "sizes":
        grid = pivot(table, ["label"], ["size", "measure"])
        columns = [Column(format_count(size), label_of(measure)) for size, measure in grid.columns]
        lines = [TableRow(label, tuple(cells)) for (label,), cells in grid.lines]
        told = notes(table, own, "column")
        return Table(title(table, own), "system", tuple(columns), tuple(lines), told)
    grid = pivot(table, ["field"], ["measure", "label"])
    facts = table.group_by("field", maintain_order=True).agg(pl.col(*_FACTS.values()).first()).rows_by_key("field")
    lines = []
    for (field,), cells in grid.lines:
        counts = ["" if count is None else f"{count:,}" for count in facts[field][0]]
        lines.append(TableRow(field, (*cells, *counts), field == AVERAGE))
    columns = [Column(label_of(measure), label) for measure, label in grid.columns] + [Column("", n) for n in _FACTS]
    told = notes(table, own, "row and measure")
    return Table(title(table, own), "field", tuple(columns), tuple(lines), told)


@dataclass(frozen=True)
class Pivot:
    """Figures by row and column, in order of appearance: the keys of the columns, and key and figures of each line."""

    columns: Sequence[tuple[Any, ...]]
    lines: Sequence[tuple[tuple[Any, ...], Sequence[Cell | None]]]


def pivot(summary: pl.DataFrame, rows: Sequence[str], columns: Sequence[str]) -> Pivot:
    """Return the figures of a summary by the values of some of its columns; a figure that is not there is None."""
    places = {name: list(summary[name].unique(maintain_order=True)) for name in columns}
    figures = {
        (tuple(row[name] for name in rows), tuple(row[name] for name in columns)): figure_of(row)
        for row in summary.iter_rows(named=True)
    }
    present = {column for _, column in figures}
    kept = [column for column in itertools.product(*places.values()) if column in present]
    keys = list(dict.fromkeys(key for key, _ in figures))
    return Pivot(kept, [(key, [figures.get((key, column)) for column in kept]) for key in keys])


def figure_of(row: dict[str, Any]) -> Cell:
    """Return the figure of a row of a summary."""
    return Cell(row["value"], row["deviation"], row["low"], row["high"], row["best"], row["marked"])


def percent(value: float) -> str:
    """Return a fraction in percent with one decimal, without the sign."""
    return f"{100 * value:.1f}"


def label_of(measure: str) -> str:
    """Return what tables and plots call a measure."""
    return parse_measures(measure)[0].label


def groups(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Return the label of each group of columns, and how many columns it spans."""
    return [(label, len(list(members))) for label, members in itertools.groupby(column.group for column in columns)]


def blocks(table: Table, widths: Sequence[int], room: int) -> Iterator[Table]:
    """Yield the table in parts whose columns fit into ``room``, each with the row labels and at least one column.

    Groups of columns stay together if they fit.
    """
    start = 0
    while start < len(table.columns):
        end = start + 1
        while end < len(table.columns) and sum(widths[start : end + 1]) <= room:
            end += 1
        whole = end
        while start < whole < len(table.columns) and table.columns[whole - 1].group == table.columns[whole].group:
            whole -= 1
        end = whole if whole > start else end
        yield replace(
            table,
            columns=table.columns[start:end],
            lines=tuple(replace(line, values=line.values[start:end]) for line in table.lines),
        )
        start = end
