"""Frames of scores that a user gives: checked, and taken apart into values and rankings for summaries and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures
from pipeline.scores import summary
from pipeline.scores.average import PROTOCOL, Draws
from pipeline.scores.compare import compare_pairs
from pipeline.scores.frames import SCORES_SCHEMA, load_runs
from pipeline.scores.layout import TABLE_MEASURES, build_tables, select_measures
from pipeline.scores.tables import Table

_REMEDY = "Give a frame of ws.evaluate, ws.scores or mdcr.evaluate, or some of its rows"


def check_scores(frame: pl.DataFrame, name: str) -> None:
    """Check a frame of scores, columns :data:`pipeline.scores.frames.SCORES_SCHEMA`; further columns are ignored.

    Raises:
        InputError: columns are missing or of other types, there are no rows, or values are unknown or doubled.
    """
    if missing := [column for column in SCORES_SCHEMA if column not in frame.columns]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}", _REMEDY)
    for column, dtype in SCORES_SCHEMA.items():
        given = frame.schema[column]
        if given != pl.Null and _kind(given) != _kind(dtype):
            raise InputError(f"column {column} of {name} must be {dtype}, got {given}", _REMEDY)
    if frame.is_empty():
        raise InputError(f"{name} has no rows", _REMEDY)
    if unknown := frame.filter(pl.col("value").is_null() | ~pl.col("value").is_finite()).height:
        raise InputError(f"values of {name} are null, NaN or infinite: {unknown:,}", _REMEDY)
    if doubled := int(frame.select("pool", "label", "query", "measure").is_duplicated().sum()):
        raise InputError(f"rows of {name} are there more than once: {doubled:,}", _REMEDY)
    parse_measures(frame["measure"].unique().to_list())


def _kind(dtype: pl.DataType | type[pl.DataType]) -> object:
    """Return what types have in common that stand for each other: integers of all widths, floats of both."""
    return "integer" if dtype.is_integer() else "float" if dtype.is_float() else dtype


Scores = Annotated[pl.DataFrame, check_scores]
"""A frame of scores, columns :data:`pipeline.scores.frames.SCORES_SCHEMA`."""


def summarise(
    scores: Scores, *, baseline: str | None = None, sort: str | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return the figures of all measures: table by table, pools in the order shown.

    Args:
        scores: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`; systems keep their order.
        baseline: name or label of the row that the others are tested against; ``usual``: that of BM25; None: no tests.
        sort: the measure whose mean over pools orders the systems, best first.
        draws: settings of the bootstrap and the tests.

    Returns:
        Columns :data:`pipeline.scores.summary.SUMMARY`.

    Raises:
        InputError: the baseline or ``sort`` was not scored; samples of one pool have other queries.
    """
    return summary.summarise(scores, load_runs(scores), baseline=baseline, sort=sort, draws=draws)


def compare(
    scores: Scores, first: str, second: str, measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return the differences of two systems on each field and size with scores of both.

    Args:
        scores: scores on one kind of pool; other systems are ignored.
        first: name or label of a row.
        second: name or label of another row.
        measures: canonical names; None: all that both have.
        draws: settings of the bootstrap and the tests.

    Returns:
        Columns :data:`pipeline.scores.compare.DIFFERENCES`.

    Raises:
        InputError: a name matches no row or several, the two have no pool in common, or one of them lacks a measure.
    """
    return compare_pairs(scores, load_runs(scores), (first, second), measures, draws)


def tables(
    scores: Scores,
    measures: Sequence[str] = TABLE_MEASURES,
    *,
    baseline: str | None = summary.USUAL,
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
