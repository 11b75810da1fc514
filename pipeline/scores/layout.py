"""Tables of a summary: systems by pool size, fields by system."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import AVERAGE, PROTOCOL, Draws
from pipeline.scores.caption import title
from pipeline.scores.notes import notes
from pipeline.scores.store import load_runs
from pipeline.scores.summary import USUAL, summarise
from pipeline.scores.tables import Cell, Column, Table, TableRow, label_of

SHOWN = ("map", "ndcg", "recall@30")
"""Measures of a table by default: those of Medić & Šnajder 2022."""

_FACTS = {"candidates": "size", "queries": "queries", "positives": "positives"}
"""Columns of a table by field besides its figures."""


def tables(
    scores: pl.DataFrame,
    measures: Sequence[str] = SHOWN,
    *,
    baseline: str | None = USUAL,
    draws: Draws = PROTOCOL,
) -> tuple[Table, ...]:
    """Return the tables of some scores, as the command line prints them.

    Args:
        scores: columns :data:`pipeline.scores.store.SCORES_SCHEMA`.
        measures: what is shown, in order; what was not scored is left out.
        baseline: as of :func:`pipeline.scores.summary.summarise`.
        draws: seed and numbers of the bootstrap and the tests; the family of the tests, and the margin of equivalence.
    """
    names = [str(measure) for measure in parse_measures(measures)]
    return build_tables(shown(summarise(scores, baseline=baseline, draws=draws), names), load_runs(scores))


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
    rankings = runs_of(table, runs)
    if table["over"][0] == "sizes":
        grid = pivot(table, ["label"], ["size", "measure"])
        columns = [Column(format_count(size), label_of(measure)) for size, measure in grid.columns]
        trained = dict(table.select("label", "trained_on").iter_rows())
        columns += [Column("", "trained on")] if any(trained.values()) else []
        further = {label: (text,) if any(trained.values()) else () for label, text in trained.items()}
        lines = [TableRow(label, (*cells, *further[label])) for (label,), cells in grid.lines]
        below = notes(table, rankings, "column")
        return Table(title(table, rankings), "system", tuple(columns), tuple(lines), below)
    grid = pivot(table, ["field"], ["measure", "label"])
    facts = table.group_by("field", maintain_order=True).agg(pl.col(*_FACTS.values()).first()).rows_by_key("field")
    lines = []
    for (field,), cells in grid.lines:
        counts = ["" if count is None else f"{count:,}" for count in facts[field][0]]
        lines.append(TableRow(field, (*cells, *counts), field == AVERAGE))
    columns = [Column(label_of(measure), label) for measure, label in grid.columns] + [Column("", n) for n in _FACTS]
    below = notes(table, rankings, "row and measure")
    return Table(title(table, rankings), "field", tuple(columns), tuple(lines), below)


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
    equivalent = row["p_equivalent"] is not None and row["p_equivalent"] < row["alpha"]
    return Cell(row["value"], row["deviation"], row["low"], row["high"], row["best"], row["marked"], equivalent)
