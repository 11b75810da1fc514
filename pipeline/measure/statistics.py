"""Uncertainty of means over queries: bootstrap intervals, paired permutation tests, equivalence, Holm's correction.

Everything is seeded, vectorised over rows of values that share their queries, and independent of the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.resampling import Floats as Floats
from pipeline.measure.resampling import dots, resampled, sign_patterns

Groups = Mapping[str, Floats]
"""Values of each query by group (field, fold), float64 ``[rows, queries]``; the rows of all groups are the same.

Groups are resampled independently, and their names decide the draws. Queries of one pool are one group."""

Units = Mapping[str, Sequence[str]]
"""What each query of each group is a draw of, such as its paper: queries of one unit are drawn and flipped as one."""

Interval = tuple[float, float, float]
"""Value, lower and upper end."""

UNKNOWN: Interval = (np.nan, np.nan, np.nan)
RESAMPLES = 1_000
TAIL_RESAMPLES = 10_000
"""Resamples where the ends of an interval lie far out: those of BCa, and those of a level above 95%."""
PERMUTATIONS = 10_000
LEVEL = 0.95
PERCENTILE_QUERIES = 100
"""From so many queries on, percentile intervals are as wide as they say."""


def bootstrap_means(values: Floats, *, seed: int, item: object = "", resamples: int = RESAMPLES) -> Floats:
    """Return the mean of each row over queries drawn with replacement, for every resample.

    All rows share their draws, so differences between systems stay paired.

    Args:
        values: a row for each system or measure, float64 ``[rows, queries]``.
        seed: the user's seed.
        item: what the queries are of (a field); different items draw independently.
        resamples: number of draws.

    Returns:
        float64 ``[rows, resamples]``.

    Raises:
        InputError: there are no queries, or ``resamples`` is below 1.
    """
    queries = values.shape[1]
    sums = [dots(values, times) for times in resampled(queries, seed=seed, item=item, resamples=resamples)]
    means: Floats = np.concatenate(sums, axis=1) / queries
    return means


def interval_kind(queries: int, groups: int = 1) -> str:
    """Return the kind of interval of a mean over so many queries: ``percentile``, ``BCa`` or ``none`` (one query)."""
    return "percentile" if queries >= PERCENTILE_QUERIES else "BCa" if queries > groups else "none"


def simultaneous(intervals: int, level: float = LEVEL) -> float:
    """Return the level of each of some intervals that are read together, by Bonferroni: all hold with ``level``."""
    return 1 - (1 - level) / max(intervals, 1)


def _resamples(queries: int, groups: int, level: float) -> int:
    return TAIL_RESAMPLES if level > LEVEL or interval_kind(queries, groups) == "BCa" else RESAMPLES


def confidence_interval(means: Floats, *values: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return a confidence interval of means by the bootstrap: low, high, float64 ``[rows]`` each.

    From 100 queries on it is the percentile interval. Below, that is too short, and the interval is bias-corrected and
    accelerated (BCa, Efron 1987), at the level expanded for the degrees of freedom (Hesterberg 2015, section 5.2).
    Values that are all equal have an interval of width zero, and so has one query, of which nothing is known.

    Args:
        means: bootstrapped means, float64 ``[rows, resamples]``.
        values: what they are means of, float64 ``[rows, queries]``; several for a mean of the means of several groups
            (fields), each with queries of its own.
        level: of confidence.

    Raises:
        InputError: ``level`` is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise InputError(f"the confidence level must be between 0 and 1, got {level}", "Give a fraction such as 0.95")
    estimate = np.mean([group.mean(axis=1) for group in values], axis=0)
    queries, tails = sum(group.shape[1] for group in values), [(1 - level) / 2, (1 + level) / 2]
    kind = interval_kind(queries, len(values))
    if kind == "percentile":
        low, high = np.quantile(means, tails, axis=1)
    elif kind == "BCa":
        levels = _bca_levels(means, estimate, values, tails)
        pairs = [np.quantile(row, row_levels) for row, row_levels in zip(means, levels, strict=True)]
        low, high = np.array(pairs).reshape(-1, 2).T
    else:
        low = high = estimate
    same = np.all([np.ptp(group, axis=1) == 0 for group in values], axis=0)
    return np.where(same, estimate, low), np.where(same, estimate, high)


def _bca_levels(means: Floats, estimate: Floats, values: Sequence[Floats], tails: Sequence[float]) -> Floats:
    """Return the quantiles of ``means`` that bound the BCa interval, float64 ``[rows, tails]``."""
    from scipy.special import ndtr, ndtri, stdtrit  # 0.2 s, only where there are few queries

    influence = [(group - group.mean(axis=1, keepdims=True)) / group.shape[1] for group in values]
    squares = np.stack([(group**2).sum(axis=1) for group in influence])
    cubes = np.sum([(group**3).sum(axis=1) for group in influence], axis=0)
    constant = squares.sum(axis=0) == 0
    squares[:, constant] = 1.0  # equal values; the caller knows their interval
    acceleration = cubes / (6 * squares.sum(axis=0) ** 1.5)

    draws = means.shape[1]
    slack = 1e-12 * np.abs(estimate)  # sums in another order count as equal
    below = (means < (estimate - slack)[:, None]).sum(axis=1) + (means <= (estimate + slack)[:, None]).sum(axis=1)
    bias = ndtri(np.clip(below / (2 * draws), 0.5 / draws, 1 - 0.5 / draws))[:, None]

    sizes = np.array([[group.shape[1]] for group in values])
    freedom = np.maximum(sizes - 1, 1)
    variances = squares * sizes / freedom
    total = variances.sum(axis=0)
    expansion = np.sqrt(total / squares.sum(axis=0))[:, None]
    shifted = bias + expansion * stdtrit((total**2 / (variances**2 / freedom).sum(axis=0))[:, None], np.asarray(tails))
    levels: Floats = ndtr(bias + shifted / (1 - acceleration[:, None] * shifted))
    return levels


def paired_permutation(
    differences: Floats, *, seed: int, item: object = "", permutations: int = PERMUTATIONS
) -> Floats:
    """Test whether two systems differ, by flipping the signs of their differences query by query.

    The test is two-sided, on the mean difference. Up to 13 queries, every pattern of signs is tried and the p-value is
    exact. Beyond, patterns are drawn and the observed one is counted among them, so a p-value is never 0.

    Args:
        differences: value of one system less that of the other, float64 ``[comparisons, queries]``.
        seed: the user's seed.
        item: what the queries are of (a field).
        permutations: patterns drawn.

    Returns:
        p-values, float64 ``[comparisons]``; 1 where no query differs.

    Raises:
        InputError: there are no queries, or ``permutations`` is below 1.
    """
    comparisons, queries = differences.shape
    total = differences.sum(axis=1)
    # Patterns that give the observed sum by another order of additions must count as equal to it.
    threshold = np.abs(total) - 1e-12 * np.abs(differences).sum(axis=1)
    extreme = np.zeros(comparisons, dtype=np.int64)
    patterns, exact = sign_patterns(queries, permutations, seed, item)
    for flipped in patterns:
        sums = total[:, None] - 2 * dots(differences, flipped)
        extreme += np.count_nonzero(np.abs(sums) >= threshold[:, None], axis=1)
    p_values: Floats = extreme / 2**queries if exact else (extreme + 1) / (permutations + 1)
    return p_values


def holm(p_values: npt.ArrayLike) -> Floats:
    """Return p-values adjusted for multiple comparisons by Holm's step-down procedure (1979), float64 ``[n]``."""
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


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


