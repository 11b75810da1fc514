"""Does brittleness predict how well a system recommends citations? A rank correlation over systems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import rankdata

from pipeline.core.errors import InputError
from pipeline.core.rng import generator

Figures = npt.NDArray[np.float64]

RESAMPLES = 10_000
LEVEL = 0.95
FEWEST = 3
"""Systems that a rank correlation needs."""


def read_quality(file: str, systems: list[str]) -> dict[str, float]:
    """Return the mean value of each system in a CSV file.

    Args:
        file: has the columns ``system`` and ``value``; with a column ``measure``, as ``mdcr show --format csv`` writes
            it, the rows of MAP count.
        systems: those of the study.

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
    found = {system: value for system, value in means.sort("system").iter_rows() if system in systems}
    if len(found) < FEWEST:
        has = ", ".join(means.sort("system")["system"].cast(pl.String).fill_null("(none)")) or "no system"
        raise InputError(
            f"{file} must have the MAP of {FEWEST} or more of the systems, got {len(found)} (it has {has})",
            f"Name systems as --model does: {', '.join(systems)}",
        )
    return found


def brittleness(classes: pl.DataFrame, measure: str) -> dict[str, float]:
    """Return what each system's highly and partially similar neighbours lack to 100% in a measure, in percent.

    Args:
        classes: ``system``, ``category``, ``measure`` and ``value`` in percent; classes and corpora count alike.
        measure: such as ``NN1_Ret``: then the share that does not find its paper first.
    """
    found = classes.filter(pl.col("measure") == measure, ~pl.col("category").str.ends_with("DS"))
    means = found.group_by("system", maintain_order=True).agg(100 - pl.col("value").mean())
    return dict(means.iter_rows())


class Correlation(NamedTuple):
    """Spearman's rank correlation with a percentile interval from a bootstrap over systems."""

    systems: int
    value: float
    low: float
    high: float


def correlation(of: Mapping[str, float], quality: Mapping[str, float], seed: int) -> Correlation | None:
    """Return the rank correlation of two figures over the systems that have both; None where one is constant.

    Resamples in which one of the two is constant have no correlation and do not count.
    """
    systems = [system for system in of if system in quality]
    first, second = (np.array([figures[system] for system in systems]) for figures in (of, quality))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    draws = generator(seed, "rank correlation").integers(len(systems), size=(RESAMPLES, len(systems)))
    draws = draws[(np.ptp(first[draws], axis=1) > 0) & (np.ptp(second[draws], axis=1) > 0)]
    low, high = np.quantile(_spearman(first[draws], second[draws]), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Correlation(len(systems), float(_spearman(first[None], second[None])[0]), float(low), float(high))


def _spearman(first: Figures, second: Figures) -> Figures:
    """Return the rank correlation of each row of two matrices."""
    one, other = (
        ranks - ranks.mean(axis=1, keepdims=True) for ranks in (rankdata(each, axis=1) for each in (first, second))
    )
    found: Figures = (one * other).sum(axis=1) / np.sqrt(np.square(one).sum(axis=1) * np.square(other).sum(axis=1))
    return found
