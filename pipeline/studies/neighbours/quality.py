"""Brittleness of a system, and how well it recommends citations."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from scipy.stats import permutation_test, rankdata

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.core.text import from_csv_cell

FEWEST = 3
"""Systems that a rank correlation needs."""


def read_quality(file: str, systems: list[str]) -> dict[str, float]:
    """Return the mean value of each system of the study in a CSV file with the columns ``system`` and ``value``.

    With a column ``measure``, as ``mdcr show --format csv`` writes it, the rows of MAP count.

    Raises:
        InputError: the file cannot be read, or has fewer than :data:`FEWEST` of the systems.
    """
    try:
        rows = pl.read_csv(Path(file).expanduser(), infer_schema=False)
        rows = rows.filter(pl.col("measure") == "map") if "measure" in rows.columns else rows
        means = rows.group_by("system").agg(pl.col("value").cast(pl.Float64).mean())
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{file} cannot be read ({reason})", "Give a CSV with the columns system and value") from error
    named = ((from_csv_cell(system or ""), value) for system, value in means.sort("system").iter_rows())
    found = {system: value for system, value in named if system in systems}
    if len(found) < FEWEST:
        has = ", ".join(means.sort("system")["system"].cast(pl.String).fill_null("(none)")) or "no system"
        raise InputError(
            f"{file} must have the MAP of {FEWEST} or more of the systems, got {len(found)} (it has {has})",
            f"Name systems as --model does: {', '.join(systems)}",
        )
    return found


def brittleness(classes: pl.DataFrame, measure: str) -> dict[str, float]:
    """Return what each system's highly and partially similar neighbours lack to 100% in a measure, in percent.

    Classes and corpora count alike. Of ``NN1_Ret`` it is the share that does not find its paper first.
    """
    found = classes.filter(pl.col("measure") == measure, ~pl.col("category").str.ends_with("DS"))
    means = found.group_by("system", maintain_order=True).agg(100 - pl.col("value").mean())
    return dict(means.iter_rows())


def chance(one: list[float], other: list[float], seed: int) -> float:
    """Return the p-value of a rank correlation: how many orders of the systems correlate as much, either way."""
    first, second = (rankdata(each) - (len(each) + 1) / 2 for each in (one, other))
    found = permutation_test(
        (first,),
        lambda order, axis: (order * second).sum(axis=axis),
        permutation_type="pairings",
        vectorized=True,
        random_state=generator(seed, "rank correlation"),
    )
    return float(found.pvalue)
