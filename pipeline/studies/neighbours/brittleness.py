"""Does brittleness predict how well a system recommends citations? A rank correlation over systems."""

from __future__ import annotations

from collections.abc import Mapping
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


class Correlation(NamedTuple):
    """Spearman's rank correlation with a percentile interval from a bootstrap over systems."""

    systems: int
    value: float
    low: float
    high: float


def brittleness(classes: pl.DataFrame) -> dict[str, float]:
    """Return the share of highly and partially similar neighbours that do not find their paper first, by system.

    Args:
        classes: ``system``, ``category``, ``measure`` and ``value`` in percent; classes and corpora count alike.
    """
    found = classes.filter(pl.col("measure") == "NN1_Ret", ~pl.col("category").str.ends_with("DS"))
    means = found.group_by("system", maintain_order=True).agg(pl.col("value").mean())
    return {system: 1 - value / 100 for system, value in means.iter_rows()}


def correlation(of: Mapping[str, float], quality: Mapping[str, float], seed: int) -> Correlation:
    """Return the rank correlation of two figures over the systems that have both.

    Resamples in which one of the two is constant have no correlation and do not count.

    Raises:
        InputError: fewer than :data:`FEWEST` systems have both, or one figure is the same for all.
    """
    systems = [system for system in of if system in quality]
    first, second = (np.array([figures[system] for system in systems]) for figures in (of, quality))
    if len(systems) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        raise InputError(
            f"a rank correlation needs {FEWEST} systems with figures that differ, got {len(systems)}",
            "Give the quality of more systems",
        )
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
