"""Statistics that studies share: means with bootstrap intervals, percentile intervals, rank correlations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipeline.core.rng import generator
from pipeline.measure.statistics import LEVEL, RESAMPLES, Floats, bootstrap_means, confidence_interval

Interval = tuple[float, float, float]
"""Value, lower and upper end."""

UNKNOWN: Interval = (np.nan, np.nan, np.nan)


class Means(NamedTuple):
    """The mean over groups of each row, its bootstrap interval, and its resamples ``[rows, resamples]``.

    All rows share the queries drawn.
    """

    value: Floats
    low: Floats
    high: Floats
    draws: Floats

    def at(self, row: int) -> Interval:
        """Return the mean of one row with its interval."""
        return float(self.value[row]), float(self.low[row]), float(self.high[row])


def mean_of_means(groups: Mapping[str, Floats], seed: int) -> Means:
    """Return the mean over groups of the mean over queries, values ``[rows, queries]``.

    Groups (fields, folds) are resampled independently; their names decide the draws.
    """
    draws = np.mean([bootstrap_means(each, seed=seed, item=name) for name, each in groups.items()], axis=0)
    means = np.mean([each.mean(axis=1) for each in groups.values()], axis=0)
    return Means(means, *confidence_interval(draws, *groups.values()), draws)


def interval(values: Floats, seed: int, item: str = "") -> Interval:
    """Return the mean of some queries with its 95% interval; NaN where there is no query.

    Queries whose value is NaN, which have no positive of a kind, are left out.
    """
    known = values[~np.isnan(values)]
    return mean_of_means({item: known[None, :]}, seed).at(0) if known.size else UNKNOWN


def percentiles(draws: Floats) -> tuple[float, float]:
    """Return the 95% percentile interval of a statistic of each resample, which need not be a mean (F1, tau)."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def rank_correlation(one: Floats, other: Floats, seed: int, item: str = "", resamples: int = RESAMPLES) -> Interval:
    """Return Spearman's correlation with its 95% percentile interval over queries; NaN where either is constant.

    Queries with a NaN on either side are left out.
    """
    from scipy.stats import rankdata

    known = ~(np.isnan(one) | np.isnan(other))
    pair = np.stack([one[known], other[known]])
    queries = pair.shape[1]
    if queries < 2:
        return UNKNOWN
    draws = generator(seed, "correlation", item).integers(0, queries, size=(resamples, queries))
    x, y = (rankdata(np.concatenate([each[None, :], each[draws]]), axis=1) for each in pair)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    found = np.where(scale > 0, (x * y).sum(axis=1) / np.where(scale > 0, scale, 1), np.nan)
    if np.isnan(found[0]):
        return UNKNOWN
    low, high = np.nanquantile(found[1:], [0.025, 0.975])
    return float(found[0]), float(low), float(high)
