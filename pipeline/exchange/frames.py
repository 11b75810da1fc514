"""Write frames, such as scores by query, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipeline.core import files
from pipeline.core.text import csv_cell
from pipeline.measure import trec

FORMATS = {name: name for name in ("csv", "csv.gz", "parquet")}
"""File name ending of each format of a frame."""

_ID_COLUMNS = ("query_id", "paper_id")
"""Columns that other tools join on: written unchanged, even if a spreadsheet would run them as a formula."""


def as_csv(frame: pl.DataFrame) -> str:
    """Return a frame as CSV: lists joined by ``;``, texts other than ids by :func:`pipeline.core.text.csv_cell`."""
    lists = pl.selectors.list()
    frame = frame.with_columns(lists.list.eval(pl.element().cast(pl.String)).list.join(";"))
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in _ID_COLUMNS]
    cells = (pl.col(name).replace("", None).map_elements(csv_cell, pl.String) for name in texts)
    text: str = frame.with_columns(cells).write_csv()
    return text


def write_frame(path: Path, frame: pl.DataFrame, output: str = "csv") -> None:
    """Write a frame atomically in one of :data:`FORMATS`."""
    if output.startswith("csv"):
        trec.write(path, [as_csv(frame).encode()])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            frame.write_parquet(temporary)
