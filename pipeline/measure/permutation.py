"""The paired permutation test: signs of differences are flipped query by query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from pipeline.core.rng import generator
from pipeline.measure.resampling import Floats, blocks, require_queries

PERMUTATIONS = 10_000
_FAMILY = 50
"""Tests of a family that the permutations of one test serve: larger families get more, as p-values are multiplied."""
_SMALL = 0.005
"""P-values below which the permutations of a large family are drawn."""

_MANY = 10
"""Multiple of the permutations, those of 500 tests, from which on p-values at the level err by a third."""

_NEWTON_STEPS = 12

EXACT_QUERIES = 13
"""Maximum queries for which all 2**queries sign patterns of a test are enumerated instead of drawn."""

EXACT_UNITS = 18
"""The same for the pairs of a board, which share the patterns."""


def paired_permutation(
    differences: Floats, *, seed: int, item: object = "", permutations: int = PERMUTATIONS, tests: int = 1
) -> Floats:
    """Test whether two systems differ by flipping the signs of their differences, query by query (Fisher 1935).

    The test is two-sided, on the mean difference. Up to 13 queries, all patterns of signs are tried and the p-value is
    exact. Beyond, patterns are drawn and the observed one counts as one of them, so p-values are above 0. In a large
    family, p-values below 0.5% are computed again from more patterns (:func:`permutations_of`); both steps keep the
    level (Besag & Clifford 1991).

    Args:
        differences: value of one system minus that of the other, float64 ``[comparisons, queries]``.
        seed: the user's seed.
        item: name of the set of queries (a field).
        permutations: number of drawn patterns.
        tests: number of tests over which p-values are corrected.

    Returns:
        p-values, float64 ``[comparisons]``; 1 if no query differs.

    Raises:
        InputError: there are no queries, or ``permutations`` is below 1.
    """
    p_values = _p_values(differences, seed, item, permutations)
    small, more = p_values < _SMALL, permutations_of(tests, permutations)
    if more > permutations and small.any():
        p_values[small] = _p_values(differences[small], seed, item, more)
    return p_values


def _p_values(differences: Floats, seed: int, item: object, permutations: int) -> Floats:
    """Return the p-values of rows: those of each row and a row of zeros."""
    count = len(differences)
    values = np.concatenate([differences, np.zeros((1, differences.shape[1]))])
    return pair_p_values(values, np.arange(count), np.full(count, count), seed, item, permutations)[0]


def pair_p_values(
    values: Floats,
    first: npt.NDArray[np.intp],
    second: npt.NDArray[np.intp],
    seed: int,
    item: object,
    permutations: int,
    most: int = EXACT_QUERIES,
) -> tuple[Floats, npt.NDArray[np.intp] | None]:
    """Return p-values of pairs of rows, float64 ``[pairs]``, and the pairs that no drawn pattern reaches.

    All pairs share the flips: the sum of a pair's flipped differences is the difference of two sums of the rows.

    Args:
        values: float64 ``[rows, queries]``.
        first: a row of each pair, in rising order, ``[pairs]``.
        second: the other.
        seed: the user's seed.
        item: name of the set of queries (a field).
        permutations: number of drawn patterns; the second result is None if all are tried.
        most: maximum queries for which all are tried.
    """
    totals, sizes = values.sum(axis=1), np.abs(values).sum(axis=1)
    # Patterns that give the observed sum by another order of additions must count as equal to it.
    threshold = np.abs(totals[first] - totals[second]) - 1e-12 * (sizes[first] + sizes[second])
    extreme = np.zeros(len(first), np.int64)
    ends = np.searchsorted(first, np.arange(len(values) + 1))
    exact = is_exact(values.shape[1], permutations, most)
    for flipped in _sign_patterns(values.shape[1], permutations, seed, item, exact=exact):
        sums = totals[:, None] - 2 * (values @ flipped.T)
        for row, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            reached = np.abs(sums[row] - sums[second[start:end]]) >= threshold[start:end, None]
            extreme[start:end] += np.count_nonzero(reached, axis=1)
    if exact:
        return extreme / 2 ** (values.shape[1] - 1), None
    return (extreme + 1) / (permutations + 1), np.flatnonzero(extreme == 0)


def permutations_of(tests: int, permutations: int = PERMUTATIONS) -> int:
    """Return the sign patterns for a family of tests, so that Holm's correction leaves the smallest p-value below 1%.

    Up to 50 tests, these are ``permutations``; larger families get the multiple that keeps their number per 50 tests.
    """
    return permutations * -(-max(tests, 1) // _FAMILY)


def least_p_value(queries: int, permutations: int) -> float:
    """Return the smallest p-value that :func:`paired_permutation` can give for ``queries``: also of drawn patterns.

    Of few queries, drawn patterns repeat the observed one or its opposite, which 2 of ``2**queries`` are.
    """
    exact = float(min(math.ldexp(2.0, -queries), 1.0))
    return exact if is_exact(queries, permutations) else max(exact, 1 / (permutations + 1))


def is_exact(queries: int, permutations: int, most: int = EXACT_QUERIES) -> bool:
    """Return whether all sign patterns of ``queries`` are tried, as they are up to ``most``, instead of drawn."""
    return queries <= most and 2**queries <= permutations


def patterns_text(numbers: Iterable[int], permutations: int, seed: int) -> str:
    """Return which sign patterns tests over such ``numbers`` of queries try, in words."""
    exact = {number: is_exact(number, permutations) for number in sorted(set(numbers))}
    drawn = [] if all(exact.values()) else [f"{permutations:,} sign flips, seed {seed}"]
    if drawn and permutations > _MANY * PERMUTATIONS:
        drawn.append("in so large a family, verdicts near the level depend on the seed")
    tried = " and ".join(f"2^{number}" for number, tries_all in exact.items() if tries_all)
    return "; ".join(drawn + [f"all {tried} sign patterns"] * bool(tried))


def _sign_patterns(queries: int, permutations: int, seed: int, item: object, *, exact: bool) -> Iterator[Floats]:
    """Yield blocks of sign patterns, float64 ``[patterns, queries]``, 1 for flipped signs.

    ``exact``: all that leave the last sign, since the opposite of a pattern gives a sum of the same size.
    """
    require_queries(queries, permutations)
    if exact:
        for block in blocks(2 ** (queries - 1), queries):
            yield (np.arange(block.start, block.stop)[:, None] >> np.arange(queries) & 1).astype(np.float64)
        return
    random, width = generator(seed, "permutation", item), -(-queries // 8)
    for block in blocks(permutations, queries):
        count = block.stop - block.start
        bits = np.unpackbits(np.frombuffer(random.bytes(count * width), np.uint8).reshape(count, width), axis=1)
        yield bits[:, :queries].astype(np.float64)


def tail_bound(values: Floats, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]) -> Floats:
    """Return upper bounds of the two-sided p-values of all sign patterns (Chernoff), float64 ``[pairs]``.

    The bound is ``2 exp(sum(log cosh(t d)) - t |sum(d)|)``, least over ``t``, for the differences ``d`` of a pair, and
    at most 1. It is the p-value itself if all differences have one sign.

    Args:
        values: values of queries, float64 ``[systems, queries]``.
        first: a system of each pair, ``[pairs]``.
        second: the other.
    """
    bounds = np.empty(len(first))
    for block in blocks(len(first), values.shape[1]):
        sizes = np.abs(values[first[block]] - values[second[block]])
        total, whole = np.abs((values[first[block]] - values[second[block]]).sum(axis=1)), sizes.sum(axis=1)
        squares = np.maximum((sizes**2).sum(axis=1), np.finfo(np.float64).tiny)
        t = total / squares
        for _ in range(_NEWTON_STEPS):  # the slope is concave in t, so that each step stays below the root
            slopes = np.tanh(t[:, None] * sizes)
            curvature = np.maximum((sizes**2 * (1 - slopes**2)).sum(axis=1), 1e-9 * squares)
            t = t + np.maximum(total - (sizes * slopes).sum(axis=1), 0) / curvature
        scaled = t[:, None] * sizes
        exponent = (scaled + np.log1p(np.exp(-2 * scaled)) - np.log(2)).sum(axis=1) - t * total
        one_sign = total >= whole * (1 - 1e-12)
        exponent[one_sign] = -np.log(2) * np.count_nonzero(sizes[one_sign], axis=1)
        bounds[block] = np.minimum(2 * np.exp(exponent), 1.0)
    return bounds
