"""Statistics other than means over queries: shares, contrasts and sample sizes, by closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import polars as pl

from pipeline.measure.statistics import LEVEL, Floats, Groups, Interval, holm, mean_of_means

POWER = 0.8
Contrast = tuple[Sequence[Floats], Sequence[float]]
"""A weighted sum of group means: values of the groups, each float64 ``[values]``, and weights of their means."""


def contrasts(sums: Sequence[Contrast], seed: int) -> pl.DataFrame:
    """Return the ``value`` of contrasts with ``low`` and ``high``, ``p``, and ``p_adjusted`` by Holm over all of them.

    They are those of :func:`contrast`.
    """
    rows = [(*interval, p_value) for interval, p_value in (contrast(*of_groups, seed) for of_groups in sums)]
    frame = pl.DataFrame(rows, dict.fromkeys(("value", "low", "high", "p"), pl.Float64), orient="row")
    return frame.with_columns(p_adjusted=pl.Series(holm(frame["p"].to_numpy()), dtype=pl.Float64))


def contrast(groups: Sequence[Floats], weights: Sequence[float], seed: int) -> tuple[Interval, float]:
    """Return a weighted sum of group means with its 95% bootstrap interval, and the p-value of Welch's t-test.

    Two groups with the weights 1 and -1 give the difference of their means. Groups are resampled independently. The
    p-value is NaN if a group has one value, or all groups have equal values.

    Args:
        groups: values of the groups, each float64 ``[values]``.
        weights: weights of the means.
        seed: the user's seed.
    """
    from scipy.special import stdtr

    scaled = [len(groups) * weight * values for values, weight in zip(groups, weights, strict=True)]
    interval = mean_of_means({f"group {n}": values[None] for n, values in enumerate(scaled)}, seed).at(0)
    sizes = np.array([len(values) for values in groups])
    if sizes.min() < 2:
        return interval, np.nan
    squares = np.array([w**2 * v.var(ddof=1) / len(v) for v, w in zip(groups, weights, strict=True)])
    error = float(np.sqrt(squares.sum()))
    if error == 0:
        return interval, np.nan
    freedom = squares.sum() ** 2 / (squares**2 / (sizes - 1)).sum()
    return interval, float(2 * stdtr(freedom, -abs(interval[0]) / error))


def crossed_mean(values: Floats) -> Interval:
    """Return the mean over crossed random queries and samples with its 95% t-interval.

    The variance is that of the balanced two-way random-effects model by its mean squares, with Satterthwaite's degrees
    of freedom; for one sample, that between queries. A negative variance between samples is 0.

    Args:
        values: float64 ``[samples, queries]``, with two or more queries.
    """
    from scipy.special import stdtrit

    samples, queries = values.shape
    query_means, sample_means, mean = values.mean(axis=0), values.mean(axis=1), float(values.mean())
    squares, freedoms = [samples * query_means.var(ddof=1)], [queries - 1]
    if samples > 1:
        freedom = (samples - 1) * (queries - 1)
        residual = ((values - query_means - sample_means[:, None] + mean) ** 2).sum() / freedom
        if (between := queries * sample_means.var(ddof=1)) > residual:
            squares, freedoms = [*squares, between, -residual], [*freedoms, samples - 1, freedom]
    terms = np.array(squares) / (samples * queries)
    variance = max(float(terms.sum()), 0.0)
    freedom = variance**2 / float((terms**2 / np.array(freedoms)).sum()) if variance else np.inf
    margin = float(np.sqrt(variance) * stdtrit(freedom, (1 + LEVEL) / 2)) if variance else 0.0
    return mean, mean - margin, mean + margin


def _quantiles(alpha: float) -> tuple[float, float]:
    """Return the normal quantiles of ``1 - alpha / 2`` and of the power (:data:`POWER`)."""
    return NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(POWER)


def queries_needed(variance: float, difference: float, alpha: float) -> float:
    """Return the number of queries that detect a mean difference by a paired two-sided test (Guenther 1981).

    Args:
        variance: variance of the queries' differences.
        difference: mean difference, which is detected with probability :data:`POWER`.
        alpha: level of the test; the first step of Holm's correction over m tests has ``0.05 / m``.
    """
    tail, power = _quantiles(alpha)
    return (tail + power) ** 2 * variance / difference**2 + tail**2 / 2


def smallest_shown(error: float, alpha: float) -> float:
    """Return the smallest mean difference that a paired two-sided test shows with probability :data:`POWER`.

    Args:
        error: standard error of the mean difference (:func:`pipeline.measure.statistics.standard_error`).
        alpha: level of the test; the first step of Holm's correction over m tests has ``0.05 / m``.
    """
    return sum(_quantiles(alpha)) * error


def tall(groups: Groups, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the values of groups, float64 ``[rows, items]``, as a frame: ``rows``, ``group``, ``item``, ``value``."""
    frames = []
    for name, values in groups.items():
        row, item = (axis.ravel() for axis in np.indices(values.shape))
        frames.append(rows[row].with_columns(group=pl.lit(name), item=pl.Series(item), value=pl.Series(values.ravel())))
    return pl.concat(frames)
