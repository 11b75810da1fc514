"""A summary as records, one a figure: the rows of ``--json``, and of the CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from pipeline.core.text import csv_cell

_LEFT_OUT = ("table", "over", "wanted", "alpha", "best", "marked")
"""Columns of a summary that say how it is shown."""


_FIGURES = (
    *("field", "size", "measure", "value", "deviation", "low", "high", "samples", "queries", "positives", "pools"),
    *("p_value", "p_adjusted"),
)


def records(summary: pl.DataFrame) -> list[dict[str, Any]]:
    """Return every figure with all that identifies and qualifies it."""
    rows: list[dict[str, Any]] = summary.drop(_LEFT_OUT).rows(named=True)
    return rows


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV with a header (texts: :func:`pipeline.core.text.csv_cell`).

    What is several is separated by ``;``, a missing value is empty.
    """
    lines = [{name: _cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    joined = ";".join(map(str, value)) if isinstance(value, list | tuple) else value
    return csv_cell(joined) if isinstance(joined, str) else joined


def flat(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of a summary in full precision, without what identifies their rankings: a study's CSV file."""
    several = [pl.col("samples").list.len(), pl.col("pools").list.join(";")]
    return summary.select("label", *_FIGURES).with_columns(several).rename({"label": "system"})
