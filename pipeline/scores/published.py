"""Published figures to compare with ours, and golden tables: CSV files with expected figures."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from pipeline.core.config import counted, parse_count
from pipeline.core.errors import DriftError, InputError
from pipeline.core.files import given
from pipeline.core.progress import say
from pipeline.core.text import from_csv_cell, number
from pipeline.data import DATA
from pipeline.encode import known
from pipeline.measure.measures import parse_measures

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


COLUMNS = ("system", "field", "size", "measure", "value")
"""``value`` is a fraction. An empty field is the dataset level; an empty size, such as 200k, matches any."""

OPTIONAL = ("label", "year", "split", "seed", "depth", "sample")
"""Further columns; values that are not empty restrict the comparison."""


def check(path: Path, figures: pl.DataFrame, tolerance: float) -> int:
    """Compare figures with a golden table and return how many rows agree.

    Rows of systems that have no figure at all are skipped with a message.

    Args:
        path: CSV with the columns :data:`COLUMNS`, optionally :data:`OPTIONAL` and others, in any order; ``#`` starts a
            comment line.
        figures: figures with the columns :data:`pipeline.scores.summary.SUMMARY`, perhaps without those of display.
        tolerance: the largest difference allowed, a fraction.

    Raises:
        InputError: the table cannot be read, or has no row of a system that has figures.
        DriftError: a figure differs by more than the tolerance or was not measured; every such row is listed.
    """
    systems, rows = set(figures["system"]), _read_golden_table(path)
    checked = [row for row in rows if row["system"] in systems]
    if not checked:
        raise InputError(f"{path} has no row of {', '.join(sorted(systems))}", "Check the names of the systems")
    if len(checked) < len(rows):
        say(f"{counted(len(rows) - len(checked), 'row')} of {path} are of systems without scores")
    drifted = []
    for row in checked:
        try:
            expected = number(row["value"])
        except ValueError:
            what = f"{row['value']!r} in the column value is not a number"
            raise InputError(what, "Give a fraction such as 0.645") from None
        values = _matching_figures(row, figures)
        if len(values) != 1 or abs(values[0] - expected) > tolerance:
            found = ", ".join(f"{value:.4f}" for value in values) or "nothing"
            drifted.append(f"{' '.join(filter(None, (row[name] for name in COLUMNS)))}: found {found}")
    if drifted:
        raise DriftError(f"{len(drifted)} of {len(checked)} figures differ from {path}:\n  " + "\n  ".join(drifted))
    return len(checked)


def _matching_figures(row: Mapping[str, str], figures: pl.DataFrame) -> list[float]:
    """Return the figures that match a row; if it states no sample, those over the most samples."""
    stated = {name: row[name] for name in OPTIONAL if row[name]} | {"system": row["system"]}
    stated |= {"size": str(parse_count(row["size"], "size"))} if row["size"] else {}
    stated |= {"measure": str(parse_measures([row["measure"]])[0])}
    same = (pl.col(name).cast(pl.String) == value for name, value in stated.items())
    matching = figures.filter(pl.col("field").eq_missing(pl.lit(row["field"] or None, pl.String)), *same)
    samples = pl.col("samples").list.len()
    chosen = matching.filter(pl.lit(bool(row["sample"])) | (samples == samples.max()))
    return [value for (value,) in chosen.select("value").iter_rows()]


def _read_golden_table(path: Path) -> list[dict[str, str]]:
    try:
        lines = [line for line in given(path).read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})", "Give a CSV file in UTF-8") from error
    rows = [{k: from_csv_cell(v) if isinstance(v, str) else v for k, v in row.items()} for row in csv.DictReader(lines)]
    if not rows or not set(COLUMNS) <= rows[0].keys():
        raise InputError(f"{path} does not have the columns {', '.join(COLUMNS)}", "Add them, or rows")
    return [{name: (row.get(name) or "").strip() for name in (*COLUMNS, *OPTIONAL)} for row in rows]
