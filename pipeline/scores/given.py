"""Frames of scores that a user gives: whole, and with one value for each pool, row, query and measure."""

from __future__ import annotations

from typing import Annotated

import polars as pl

from pipeline.core.door import Check
from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures
from pipeline.scores.frames import SCORES_SCHEMA

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


Scores = Annotated[pl.DataFrame, Check(check_scores)]
"""A frame of scores, columns :data:`pipeline.scores.frames.SCORES_SCHEMA`."""