def mean_of_means(
    groups: Groups, seed: int, *, units: Units | None = None, resamples: int | None = None, level: float = LEVEL
) -> Means:
    """Return the mean over groups of the mean over queries.

    With ``units`` whole units are resampled, from all groups at once; a resampled mean is one over the queries drawn,
    and over the groups that have any. Without ``resamples`` they are 1,000, or 10,000 where the interval is BCa or its
    level is above 95%.
    """
    values = list(groups.values())
    if resamples is None:
        counts = [group.shape[1] for group in values] if units is None else [len(set().union(*units.values()))]
        resamples = _resamples(sum(counts), len(counts), level)
    means = np.mean([group.mean(axis=1) for group in values], axis=0)
    if units is None:
        drawn = [bootstrap_means(group, seed=seed, item=name, resamples=resamples) for name, group in groups.items()]
        draws = np.mean(drawn, axis=0)
        return Means(means, *confidence_interval(draws, *values, level=level), draws)
    sums, sizes = by_unit(groups, units)
    item = next(iter(groups)) if len(groups) == 1 else "fields"
    times = np.concatenate(list(resampled(sizes.shape[1], seed=seed, item=item, resamples=resamples)))
    counts = [dots(size[None], times) for size in sizes]
    drawn = [dots(of_group, times) / np.maximum(count, 1) for of_group, count in zip(sums, counts, strict=True)]
    draws = np.sum(drawn, axis=0) / np.sum(np.array(counts) > 0, axis=0)
    influence = np.mean(_influence(groups, units), axis=0) + means[:, None]
    return Means(means, *confidence_interval(draws, influence, level=level), draws)


