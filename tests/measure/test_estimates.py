"""Closed forms against SciPy, by hand, and by simulation: coverage, size and power."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.measure.estimates import (
    queries_needed,
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
