"""Tables of a summary: systems by pool size, fields by system."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.measure.design import Draws
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import AVERAGE, PROTOCOL
from pipeline.scores.caption import title
from pipeline.scores.frames import Scores, load_runs
from pipeline.scores.notes import notes
from pipeline.scores.summary import USUAL, of_fewer_samples, summarise
from pipeline.scores.tables import Cell, Column, Table, TableRow, label_of

TABLE_MEASURES = ("map", "ndcg", "recall@30")
"""Measures of a table by default: those of Medić & Šnajder 2022."""

_FACTS = {"candidates": "size", "queries": "queries", "positives": "positives"}
"""Columns of a table by field besides its figures."""


def tables(
    scores: Scores,
    measures: Sequence[str] = TABLE_MEASURES,
    *,
    baseline: str | None = USUAL,
    draws: Draws = PROTOCOL,
) -> tuple[Table, ...]:
    """Return the tables of a frame of scores, as the command line prints them.

    Args:
        scores: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`.
        measures: measures to show, in order; those without scores are left out.
        baseline: as in :func:`pipeline.scores.summary.summarise`.
        draws: settings of the bootstrap and the tests.
    """
    names = [str(measure) for measure in parse_measures(measures)]
    figures = summarise(scores, baseline=baseline, draws=draws)
    return build_tables(select_measures(figures, names), load_runs(scores))


def build_tables(summary: pl.DataFrame, runs: pl.DataFrame) -> tuple[Table, ...]:
    """Return the tables of a summary, with their notes.

    A table over pool sizes has a row for each system (as table 1 of Medić & Šnajder 2022). A table over fields has a
    row for each field, and the macro average below (their tables 2, 7 and 8, transposed). Measures have the order of
    the summary.
    """
    return tuple(table_of(table, runs) for table in summary.partition_by("table", maintain_order=True))


def select_measures(summary: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a summary that belong to ``measures``, in that order within each pool and system.

    In a table over sizes, systems with figures of fewer samples are last.
    """
    position = pl.col("measure").replace_strict({name: n for n, name in enumerate(measures)}, default=None)
    group = pl.struct("table", "field", "size", "label").rle_id()
    selected = summary.with_columns(group.alias("group"), position.alias("place")).filter(pl.col("place").is_not_null())
    selected = selected.sort("group", "place", maintain_order=True).drop("group", "place")
    fewer = selected.with_columns(fewer=of_fewer_samples() & (pl.col("over") == "sizes"))
    return fewer.sort(pl.col("fewer").any().over("table", "label"), maintain_order=True).drop("fewer")


def runs_behind(table: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings behind some rows of a summary."""
    return runs.filter(pl.col("pool").is_in(table["pools"].explode().unique().to_list()))


def table_of(table: pl.DataFrame, runs: pl.DataFrame) -> Table:
    """Return one table of a summary (:func:`build_tables`)."""
    rankings, rows = runs_behind(table, runs), table.rows(named=True)
    if table["over"][0] == "sizes":
        columns = _combinations(table, "size", "measure")
        figures = {(row["label"], (row["size"], row["measure"])): cell_of(row) for row in rows}
        header = [Column(format_count(size), label_of(measure)) for size, measure in columns]
        apart = set(table.filter(of_fewer_samples())["label"])
        training_of = dict(table.select("label", "trained_on").iter_rows())
        header += [Column("", "trained on")] if any(training_of.values()) else []
        lines = [
            TableRow(
                label, (*(figures.get((label, column)) for column in columns), training)[: len(header)], label in apart
            )
            for label, training in training_of.items()
        ]
        return Table.of(title(table, rankings), "system", header, lines, notes(table, rankings, "column"))
    columns = _combinations(table, "measure", "label")
    figures = {(row["field"], (row["measure"], row["label"])): cell_of(row) for row in rows}
    facts, lines = table.unique("field", keep="first", maintain_order=True), []
    for field, *counts in facts.select("field", *_FACTS.values()).iter_rows():
        cells = [figures.get((field, column)) for column in columns]
        lines.append(TableRow(field, (*cells, *("" if n is None else f"{n:,}" for n in counts)), field == AVERAGE))
    header = [Column(label_of(measure), label) for measure, label in columns] + [Column("", name) for name in _FACTS]
    return Table.of(title(table, rankings), "field", header, lines, notes(table, rankings, "row and measure"))


def _combinations(table: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return the combinations of values of some columns; the values of each column in order of first appearance."""
    occurring = set(table.select(names).iter_rows())
    combinations = itertools.product(*(table[name].unique(maintain_order=True) for name in names))
    return [values for values in combinations if values in occurring]


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return a row of a summary as a cell."""
    return Cell(row["value"], row["low"], row["high"], row["deviation"], row["best"], "†" * row["marked"])
