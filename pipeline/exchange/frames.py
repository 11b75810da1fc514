"""Frames, such as the scores of every query, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipeline.core import files
from pipeline.exchange.rankings import check_format
from pipeline.measure import trec

FORMATS = {name: name for name in ("csv", "csv.gz", "parquet")}
"""Formats of a frame, and the ending of each file's name."""


def write_frame(path: Path, frame: pl.DataFrame, output: str = "csv") -> None:
    """Write a frame, atomically, in one of :data:`FORMATS`."""
    check_format(output, FORMATS)
    if output.startswith("csv"):
        trec.write(path, [frame.write_csv().encode()])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            frame.write_parquet(temporary)