def by_unit(groups: Groups, units: Units) -> tuple[Floats, Floats]:
    """Return the sums of each group's values by unit ``[groups, rows, units]``, and its queries ``[groups, units]``."""
    names = {name: place for place, name in enumerate(dict.fromkeys(unit for of in units.values() for unit in of))}
    places = {group: np.array([names[unit] for unit in units[group]]) for group in groups}
    sums = [[np.bincount(places[group], row, len(names)) for row in values] for group, values in groups.items()]
    sizes = [np.bincount(places[group], minlength=len(names)) for group in groups]
    return np.array(sums), np.array(sizes, np.float64)


def _influence(groups: Groups, units: Units) -> Floats:
    """Return what each unit adds to the mean of each group, float64 ``[groups, rows, units]``; their mean is 0."""
    sums, sizes = by_unit(groups, units)
    means = np.array([values.mean(axis=1, keepdims=True) for values in groups.values()])
    sizes = sizes[:, None, :]
    influence: Floats = (sums - means * sizes) * sizes.shape[2] / sizes.sum(axis=2, keepdims=True)
    return influence


def interval(values: Floats, seed: int, item: str = "") -> Interval:
    """Return the mean over queries with its interval; NaN where no query has a value.

    Several draws of a query's candidates are averaged query by query. Draws and queries are then both resampled (the
    pigeonhole bootstrap, Owen 2007), one draw less than there are, or few draws would make it too short.

    Args:
        values: float64 ``[queries]`` or ``[draws, queries]``; NaN where a query has no positive of a kind.
        seed: the user's seed.
        item: what the queries are of (a field).
    """
    values = np.atleast_2d(values)
    known = ~np.isnan(values)
    values, known = (array[:, known.any(axis=0)] for array in (np.where(known, values, 0.0), known))
    draws, queries = values.shape
    if not queries:
        return UNKNOWN
    of_query = (values.sum(axis=0) / known.sum(axis=0))[None]
    if draws == 1:
        return mean_of_means({item: of_query}, seed).at(0)
    random, means = generator(seed, "draws", item), []
    for times in resampled(queries, seed=seed, item=item, resamples=_resamples(queries, 1, LEVEL)):
        drawn = random.multinomial(draws - 1, np.full(draws, 1 / draws), len(times)).astype(np.float64)
        sums, counts = (dots(np.ascontiguousarray(array.T, np.float64), drawn).T for array in (values, known))
        weight = np.where(counts > 0, times, 0.0)
        total = (weight * sums / np.maximum(counts, 1)).sum(axis=1)
        size = weight.sum(axis=1)
        means.append(np.divide(total, size, out=np.full(len(size), of_query.mean()), where=size > 0))
    (low,), (high,) = confidence_interval(np.concatenate(means)[None], of_query)
    return float(of_query.mean()), float(low), float(high)


class Differences(NamedTuple):
    """How two systems differ in each row: float64 ``[rows]``, and numbers of queries ``[rows]``.

    Attributes:
        value: mean over groups of the mean difference.
        low: lower end of its bootstrap interval.
        high: upper end.
        p_value: of the paired permutation test, not corrected for several rows.
        effect: mean difference over the standard deviation of the differences (Cohen's d of pairs; of several groups
            the mean of theirs); NaN of one query, or where all differences are equal.
        wins: queries on which the first is better.
        ties: on which they are equal.
        losses: on which the second is better.
    """

    value: Floats
    low: Floats
    high: Floats
    p_value: Floats
    effect: Floats
    wins: npt.NDArray[np.int64]
    ties: npt.NDArray[np.int64]
    losses: npt.NDArray[np.int64]


