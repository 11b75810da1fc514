"""Published figures to compare with ours."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from pipeline.data import DATA
from pipeline.encode import known

_TABLES = DATA / "reference" / "tables"
"""Figures of systems without an entry in ``models.toml``, such as BM25, and of every system by field."""


def published(system: str, experiment: str, measure: str) -> float | None:
    """Return a published figure, a fraction; None without one.

    Args:
        system: name of a system; the precision of an encoder is ignored.
        experiment: as in ``data/reference``, such as ``dataset-200k`` or ``benchmark.Art``.
        measure: canonical name.
    """
    figures = known.published(system)
    percent = figures.get(f"{experiment}.{measure}", _tables().get((system, experiment, measure)))
    return None if percent is None else percent / 100


def with_published(frame: pl.DataFrame, experiment: pl.Expr) -> pl.DataFrame:
    """Add ``published`` figures, fractions, and the ``difference`` to them; null without any.

    The frame has the columns ``system``, ``measure`` and ``value``; ``experiment`` is null for rows without one.
    """
    keys = frame.select("system", experiment.alias("experiment"), "measure").iter_rows()
    figures = [None if name is None else published(system, name, measure) for system, name, measure in keys]
    published_figures = pl.Series(figures, dtype=pl.Float64)
    return frame.with_columns(published=published_figures, difference=pl.col("value") - published_figures)


@functools.cache
def _tables() -> Mapping[tuple[str, str, str], float]:
    """Return figures in percent by system, experiment and measure; empty without the reference tables."""
    return {(row["system"], row["experiment"], row["measure"]): float(row["percent"]) for row in _rows(_TABLES)}


def _rows(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the tables of systems in a folder; tables of trainings have other columns."""
    rows = (row for path in sorted(folder.glob("*.csv")) for row in csv.DictReader(path.open(encoding="utf-8")))
    return [row for row in rows if "system" in row]
