"""Closed forms against SciPy, by hand, and by simulation: coverage, size and power."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from pipeline.measure.estimates import (
    queries_needed,
    share_of_clusters,
    smallest_shown,
)
from pipeline.measure.permutation import paired_permutation
from pipeline.measure.statistics import simultaneous

FIELDS = (100, 200, 45, 110)


def spread_fields(replicates: int, scales: tuple[float, ...], shifts: np.ndarray) -> list[np.ndarray]:
    """Gains of four fields, each with its own number of queries, deviation and mean."""
    return [
        scale * average_precision_gaps(replicates, queries, 0.0, seed=place) + shift
        for place, (queries, scale, shift) in enumerate(zip(FIELDS, scales, shifts, strict=True))
    ]


def covered(intervals: list[tuple[float, float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for _, low, high in intervals]))


def average_precision_gaps(replicates: int, queries: int, shift: float, seed: int) -> np.ndarray:
    """Differences of two systems of like quality: skewed, and zero for a third of the queries."""
    random = np.random.default_rng(seed)
    gaps = random.beta(0.5, 3.0, (replicates, queries)) - random.beta(0.5, 3.0, (replicates, queries))
    return np.where(random.random((replicates, queries)) < 1 / 3, 0.0, gaps) + shift


@pytest.mark.parametrize(
    ("clusters", "share", "alike", "least"),
    [(100, 0.01, 0.0, 0.94), (20, 0.1, 0.3, 0.91)],
)
def test_a_share_of_positives_is_covered_where_positives_of_a_query_are_alike(
    clusters: int, share: float, alike: float, least: float
) -> None:
    """Clopper and Pearson with positives as independent covers .65 to .75 where they are alike."""
    random = np.random.default_rng(1)
    found, naive = [], []
    for _ in range(400):
        sizes = 1 + random.poisson(8, clusters)
        odds = (share * (1 / alike - 1), (1 - share) * (1 / alike - 1)) if alike else None
        shares = random.beta(*odds, clusters) if odds else np.full(clusters, share)
        cluster = np.repeat(np.arange(clusters), sizes)
        flags = random.random(len(cluster)) < shares[cluster]
        found.append(share_of_clusters(flags, cluster))
        plain = scipy.stats.binomtest(int(flags.sum()), len(flags)).proportion_ci()
        naive.append((0.0, plain.low, plain.high))
    assert covered(found, share) > least
    assert alike == 0 or covered(naive, share) < 0.85


def test_a_share_of_single_items_is_clopper_and_pearsons_widened_for_t() -> None:
    flags = np.arange(40) < 7
    value, low, high = share_of_clusters(flags, np.arange(40))
    exact = scipy.stats.binomtest(7, 40).proportion_ci()
    assert value == 7 / 40
    assert 0.9 * exact.low < low < exact.low < exact.high < high < 1.1 * exact.high
    none = share_of_clusters(np.zeros(30, bool), np.repeat(np.arange(10), 3))
    assert none[:2] == (0.0, 0.0)
    assert none[2] == pytest.approx(scipy.stats.binomtest(0, 10).proportion_ci().high)
    assert np.isnan(share_of_clusters(np.empty(0, bool), np.empty(0, int))).all()


def test_twenty_intervals_that_hold_together_are_bonferronis() -> None:
    assert simultaneous(20) == pytest.approx(0.9975)


@pytest.mark.parametrize(("fields", "difference"), [(1, 0.05), (1, 0.1), (19, 0.05), (19, 0.1)])
def test_the_promised_power_is_that_of_the_test(fields: int, difference: float) -> None:
    """Sign flips of the needed number of queries, at the level of Holm's first step over the fields."""
    variance = float(average_precision_gaps(1, 1_000_000, 0.0, seed=3).var())
    queries = round(queries_needed(variance, difference, 0.05 / fields))
    values = average_precision_gaps(1_000, queries, difference, seed=fields)
    found = paired_permutation(values, seed=1, permutations=5_000)
    assert 0.76 < np.mean(found < 0.05 / fields) < 0.84
    assert smallest_shown((variance / queries) ** 0.5, 0.05 / fields) == pytest.approx(difference, rel=0.1)
