"""Ranks of systems: intervals, groups of systems that do not differ, and standings over benchmarks (protocols 9).

Ranks are float64 ``[3, systems]``: observed ranks, and the ends of their intervals.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.measure.permutation import EXACT_UNITS, PERMUTATIONS, pair_p_values, tail_bound
from pipeline.measure.resampling import Floats
from pipeline.measure.statistics import holm

_TAIL = 200
"""Minimum permutations for each pair, so that p-values can be below 5% after Holm's correction over all pairs."""

_MOST = 200_000
"""Maximum permutations: families that need more (over 1,000 pairs) have a bound on their smallest p-values."""


def ranks(values: Floats) -> Floats:
    """Return ranks along the first axis, highest value first from 1; equal values have the mean of their ranks."""
    from scipy.stats import rankdata

    ranked: Floats = rankdata(-values, axis=0)
    return ranked


def ranks_with_ends(values: Floats, apart: npt.NDArray[np.bool_]) -> Floats:
    """Return ranks and the ends of their intervals, float64 ``[3, systems]``.

    The ends are 1 plus the systems surely above, and all systems minus those surely below.

    If tests of all pairs find a false difference, or one of the wrong sign, with probability at most alpha, then all
    intervals hold together with probability 1 - alpha (Mogstad et al. 2024). The intervals of equal systems contain
    all the ranks that they share.

    Args:
        values: higher is better, float64 ``[systems]``.
        apart: whether pairs differ, bool ``[systems, systems]``.
    """
    above = values > values[:, None]
    return np.stack([ranks(values), 1.0 + (apart & above).sum(axis=1), len(values) - (apart & ~above).sum(axis=1)])


def all_pairs(values: Floats, *, seed: int, item: object = "") -> Floats:
    """Return p-values of pairs by paired permutation with Holm's correction, float64 ``[systems, systems]``.

    All pairs share the flips of :func:`pipeline.measure.permutation.pair_p_values`; up to 18 queries, all patterns are
    tried. The diagonal is 1. If there are too many pairs for the drawn patterns that Holm's correction needs, pairs
    that none of them reaches have the bound of :func:`pipeline.measure.permutation.tail_bound` where that is less; it
    is never below the p-value of all patterns.

    Args:
        values: values of queries, or of units that are flipped together, float64 ``[systems, queries]``.
        seed: the user's seed.
        item: name of the set of queries.
    """
    return pairs_and_bounds(values, seed=seed, item=item)[0]


def pairs_and_bounds(values: Floats, *, seed: int, item: object) -> tuple[Floats, npt.NDArray[np.bool_] | None]:
    """Return the p-values of :func:`all_pairs`, and which of them are bounds, likewise; None if no pattern is drawn."""
    systems, units = values.shape
    first, second = np.triu_indices(systems, 1)
    needed = _TAIL * len(first)
    permutations = max(PERMUTATIONS, needed) if needed <= _MOST else PERMUTATIONS
    permutations = 2**units if units <= EXACT_UNITS else permutations
    p_values, rare = pair_p_values(values, first, second, seed, item, permutations, EXACT_UNITS)
    bounded = None if rare is None else np.zeros((systems, systems), bool)
    if bounded is not None and rare is not None and needed > _MOST:
        bounds = tail_bound(values, first[rare], second[rare])
        bounded[first[rare], second[rare]] = bounds < p_values[rare]
        p_values[rare] = np.minimum(p_values[rare], bounds)
    adjusted = np.ones((systems, systems))
    adjusted[first, second] = holm(p_values)
    return np.minimum(adjusted, adjusted.T), bounded


MOST_LETTERS = 1_000
"""Letters of a board, above which none are given."""


def letters(apart: npt.NDArray[np.bool_]) -> list[str]:
    """Return the letters of systems: two systems share a letter if, and only if, they do not differ (Piepho 2004).

    A letter is a maximal set of systems without a differing pair (a maximal clique; Bron and Kerbosch 1973). All are
    empty if there are more than :data:`MOST_LETTERS`.

    Args:
        apart: whether pairs differ, bool ``[systems, systems]``, symmetric; systems and letters are in rank order.
    """
    members = sorted(itertools.islice(_level_sets(apart), MOST_LETTERS + 1)) if len(apart) else []
    members = members if len(members) <= MOST_LETTERS else []
    names = [string.ascii_letters[n] if n < len(string.ascii_letters) else f"[{n + 1}]" for n in range(len(members))]
    texts = [""] * len(apart)
    for name, group in zip(names, members, strict=True):
        for system in group:
            texts[system] += name
    return texts


def _level_sets(apart: npt.NDArray[np.bool_]) -> Iterator[list[int]]:
    """Yield the maximal sets of systems without a differing pair, each rising."""
    level = [{*np.flatnonzero(~row).tolist()} - {system} for system, row in enumerate(apart)]
    left = [(list[int](), set(range(len(apart))), set[int]())]
    while left:  # others stand level with the group, in sets that were found before
        group, candidates, others = left.pop()
        if not candidates and not others:
            yield sorted(group)
            continue
        counts = {system: len(candidates & level[system]) for system in candidates | others}
        if certain := {system for system in candidates if counts[system] == len(candidates) - 1}:  # in every set
            left.append(([*group, *certain], candidates - certain, others.intersection(*(level[of] for of in certain))))
            continue
        pivot = max(counts, key=counts.__getitem__)
        for system in candidates - level[pivot]:
            left.append(([*group, system], candidates & level[system], others & level[system]))
            candidates, others = candidates - {system}, others | {system}


class Standings(NamedTuple):
    """Standings of systems over benchmarks, ``[3, systems]``: mean rank, mean share of others below, rank."""

    mean_rank: Floats
    borda: Floats
    rank: Floats


def standings(ranked: Floats) -> Standings:
    """Return the standings from ranks, float64 ``[benchmarks, 3, systems]``, of two or more systems on all of them."""
    systems = ranked.shape[2]
    mean = ranked.mean(axis=0)
    observed, low, high = mean
    ends = 1 + (high[:, None] < low).sum(axis=0), systems - (high < low[:, None]).sum(axis=0)
    rank = np.stack([ranks(-observed), *ends])
    return Standings(mean, ((systems - mean) / (systems - 1))[[0, 2, 1]], rank)


Block = tuple[list[int], list[int]]
"""Positions of benchmarks, and of the systems that were measured on all of them."""


def coverage_blocks(measured: npt.NDArray[np.bool_]) -> Iterator[Block]:
    """Yield blocks of benchmarks and systems in which every system has every benchmark, the largest first.

    Further blocks, which may share systems with earlier ones, follow until each system that has a rival is in one.

    Args:
        measured: whether a system was measured on a benchmark, bool ``[benchmarks, systems]``.
    """
    own = [frozenset(np.flatnonzero(column).tolist()) for column in measured.T]
    sets = {one & other for index, one in enumerate(own) for other in own[index + 1 :]} - {frozenset()}
    blocks = [(sorted(of), [system for system, has in enumerate(own) if of <= has]) for of in sets]
    blocks.sort(key=lambda block: (-len(block[0]) * len(block[1]), -len(block[0]), block))
    placed = set[int]()
    for block in blocks:
        if not placed.issuperset(block[1]):
            placed |= {*block[1]}
            yield block