def paired_differences(
    changes: Groups,
    seed: int,
    *,
    signs: npt.ArrayLike = 1,
    units: Units | None = None,
    item: str | None = None,
    resamples: int | None = None,
    permutations: int = PERMUTATIONS,
    level: float = LEVEL,
) -> Differences:
    """Return how two systems differ, from the differences of their values.

    Args:
        changes: value of the first system less that of the second.
        seed: the user's seed.
        signs: 1 where more is better, else -1; one for all rows, or int ``[rows]``.
        units: what is drawn and flipped as one; None: each query.
        item: what the queries of the test are of; None: the group.
        resamples: of the bootstrap; None as in :func:`mean_of_means`.
        permutations: sign flips of the test.
        level: of the interval.
    """
    means = mean_of_means(changes, seed, units=units, resamples=resamples, level=level)
    gains = np.concatenate(list(changes.values()), axis=1) * np.reshape(signs, (-1, 1))
    counts = ((gains > 0).sum(axis=1), (gains == 0).sum(axis=1), (gains < 0).sum(axis=1))
    p_values = permutation_of_means(changes, seed, units=units, item=item, permutations=permutations)
    return Differences(means.value, means.low, means.high, p_values, standardised_effect(changes, units), *counts)


def permutation_of_means(
    changes: Groups,
    seed: int,
    *,
    units: Units | None = None,
    item: str | None = None,
    permutations: int = PERMUTATIONS,
) -> Floats:
    """Return the p-value of each row's mean difference over groups by :func:`paired_permutation`, float64 ``[rows]``.

    Signs are flipped query by query, or unit by unit; a query weighs as much as its group has few.
    """
    name = next(iter(changes)) if len(changes) == 1 else "fields"
    weighted = {group: values / (values.shape[1] if len(changes) > 1 else 1) for group, values in changes.items()}
    flipped = np.concatenate(list(weighted.values()), axis=1) if units is None else by_unit(weighted, units)[0].sum(0)
    return paired_permutation(flipped, seed=seed, item=name if item is None else item, permutations=permutations)


def standardised_effect(changes: Groups, units: Units | None = None) -> Floats:
    """Return the mean difference over the standard deviation (``n - 1``) of the differences, float64 ``[rows]``.

    Of several groups it is the mean of theirs. With ``units`` the deviation is that between units, each a mean over its
    queries as they weigh in the group. NaN of one query or unit, or where all differences are equal.
    """
    effects = []
    for name, values in changes.items():
        means, spread = values.mean(axis=1), values
        if units is not None:
            (spread,) = _influence({name: values}, {name: units[name]})
        count = spread.shape[1]
        deviation = spread.std(axis=1, ddof=1) if count > 1 else np.zeros(len(values))
        effects.append(np.divide(means, deviation, out=np.full(len(values), np.nan), where=deviation > 0))
    return np.asarray(np.mean(effects, axis=0))


def equivalence(changes: Groups, margin: float, units: Units | None = None) -> Floats:
    """Return the p-value of equivalence: that the mean difference over groups lies within a margin, float64 ``[rows]``.

    Two one-sided t-tests (Schuirmann 1987); with several groups, which vary each in their own way, by Welch's degrees
    of freedom. With ``units`` the test is over units, drawn from all groups at once. A group of one query, or a single
    unit, proves nothing: 1.

    Args:
        changes: value of the first system less that of the second.
        margin: the largest difference that does not matter, set before the figures are seen; a fraction.
        units: what is drawn as one; None: each query.

    Raises:
        InputError: the margin is not positive.
    """
    from scipy.special import stdtr

    if not margin > 0:
        raise InputError(f"the margin of equivalence must be positive, got {margin:g}", "Give --margin=1.0, in points")
    means = np.mean([values.mean(axis=1) for values in changes.values()], axis=0)
    parts = list(changes.values()) if units is None else [np.mean(_influence(changes, units), axis=0)]
    if min(values.shape[1] for values in parts) < 2:
        return np.ones(len(means))
    freedom = np.array([[values.shape[1] - 1] for values in parts])
    variances = np.stack([values.var(axis=1, ddof=1) / values.shape[1] for values in parts])
    error = np.sqrt(variances.sum(axis=0)) / len(variances)
    room = margin - np.abs(means)
    constant = error == 0
    squares = np.where(constant, 1.0, (variances**2 / freedom).sum(axis=0))
    degrees = np.where(constant, 1.0, variances.sum(axis=0) ** 2 / squares)
    p_values: Floats = stdtr(degrees, -room / np.where(constant, 1.0, error))
    return np.where(constant, (room <= 0).astype(np.float64), p_values)


def percentiles(draws: Floats) -> tuple[float, float]:
    """Return the 95% percentile interval of a statistic of each resample, which need not be a mean (F1, tau)."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
