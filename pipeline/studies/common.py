"""Shared by studies: scoring systems on pools, with tuned BM25; tables, charts and parts of pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.measure.design import Draws
from pipeline.scores.average import PROTOCOL
from pipeline.scores.charts import charts, figures
from pipeline.scores.findings import best_line, findings
from pipeline.scores.layout import select_measures, table_of
from pipeline.scores.page.browse import Typed, browser
from pipeline.scores.page.parts import Chart, Part, Series
from pipeline.scores.plot import draw
from pipeline.scores.summary import flat
from pipeline.scores.tables import Cell, Column, Form, Value, percent, points
from pipeline.studies.base import StudyFigure, StudyResult
from pipeline.studies.pools import OwnPool
from pipeline.studies.scored import check_baseline as check_baseline
from pipeline.studies.scored import named_by as named_by


def pool_result(
    runs: pl.DataFrame,
    scores: pl.DataFrame,
    summaries: Sequence[pl.DataFrame],
    measures: Sequence[str],
    draws: Draws = PROTOCOL,
    parts: Sequence[Part] = (),
    types: Mapping[str, Typed] | None = None,
) -> StudyResult:
    """Return the result that all studies of pools have in common; a study may replace some of it.

    It has the tables of all summaries (``scores``, ``scores-2``) and a figure of each measure for each summary. Its
    sources are the corpus and the pools; its best row is that of the last summary. The page has charts, ``parts`` and a
    browser of queries.

    ``runs`` come from :func:`scored_runs`; ``measures`` are canonical names; ``types`` are the typed candidates of each
    pool, by the pool's name.
    """
    summaries = [select_measures(summary, measures) for summary in summaries]
    tables = [table for summary in summaries for table in summary.partition_by("table", maintain_order=True)]
    return StudyResult(
        tables=[
            replace(table_of(table, runs), name=f"scores-{number}" if number > 1 else "scores", frame=flat(table))
            for number, table in enumerate(tables, 1)
        ],
        figures=drawn(plot for summary in summaries for plot in figures(summary, runs)),
        sources=[runs["corpus"][0], *sorted(runs["pool"].unique())],
        parts=[
            *(chart for summary in summaries for chart in charts(summary, runs)),
            *parts,
            browser(runs, scores, measures, draws, types=types),
        ],
        findings=findings(summaries[-1], runs),
        best=best_line(summaries[-1], runs),
    )


def require_made(workspace: Workspace, task: Task) -> Artifact:
    """Return the artifact of a task; InputError if it has not been made."""
    if not workspace.runner.published(task):
        raise InputError(f"{task.name} must be made first", "Run the study without --dry-run")
    return Artifact.open(workspace.runner.path(task))


ExternalPoolConfig = OwnPool
BRACKETS = "Brackets: 95% interval."
NO_GROUP = pl.lit("")


def cells_of(
    frame: pl.DataFrame, row: str | pl.Expr, column: str | pl.Expr, group: pl.Expr = NO_GROUP, form: Form = percent
) -> dict[tuple[str, Column], Value]:
    """Return the figures of a frame as the cells of a table, by row and column (:func:`pipeline.scores.tables.grid`).

    Args:
        frame: a row for each figure: its ``value``, null if unknown, and columns named like other attributes of a cell.
        row: label of the row.
        column: label of the column.
        group: label of the group of columns.
        form: how figures are written.
    """
    known = [field.name for field in fields(Cell) if field.name in frame.columns]
    keys, figures = frame.select(row=row, group=group, column=column), frame.select(known).iter_rows(named=True)
    return {
        (label, Column(*of_column)): None if figure["value"] is None else Cell(**figure, form=form)
        for (label, *of_column), figure in zip(keys.iter_rows(), figures, strict=True)
    }


def texts_of(shown: pl.DataFrame) -> dict[tuple[str, Column], Value]:
    """Return the texts of a frame as the cells of a table; its first column labels the rows."""
    row, *columns = shown.columns
    return {(label, Column("", name)): text for name in columns for label, text in shown.select(row, name).iter_rows()}


def in_points(value: str = "difference", low: str = "low", high: str = "high", digits: int = 1) -> pl.Expr:
    """Return an expression that formats a difference and its interval by :func:`points`, named like the first."""
    figures = pl.struct(value, low, high)
    return figures.map_elements(lambda row: points(row.values(), digits), pl.String).alias(value)


def formatted(name: str, form: str) -> pl.Expr:
    """Return an expression that formats a column of numbers, such as by ``.4f``; null stays null."""
    return pl.col(name).map_elements(f"{{:{form}}}".format, pl.String)


def series(frame: pl.DataFrame, label: str, x: str) -> Iterator[Series]:
    """Yield the points of each ``label`` by ``x``, with the columns ``value``, ``low`` and ``high``."""
    for rows in frame.partition_by(label, maintain_order=True):
        yield Series(rows[label][0], *(rows[name].to_list() for name in (x, "value", "low", "high")))


def drawn(plots: Iterable[tuple[str, Chart, str]]) -> list[StudyFigure]:
    """Return figures of the views of charts (:func:`pipeline.scores.charts.figures`)."""
    return [StudyFigure(name, partial(draw, chart=chart, view=view)) for name, chart, view in plots]
