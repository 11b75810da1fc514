"""Uncertainty of means over queries: bootstrap intervals, paired permutation tests, Holm's correction.

All functions are seeded, vectorised over rows of values with the same queries, and independent of the threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.permutation import PERMUTATIONS, paired_permutation
from pipeline.measure.resampling import Floats as Floats
from pipeline.measure.resampling import dots, resampled

Groups = Mapping[str, Floats]
"""Values of queries by group (field, fold), float64 ``[rows, queries]``; all groups have the same rows.

Groups are resampled independently; their names seed the draws. Queries of one pool are one group."""

Units = Mapping[str, Sequence[str]]
"""Units of the queries of each group, such as their papers: queries of one unit are drawn and flipped together."""

Interval = tuple[float, float, float]
"""Value, lower and upper end."""

UNKNOWN: Interval = (np.nan, np.nan, np.nan)
RESAMPLES = 1_000
TAIL_RESAMPLES = 10_000
"""Resamples for intervals with extreme quantiles: BCa, and levels above 95%."""
LEVEL = 0.95
PERCENTILE_QUERIES = 100
"""Minimum queries for percentile intervals, which are too short for fewer."""


def bootstrap_means(values: Floats, *, seed: int, item: object = "", resamples: int = RESAMPLES) -> Floats:
    """Return the mean of each row over queries drawn with replacement (Efron 1979), for all resamples.

    All rows share the draws, so differences between systems stay paired.

    Args:
        values: a row for each system or measure, float64 ``[rows, queries]``.
        seed: the user's seed.
        item: name of the set of queries (a field); different items draw independently.
        resamples: number of draws.

    Returns:
        float64 ``[rows, resamples]``.

    Raises:
        InputError: there are no queries, or ``resamples`` is below 1.
    """
    queries = values.shape[1]
    sums = [dots(values, weights) for weights in resampled(queries, seed=seed, item=item, resamples=resamples)]
    means: Floats = np.concatenate(sums, axis=1) / queries
    return means


def interval_kind(queries: int, groups: int = 1) -> str:
    """Return the kind of interval of a mean over ``queries``: ``percentile``, ``BCa``, or ``none`` for one or two."""
    return "percentile" if queries >= PERCENTILE_QUERIES else "BCa" if queries > groups + 1 else "none"


def intervals_text(kinds: Iterable[str], level: float = LEVEL) -> str:
    """Return the kinds of some intervals (:func:`interval_kind`) in words: ``95% BCa interval``."""
    kinds = sorted({*kinds} - {"none"})
    return f"{level:.0%} {' or '.join(kinds)} interval" if kinds else "no interval (fewer than three queries)"


def simultaneous(intervals: int) -> float:
    """Return the level of each of several intervals so that all hold jointly with :data:`LEVEL` (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(intervals, 1)


def _resamples(queries: int, groups: int, level: float) -> int:
    return TAIL_RESAMPLES if level > LEVEL or interval_kind(queries, groups) == "BCa" else RESAMPLES


def confidence_interval(means: Floats, *values: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return bootstrap confidence intervals of means: low and high ends, each float64 ``[rows]``.

    From 100 queries on they are percentile intervals. These are too short for fewer queries, which get the
    bias-corrected and accelerated interval (BCa, Efron 1987) at the level expanded for the degrees of freedom
    (Hesterberg 2015, section 5.2). Equal values, or one or two queries, have an interval of width 0.

    Args:
        means: bootstrapped means, float64 ``[rows, resamples]``.
        values: values of the queries, float64 ``[rows, queries]``; one array for each group (field) of a mean of means.
        level: confidence level.

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
        return np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
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


def holm(p_values: npt.ArrayLike) -> Floats:
    """Return p-values adjusted for multiple comparisons by Holm's step-down procedure (1979), float64 ``[n]``."""
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


class Means(NamedTuple):
    """Means over groups of the rows, their bootstrap intervals, and their resamples ``[rows, resamples]``.

    All rows share the draws.
    """

    value: Floats
    low: Floats
    high: Floats
    draws: Floats | list[Floats]

    def at(self, row: int) -> Interval:
        """Return the mean of one row with its interval."""
        return float(self.value[row]), float(self.low[row]), float(self.high[row])


def mean_of_means(
    groups: Groups, seed: int, *, units: Units | None = None, resamples: int | None = None, level: float = LEVEL
) -> Means:
    """Return the mean over groups of the mean over queries.

    With ``units``, whole units are resampled from all groups at once; a resampled mean is over the drawn queries, and
    over the groups that have any. By default there are 1,000 resamples, or 10,000 for BCa and for levels above 95%.
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
    weights = np.concatenate(list(resampled(sizes.shape[1], seed=seed, item=item, resamples=resamples)))
    counts = [dots(size[None], weights) for size in sizes]
    drawn = [dots(group, weights) / np.maximum(count, 1) for group, count in zip(sums, counts, strict=True)]
    draws = np.sum(drawn, axis=0) / np.sum(np.array(counts) > 0, axis=0)
    influence = np.mean(_influence(groups, units), axis=0) + means[:, None]
    return Means(means, *confidence_interval(draws, influence, level=level), draws)


def by_unit(groups: Groups, units: Units) -> tuple[Floats, Floats]:
    """Return the sums of values by unit ``[groups, rows, units]``, and the numbers of queries ``[groups, units]``."""
    index_of = {unit: index for index, unit in enumerate(dict.fromkeys(chain(*units.values())))}
    indices = {group: np.array([index_of[unit] for unit in units[group]]) for group in groups}
    sums = [[np.bincount(indices[group], row, len(index_of)) for row in values] for group, values in groups.items()]
    sizes = [np.bincount(indices[group], minlength=len(index_of)) for group in groups]
    return np.array(sums), np.array(sizes, np.float64)


def _influence(groups: Groups, units: Units) -> Floats:
    """Return the influence of units on the means of groups, float64 ``[groups, rows, units]``, with mean 0."""
    sums, sizes = by_unit(groups, units)
    means = np.array([values.mean(axis=1, keepdims=True) for values in groups.values()])
    sizes = sizes[:, None, :]
    influence: Floats = (sums - means * sizes) * sizes.shape[2] / sizes.sum(axis=2, keepdims=True)
    return influence


def interval(values: Floats, seed: int, item: str = "") -> Interval:
    """Return the mean over queries with its interval; NaN if no query has a value. One query has no ends.

    Several draws of a query's candidates are averaged query by query. Then both draws and queries are resampled (the
    pigeonhole bootstrap, Owen 2007), with one draw fewer than there are, since few draws would make it too short.

    Args:
        values: float64 ``[queries]`` or ``[draws, queries]``; NaN for queries without a positive of a kind.
        seed: the user's seed.
        item: name of the set of queries (a field).
    """
    values = np.atleast_2d(values)
    present = ~np.isnan(values)
    values, present = (array[:, present.any(axis=0)] for array in (np.where(present, values, 0.0), present))
    draws, queries = values.shape
    if not queries:
        return UNKNOWN
    of_query = (values.sum(axis=0) / present.sum(axis=0))[None]
    if queries == 1:
        return float(of_query.mean()), np.nan, np.nan
    if draws == 1:
        return mean_of_means({item: of_query}, seed).at(0)
    random, means = generator(seed, "draws", item), []
    for weights in resampled(queries, seed=seed, item=item, resamples=_resamples(queries, 1, LEVEL)):
        draw_weights = random.multinomial(draws - 1, np.full(draws, 1 / draws), len(weights)).astype(np.float64)
        sums, counts = (dots(np.ascontiguousarray(array.T, np.float64), draw_weights).T for array in (values, present))
        weight = np.where(counts > 0, weights, 0.0)
        total = (weight * sums / np.maximum(counts, 1)).sum(axis=1)
        size = weight.sum(axis=1)
        means.append(np.divide(total, size, out=np.full(len(size), of_query.mean()), where=size > 0))
    (low,), (high,) = confidence_interval(np.concatenate(means)[None], of_query)
    return float(of_query.mean()), float(low), float(high)


def permutation_of_means(
    changes: Groups,
    seed: int,
    *,
    units: Units | None = None,
    permutations: int = PERMUTATIONS,
    tests: int = 1,
) -> Floats:
    """Return p-values of the rows' mean differences over groups by :func:`paired_permutation`, float64 ``[rows]``.

    Signs are flipped query by query, or unit by unit; the weight of a query is inverse to the size of its group.
    ``tests`` counts the family over which the p-values are corrected.
    """
    item = next(iter(changes)) if len(changes) == 1 else "fields"
    weighted = {group: values / (values.shape[1] if len(changes) > 1 else 1) for group, values in changes.items()}
    flipped = np.concatenate(list(weighted.values()), axis=1) if units is None else by_unit(weighted, units)[0].sum(0)
    return paired_permutation(flipped, seed=seed, item=item, permutations=permutations, tests=tests)


def standardised_effect(changes: Groups, units: Units | None = None) -> Floats:
    """Return the mean difference over the standard deviation (``n - 1``) of the differences (Cohen's d_z).

    It is float64 ``[rows]`` and has no unit.

    For several groups it is the mean over groups. With ``units``, the deviation is between units, each the mean of its
    queries by their weights in the group. NaN for one query or unit, or if all differences are equal.
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


def standard_error(changes: Groups, units: Units | None = None) -> Floats:
    """Return the standard error (``n - 1``) of the rows' mean over groups, float64 ``[rows]``; NaN for one query.

    With ``units`` it is that of the mean over units, drawn from all groups at once.
    """
    samples = list(changes.values()) if units is None else [np.mean(_influence(changes, units), axis=0)]
    if min(values.shape[1] for values in samples) < 2:
        return np.full(len(samples[0]), np.nan)
    variances = [values.var(axis=1, ddof=1) / values.shape[1] for values in samples]
    return np.asarray(np.sqrt(np.sum(variances, axis=0)) / len(variances))
