"""Tables of a summary: systems by pool size, fields by system."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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

    The measures that are shown are those of the summary, in its order.
    """
    return tuple(table_of(table, runs) for table in summary.partition_by("table", maintain_order=True))


def shown(summary: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a summary of some measures, in their order."""
    position = pl.col("measure").replace_strict({name: n for n, name in enumerate(measures)}, default=None)
    group = pl.struct("table", "field", "size", "label").rle_id()
    kept = summary.with_columns(group.alias("group"), position.alias("place")).filter(pl.col("place").is_not_null())
    return kept.sort("group", "place", maintain_order=True).drop("group", "place")


def runs_of(table: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings behind some rows of a summary."""
    return runs.filter(pl.col("pool").is_in(table["pools"].explode().unique().to_list()))


def table_of(table: pl.DataFrame, runs: pl.DataFrame) -> Table:
    """Return one table of a summary (:func:`build_tables`)."""
    rankings, rows = runs_of(table, runs), table.rows(named=True)
    if table["over"][0] == "sizes":
        columns = _present(table, "size", "measure")
        figures = {(row["label"], (row["size"], row["measure"])): figure_of(row) for row in rows}
        heads = [Column(format_count(size), label_of(measure)) for size, measure in columns]
        trained = dict(table.select("label", "trained_on").iter_rows())
        heads += [Column("", "trained on")] if any(trained.values()) else []
        lines = [
            TableRow(label, (*(figures.get((label, column)) for column in columns), text)[: len(heads)])
            for label, text in trained.items()
        ]
        below = notes(table, rankings, "column")
        return Table(title(table, rankings), "system", tuple(heads), tuple(lines), below)
    columns = _present(table, "measure", "label")
    figures = {(row["field"], (row["measure"], row["label"])): figure_of(row) for row in rows}
    facts, lines = table.unique("field", keep="first", maintain_order=True), []
    for field, *counts in facts.select("field", *_FACTS.values()).iter_rows():
        cells = [figures.get((field, column)) for column in columns]
        lines.append(TableRow(field, (*cells, *("" if n is None else f"{n:,}" for n in counts)), field == AVERAGE))
    heads = [Column(label_of(measure), label) for measure, label in columns] + [Column("", name) for name in _FACTS]
    below = notes(table, rankings, "row and measure")
    return Table(title(table, rankings), "field", tuple(heads), tuple(lines), below)


def _present(table: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return the values that some columns have together, each in order of first appearance."""
    present = set(table.select(names).iter_rows())
    together = itertools.product(*(table[name].unique(maintain_order=True) for name in names))
    return [values for values in together if values in present]


def figure_of(row: dict[str, Any]) -> Cell:
    """Return the figure of a row of a summary."""
    equivalent = row["p_equivalent"] is not None and row["p_equivalent"] < row["alpha"]
    marks = "†" * row["marked"] + "≈" * equivalent
    return Cell(row["value"], row["low"], row["high"], row["deviation"], row["best"], marks)
