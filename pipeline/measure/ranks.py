"""Ranks of systems: their intervals, which systems cannot be told apart, and standings over benchmarks (protocols 9).

Ranks are float64 ``[3, systems]``: as observed, and the ends of their intervals. A column of NaN is a system that was
not measured.
"""

from __future__ import annotations

import string
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.measure.resampling import Floats, dots, sign_patterns
from pipeline.measure.statistics import PERMUTATIONS, holm

_TAIL = 200
"""Permutations a pair: so many that the least p-value stays below 5% after Holm's correction over all pairs."""


def ranks(values: Floats) -> Floats:
    """Return the rank of each value: 1 and the number of higher ones; equal ones share the mean rank."""
    from scipy.stats import rankdata

    ranked: Floats = rankdata(-values)
    return ranked


def rank_ends(values: Floats, apart: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the ends of the interval of each rank: 1 and how many are surely above, and all but how many surely below.

    Where tests of all pairs find a difference that is not there, or one of the other sign, with a probability of at
    most alpha, all intervals hold together with 1 - alpha (Mogstad et al. 2024): there are neither fewer systems above
    nor below. Equal systems have all the ranks that they share, and their intervals hold all of them.

    Args:
        values: more is better, float64 ``[systems]``.
        apart: which pairs differ, bool ``[systems, systems]``.
    """
    above = values > values[:, None]
    return 1.0 + (apart & above).sum(axis=1), len(values) - (apart & ~above).sum(axis=1, dtype=np.float64)


def all_pairs(values: Floats, *, seed: int, item: object = "") -> Floats:
    """Return the p-value of each pair by paired permutation, Holm's correction over pairs, ``[systems, systems]``.

    All pairs share the flips of :func:`pipeline.measure.statistics.paired_permutation`: the sum of a pair's flipped
    differences is the difference of two sums, so the cost is one product a system. The diagonal is 1.

    Args:
        values: of each query, or of each unit that is flipped as one, float64 ``[systems, queries]``.
        seed: the user's seed.
        item: what the queries are of.
    """
    systems, queries = values.shape
    first, second = np.triu_indices(systems, 1)
    totals, sizes = values.sum(axis=1), np.abs(values).sum(axis=1)
    observed = np.abs(totals[first] - totals[second])
    # Patterns that give the observed sum by another order of additions must count as equal to it.
    threshold = observed - 1e-12 * (sizes[first] + sizes[second])
    extreme = np.zeros(len(first), np.int64)
    permutations = max(PERMUTATIONS, _TAIL * len(first))
    patterns, exact = sign_patterns(queries, permutations, seed, item)
    for flipped in patterns:
        sums = totals[:, None] - 2 * dots(values, flipped)
        for row in range(systems - 1):
            of_row = first == row
            extreme[of_row] += (np.abs(sums[row] - sums[row + 1 :]) >= threshold[of_row, None]).sum(axis=1)
    adjusted = np.ones((systems, systems))
    adjusted[first, second] = holm(extreme / 2**queries if exact else (extreme + 1) / (permutations + 1))
    return np.minimum(adjusted, adjusted.T)


def letters(apart: npt.NDArray[np.bool_]) -> list[str]:
    """Return the letters of each system: two share one if, and only if, they are not apart (Piepho 2004).

    A letter is a largest set of systems of which no two are apart, found by insertion and absorption.

    Args:
        apart: which pairs differ, bool ``[systems, systems]``, symmetric; systems are in the order of their ranks, and
            so are the letters.
    """
    systems = len(apart)
    groups = [(1 << systems) - 1] if systems else []
    for pair in zip(*np.nonzero(np.triu(apart, 1)), strict=True):
        one, other = (1 << int(system) for system in pair)
        kept = [group for group in groups if not (group & one and group & other)]
        parts = {group & ~system for group in groups if group & one and group & other for system in (one, other)}
        whole = [*kept, *parts]
        groups = kept + [part for part in parts if not any(part & group == part != group for group in whole)]
    members = sorted([system for system in range(systems) if group >> system & 1] for group in groups)
    named = [string.ascii_letters[n] if n < len(string.ascii_letters) else f"[{n + 1}]" for n in range(len(members))]
    return [
        "".join(letter for letter, group in zip(named, members, strict=True) if system in group)
        for system in range(systems)
    ]


class Standings(NamedTuple):
    """How systems stand over benchmarks.

    Attributes:
        benchmarks: on how many each system was measured, int64 ``[systems]``.
        mean_rank: over those benchmarks, and the means of the ends, float64 ``[3, systems]``.
        borda: the share of the other systems that it is above, mean over those benchmarks, likewise.
        rank: by mean rank, among the systems that were measured on every benchmark, likewise; NaN: not on all.
        without: the rank with each benchmark left out, float64 ``[benchmarks, systems]``.
    """

    benchmarks: npt.NDArray[np.int64]
    mean_rank: Floats
    borda: Floats
    rank: Floats
    without: Floats


def standings(ranked: Floats) -> Standings:
    """Return how systems stand, from ranks float64 ``[benchmarks, 3, systems]`` of two systems or more each."""
    measured = ~np.isnan(ranked[:, 0])
    count, complete = measured.sum(axis=0), np.flatnonzero(measured.all(axis=0))
    known = measured.sum(axis=1)[:, None, None]
    mean, borda = (np.nansum(of, axis=0) / np.maximum(count, 1) for of in (ranked, (known - ranked) / (known - 1)))

    def among_complete(of: Floats) -> Floats:
        placed = np.full((*of.shape[:-1], len(count)), np.nan)
        placed[..., complete] = of
        return placed

    observed, low, high = mean[:, complete]
    surely = high[:, None] < low
    ends = 1 + surely.sum(axis=0), len(complete) - surely.sum(axis=1)
    each = ranked[:, 0, complete]
    without = np.stack([among_complete(ranks(of - each.sum(axis=0))) for of in each])
    placed = among_complete(np.stack([ranks(-observed), *ends]))
    return Standings(count, mean, borda[[0, 2, 1]], placed, without)
