"""Published figures beside ours."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from pipeline.data import DATA
from pipeline.encode import registry

_TABLES = DATA / "reference" / "tables"
"""Figures of systems that are no entry of ``models.toml``, such as BM25, and of every system by field."""


def published(system: str, experiment: str, measure: str) -> float | None:
    """Return a published figure, a fraction; None where there is none.

    Args:
        system: name of a system; the precision of an encoder is ignored.
        experiment: as in ``data/reference``, such as ``dataset-200k`` or ``benchmark.Art``.
        measure: canonical name.
    """
    figures = registry.published(system)
    percent = figures.get(f"{experiment}.{measure}", _tables().get((system, experiment, measure)))
    return None if percent is None else percent / 100


def made_with(system: str, experiment: str) -> str:
    """Return the text that a system's published figures were made with; empty where nobody noted it."""
    return _texts().get((system, experiment), "")


def with_published(frame: pl.DataFrame, experiment: pl.Expr) -> pl.DataFrame:
    """Return figures with the ``published`` ones, fractions, and the ``difference`` to them; null where there is none.

    The frame has the columns ``system``, ``measure`` and ``value``; a row repeats no experiment where that is null.
    """
    keys = frame.select("system", experiment.alias("experiment"), "measure").iter_rows()
    figures = [None if name is None else published(system, name, measure) for system, name, measure in keys]
    beside = pl.Series(figures, dtype=pl.Float64)
    return frame.with_columns(published=beside, difference=pl.col("value") - beside)


@functools.cache
def _tables() -> Mapping[tuple[str, str, str], float]:
    """Return figures in percent by system, experiment and measure; empty without the reference tables."""
    return {(row["system"], row["experiment"], row["measure"]): float(row["percent"]) for row in _rows(_TABLES)}


@functools.cache
def _texts() -> Mapping[tuple[str, str], str]:
    rows = [*_rows(_TABLES.parent), *_rows(_TABLES)]
    return {(row["system"], row["experiment"]): row["text"] for row in rows if row.get("text")}


def _rows(folder: Path) -> list[dict[str, str]]:
    return [row for path in sorted(folder.glob("*.csv")) for row in csv.DictReader(path.open(encoding="utf-8"))]
