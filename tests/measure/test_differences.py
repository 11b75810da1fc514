"""Differences of two systems: against SciPy, by hand, and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from pipeline.core.errors import InputError
from pipeline.measure.statistics import (
    equivalence,
    mean_of_means,
    paired_differences,
    permutation_of_means,
    standardised_effect,
)

RNG = np.random.default_rng(5)
FIELDS = {"Art": RNG.normal(0.1, 0.2, (2, 4)), "Physics": RNG.normal(0.0, 0.1, (2, 6))}


def average_precision_gaps(replicates: int, queries: int, shift: float, seed: int) -> np.ndarray:
    """Differences of two systems of like quality: skewed, and zero for a third of the queries."""
    random = np.random.default_rng(seed)
    gaps = random.beta(0.5, 3.0, (replicates, queries)) - random.beta(0.5, 3.0, (replicates, queries))
    return np.where(random.random((replicates, queries)) < 1 / 3, 0.0, gaps) + shift


def test_the_mean_over_fields_is_tested_by_all_sign_patterns() -> None:
    weighted = np.concatenate([values / values.shape[1] for values in FIELDS.values()], axis=1)
    patterns = np.array(list(itertools.product((1, -1), repeat=10)))
    for row, p_value in zip(weighted, permutation_of_means(FIELDS, seed=1), strict=True):
        assert p_value == np.mean(np.abs(patterns @ row) >= abs(row.sum()) - 1e-12)


def test_a_difference_has_its_mean_interval_effect_and_counts() -> None:
    found = paired_differences(FIELDS, seed=1, signs=[1, -1])
    means = mean_of_means(FIELDS, seed=1)
    assert found.value == pytest.approx(np.mean([values.mean(axis=1) for values in FIELDS.values()], axis=0))
    assert (found.low.tolist(), found.high.tolist()) == (means.low.tolist(), means.high.tolist())
    every = np.concatenate(list(FIELDS.values()), axis=1) * [[1], [-1]]
    assert found.wins.tolist() == (every > 0).sum(axis=1).tolist()
    assert (found.wins + found.ties + found.losses).tolist() == [10, 10]
    expected = [np.mean([v[row].mean() / v[row].std(ddof=1) for v in FIELDS.values()]) for row in range(2)]
    assert found.effect == pytest.approx(expected)


def test_units_of_one_query_each_are_queries() -> None:
    values = {"Art": FIELDS["Art"]}
    each = {"Art": ["a", "b", "c", "d"]}
    plain, by_unit = (paired_differences(values, seed=1, units=units) for units in (None, each))
    for one, other in zip(plain, by_unit, strict=True):
        assert one == pytest.approx(other)


def test_queries_of_one_unit_are_flipped_and_drawn_as_one() -> None:
    """Twice the same query of one paper is no more evidence than once; in two fields it is one flip."""
    values = FIELDS["Physics"]
    twice, units = np.repeat(values, 2, axis=1), [name for name in "abcdef" for _ in range(2)]
    cases = ((values, "abcdef"), (twice, units))
    once, doubled = (paired_differences({"": rows}, seed=1, units={"": papers}) for rows, papers in cases)
    for name in ("value", "low", "high", "p_value"):
        assert getattr(once, name) == pytest.approx(getattr(doubled, name))
    both = permutation_of_means(
        {"Art": values, "Physics": values}, seed=1, units={"Art": "abcdef", "Physics": "abcdef"}
    )
    assert both.tolist() == once.p_value.tolist()
    assert permutation_of_means({"Art": values, "Physics": values}, seed=1)[0] < both[0]


def test_coverage_and_size_with_papers_that_are_drawn_several_times() -> None:
    """50 queries of 34 papers whose differences agree within a paper, as those of CSFCube do: queries would mislead."""
    papers = np.repeat(np.arange(34), [2] * 16 + [1] * 18)
    random = np.random.default_rng(8)
    shared = random.normal(0, 0.15, (5_000, 34))[:, papers] + random.normal(0, 0.08, (5_000, 50))
    units = {"all": [str(paper) for paper in papers]}
    found, naive = (paired_differences({"all": shared}, seed=1, units=u, permutations=2_000) for u in (units, None))
    coverage, without = (np.mean((one.low <= 0) & (one.high >= 0)) for one in (found, naive))
    assert without < 0.91 < 0.92 < coverage < 0.96
    assert 0.04 < np.mean(found.p_value < 0.05) < 0.06
    assert np.mean(naive.p_value < 0.05) > 0.08


def test_equal_differences_have_no_effect_size() -> None:
    assert np.isnan(standardised_effect({"": np.full((1, 3), 0.5)})).all()
    assert np.isnan(standardised_effect({"": np.ones((1, 1))})).all()


@pytest.mark.parametrize("margin", [0.01, 0.05, 0.3])
def test_equivalence_is_two_one_sided_t_tests(margin: float) -> None:
    values = FIELDS["Art"]
    for row, p_value in zip(values, equivalence({"Art": values}, margin), strict=True):
        above = scipy.stats.ttest_1samp(row, -margin, alternative="greater").pvalue
        below = scipy.stats.ttest_1samp(row, margin, alternative="less").pvalue
        assert p_value == pytest.approx(max(above, below))


def test_equivalence_of_two_fields_has_the_degrees_of_freedom_of_welch() -> None:
    """The mean of two fields is half the sum: SciPy's test of a difference, with one side's sign turned."""
    one, other = (values[0] for values in FIELDS.values())
    margin = 0.2
    above = scipy.stats.ttest_ind(one + 2 * margin, -other, equal_var=False, alternative="greater").pvalue
    below = scipy.stats.ttest_ind(one - 2 * margin, -other, equal_var=False, alternative="less").pvalue
    assert equivalence(FIELDS, margin)[0] == pytest.approx(max(above, below))


def test_equivalence_of_little() -> None:
    assert equivalence({"": np.ones((1, 1)) * 0.001}, 0.01).tolist() == [1.0]
    assert equivalence({"": np.array([[0.0, 0.0], [0.5, 0.5]])}, 0.01).tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="margin of equivalence must be positive, got 0"):
        equivalence(FIELDS, 0.0)


@pytest.mark.parametrize(("queries", "margin", "power"), [(50, 0.1, 0.9), (200, 0.05, 0.9), (3_800, 0.01, 0.85)])
def test_equivalence_is_claimed_wrongly_in_five_of_a_hundred(queries: int, margin: float, power: float) -> None:
    """At the margin itself it is claimed in at most 5%; where systems are equal, with the power that the sizes give."""
    at_margin = average_precision_gaps(2_000, queries, margin, seed=queries)
    assert 0.035 < np.mean(equivalence({"": at_margin}, margin) < 0.05) < 0.065
    equal = average_precision_gaps(2_000, queries, 0.0, seed=queries)
    assert np.mean(equivalence({"": equal}, margin) < 0.05) > power


def test_the_mean_over_fields_errs_in_five_of_a_hundred() -> None:
    sizes = {"Art": 15, "Biology": 30, "Physics": 60}
    fields = {name: average_precision_gaps(3_000, queries, 0.0, seed=queries) for name, queries in sizes.items()}
    assert 0.04 < np.mean(permutation_of_means(fields, seed=1, permutations=999) < 0.05) < 0.06
