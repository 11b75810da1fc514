"""Frames, such as the scores of every query, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipeline.core import files
from pipeline.core.errors import InputError, nearest
from pipeline.core.text import csv_cell
from pipeline.measure import trec

FORMATS = {name: name for name in ("csv", "csv.gz", "parquet")}
"""Formats of a frame, and the ending of each file's name."""

_IDS = ("query_id", "paper_id")
"""Columns that other tools join by: their texts are written as they are, also where a spreadsheet runs them."""


def check_format(output: str, known: dict[str, str]) -> None:
    """Refuse a format that is not known; the message names the nearest."""
    if output not in known:
        raise InputError(f"--format must be one of {', '.join(known)}, got {output!r}", nearest(output, known))


def as_csv(frame: pl.DataFrame) -> str:
    """Return a frame as CSV, its texts but ids as :func:`pipeline.core.text.csv_cell` has them."""
    texts = [name for name, kind in frame.schema.items() if kind == pl.String and name not in _IDS]
    text: str = frame.with_columns(pl.col(name).map_elements(csv_cell, pl.String) for name in texts).write_csv()
    return text


def write_frame(path: Path, frame: pl.DataFrame, output: str = "csv") -> None:
    """Write a frame, atomically, in one of :data:`FORMATS`."""
    check_format(output, FORMATS)
    if output.startswith("csv"):
        trec.write(path, [as_csv(frame).encode()])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            frame.write_parquet(temporary)
