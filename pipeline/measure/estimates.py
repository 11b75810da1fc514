"""Figures that are no means over queries: shares, correlations, variances and sample sizes, by closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from pipeline.measure.statistics import LEVEL, UNKNOWN, Floats, Interval

POWER = 0.8
FEWEST_PAIRS = 10
"""A correlation of fewer exchangeable pairs (queries, systems) is not computed."""
_FEWEST = 5
"""Queries from which on a variance has an interval."""


def share_between(groups: Sequence[Floats]) -> Interval:
    """Return the share of the variance of some values that lies between groups, with its 95% interval.

    Groups may have variances of their own: the interval inverts the noncentral F (Steiger 2004) of Brown & Forsythe's
    test (1974) with the degrees of freedom of Mehrotra (1997). Where its lower end is above 0, that test rejects at
    2.5%. NaN of fewer than two groups, or where one has fewer than two values or no variance.
    """
    from scipy.special import fdtr, ncfdtrinc

    if len(groups) < 2 or any(len(values) < 2 or np.ptp(values) == 0 for values in groups):
        return UNKNOWN
    sizes = np.array([len(values) for values in groups], np.float64)
    means, variances = (np.array([f(values) for values in groups]) for f in (np.mean, lambda v: v.var(ddof=1)))
    part = sizes / sizes.sum()
    parts = (1 - part) * variances
    expected = parts.sum()  # the squares between groups that have one mean
    between, within = (sizes * (means - (part * means).sum()) ** 2).sum(), (sizes * variances).sum()
    first = expected**2 / ((variances**2 * (1 - 2 * part)).sum() + (part * variances).sum() ** 2)
    second = expected**2 / (parts**2 / (sizes - 1)).sum()
    f = between / expected
    ends = [
        float(ncfdtrinc(first, second, tail, f)) if fdtr(first, second, f) > tail else 0.0
        for tail in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
    ]
    squares = (max(between - expected, 0.0), *(noncentrality * expected / first for noncentrality in ends))
    value, low, high = (float(explained / (explained + within)) for explained in squares)
    return value, low, high


def variance_interval(values: Floats) -> Interval:
    """Return the variance (``n - 1``) of some values with its 95% interval for heavy tails (Bonett 2006).

    The ends of fewer than five values, or of equal ones, are NaN.
    """
    from scipy.stats import trim_mean

    count = len(values)
    variance = float(values.var(ddof=1)) if count > 1 else np.nan
    if count < _FEWEST or not variance > 0:
        return variance, np.nan, np.nan
    normal = NormalDist().inv_cdf((1 + LEVEL) / 2)
    middle = trim_mean(values, 1 / (2 * np.sqrt(count - 4))) if count > _FEWEST else float(np.median(values))
    kurtosis = count * ((values - middle) ** 4).sum() / ((values - values.mean()) ** 2).sum() ** 2
    scale = count / (count - normal)
    error = normal * scale * np.sqrt((kurtosis - (count - 3) / count) / (count - 1))
    return variance, scale * variance * float(np.exp(-error)), scale * variance * float(np.exp(error))


def queries_needed(variance: float, difference: float, alpha: float, power: float = POWER) -> float:
    """Return how many queries detect a mean difference by a paired two-sided test (Guenther 1981).

    Args:
        variance: of the differences of the queries.
        difference: mean difference.
        alpha: level of the test; under Holm's correction over m tests, that of its first step is ``0.05 / m``.
        power: probability that it is detected.
    """
    normal = NormalDist()
    tail = normal.inv_cdf(1 - alpha / 2)
    return (tail + normal.inv_cdf(power)) ** 2 * variance / difference**2 + tail**2 / 2


def detectable(variance: float, queries: int, alpha: float, power: float = POWER) -> float:
    """Return the mean difference that some queries detect, the inverse of :func:`queries_needed`; NaN of too few."""
    normal = NormalDist()
    tail = normal.inv_cdf(1 - alpha / 2)
    room = queries - tail**2 / 2
    return (tail + normal.inv_cdf(power)) * float(np.sqrt(variance / room)) if room > 0 else np.nan


def share_of_clusters(flags: npt.NDArray[np.bool_], cluster: npt.NDArray[np.integer]) -> Interval:
    """Return the share of some items that are flagged, with its 95% interval over clusters; NaN of nothing.

    Clopper and Pearson's interval at the effective number of items (Korn & Graubard 1998), which is what the variance
    between clusters leaves, and the number of clusters where all items are alike.

    Args:
        flags: bool ``[items]``.
        cluster: what each item is drawn with (its query), int ``[items]``.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    if not len(flags):
        return UNKNOWN
    place = np.unique(cluster, return_inverse=True)[1]
    sizes, flagged = np.bincount(place).astype(np.float64), np.bincount(place, flags)
    clusters, items, tail = len(sizes), float(len(flags)), (1 - LEVEL) / 2
    value = float(flags.mean())
    variance = ((flagged - value * sizes) ** 2).sum() * clusters / max(clusters - 1, 1) / items**2
    effective = float(clusters)
    if clusters > 1 and variance > 0:
        effective = min(items, value * (1 - value) / variance) * (ndtri(tail) / stdtrit(clusters - 1, tail)) ** 2
    hits, misses = value * effective, (1 - value) * effective
    low = betaincinv(hits, misses + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, misses, 1 - tail) if misses else 1.0
    return value, float(low), float(high)


def rank_correlation(first: Floats, second: Floats, level: float = LEVEL) -> Interval:
    """Return Spearman's correlation with its interval; NaN where either is constant, or of fewer than ten pairs.

    The interval is Fisher's with the standard error of Bonett & Wright (2000). Pairs with a NaN are left out.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    known = ~(np.isnan(first) | np.isnan(second))
    pairs = int(known.sum())
    if pairs < FEWEST_PAIRS:
        return UNKNOWN
    x, y = (rankdata(side[known]) - (pairs + 1) / 2 for side in (first, second))
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    if scale == 0:
        return UNKNOWN
    value = float((x * y).sum()) / scale
    error = ndtri((1 + level) / 2) * np.sqrt((1 + value**2 / 2) / (pairs - 3))
    z = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    return value, float(np.tanh(z - error)), float(np.tanh(z + error))
