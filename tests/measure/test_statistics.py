"""Statistics against SciPy and closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats._resampling import BootstrapResult

from pipeline.core.errors import InputError
from pipeline.measure.permutation import least_p_value, paired_permutation
from pipeline.measure.statistics import (
    bootstrap_means,
    confidence_interval,
    holm,
    interval,
    interval_kind,
    mean_of_means,
)


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


def test_interval_is_scipys_but_for_the_draws() -> None:
    data = values(2, 1, 300) ** 3
    low, high = confidence_interval(bootstrap_means(data, seed=1, resamples=9_000), data)
    theirs = scipy.stats.bootstrap(
        data, np.mean, n_resamples=9_000, method="percentile", random_state=np.random.default_rng(0)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert low[0] == pytest.approx(theirs.low, abs=0.05 * width)
    assert high[0] == pytest.approx(theirs.high, abs=0.05 * width)


@pytest.mark.parametrize("queries", [7, 20, 99])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_below_100_queries_it_is_scipys_bca_at_the_expanded_level(queries: int, level: float) -> None:
    data = values(queries, 3, queries) ** 4
    means = bootstrap_means(data, seed=2)
    low, high = confidence_interval(means, data, level=level)
    tail = scipy.stats.t.ppf((1 - level) / 2, queries - 1) * np.sqrt(queries / (queries - 1))
    for row in range(3):
        drawn = BootstrapResult(None, means[row], 0.0)
        theirs = scipy.stats.bootstrap(
            data[row : row + 1],
            np.mean,
            n_resamples=0,
            bootstrap_result=drawn,
            method="BCa",
            confidence_level=1 - 2 * scipy.stats.norm.cdf(tail),
        ).confidence_interval
        assert (low[row], high[row]) == (pytest.approx(theirs.low), pytest.approx(theirs.high))


def test_draws_without_a_value_of_a_query_are_left_out() -> None:
    values = np.array([[0.2, np.nan, 0.4, 0.6], [0.4, np.nan, np.nan, 0.6]])
    value, low, high = interval(values, seed=1)
    assert value == pytest.approx((0.3 + 0.4 + 0.6) / 3)
    assert 0.2 <= low < value < high <= 0.7
    assert np.isnan(interval(values[:, :3], seed=1)[1:]).all()
    assert np.isnan(interval(np.full((3, 2), np.nan), seed=1)).all()
    same = np.tile(values_of_queries := np.array([0.1, 0.5, 0.9, 0.3]), (5, 1))
    assert interval(same, seed=1)[0] == pytest.approx(values_of_queries.mean())


def test_ends_that_lie_far_out_have_more_resamples() -> None:
    few, many = values(1, 1, 99), values(1, 1, 100)
    assert mean_of_means({"": few}, seed=1).draws.shape == (1, 10_000)
    assert mean_of_means({"": many}, seed=1).draws.shape == (1, 1_000)
    assert mean_of_means({"": many}, seed=1, level=0.99).draws.shape == (1, 10_000)
    assert mean_of_means({"": few}, seed=1, resamples=50).draws.shape == (1, 50)


def test_intervals_of_little() -> None:
    for few in (1, 2):
        values_of_few = values(1, 2, few)
        assert np.isnan(confidence_interval(bootstrap_means(values_of_few, seed=1), values_of_few)).all()
    for queries in (4, 30, 300):
        same = np.array([[0.1] * queries, [0.0] * queries, [0.0, 1.0] * (queries // 2)])
        low, high = confidence_interval(bootstrap_means(same, seed=1), same)
        assert low[:2].tolist() == high[:2].tolist() == [same[0].mean(), 0.0]
        assert 0 <= low[2] < 0.5 < high[2] <= 1
    kinds = [interval_kind(queries) for queries in (1, 2, 3, 99, 100)]
    assert [*kinds, interval_kind(4, groups=3)] == ["none", "none", "BCa", "BCa", "percentile", "none"]


def test_seed_and_item_decide() -> None:
    data = values(5, 1, 60)
    first = bootstrap_means(data, seed=1, item="Art")
    assert (first == bootstrap_means(data, seed=1, item="Art")).all()
    assert (first != bootstrap_means(data, seed=2, item="Art")).any()
    assert (first != bootstrap_means(data, seed=1, item="History")).any()


@given(st.lists(st.integers(-16, 16), min_size=1, max_size=10))
def test_exact_permutation_is_the_share_of_sign_patterns(differences: list[int]) -> None:
    sums = [abs(sum(np.multiply(differences, signs))) for signs in itertools.product((1, -1), repeat=len(differences))]
    expected = np.mean([each >= abs(sum(differences)) for each in sums])
    assert paired_permutation(np.array([differences]) / 10, seed=1)[0] == expected


def test_drawn_permutation_is_scipys() -> None:
    first, second = values(6, 80), values(7, 80) + 0.08
    theirs = scipy.stats.permutation_test(
        (first, second),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        random_state=np.random.default_rng(1),
    ).pvalue
    ours = paired_permutation((first - second)[None, :], seed=4, permutations=20_000)[0]
    assert 0.01 < theirs < 0.5
    assert ours == pytest.approx(theirs, abs=5 * np.sqrt(theirs / 20_000))


def test_permutation_is_seeded_and_two_sided() -> None:
    data = values(8, 3, 40) - 0.45
    p = paired_permutation(data, seed=1)
    assert (p == paired_permutation(data, seed=1)).all()
    assert (p == paired_permutation(-data, seed=1)).all()
    assert (p[1:2] == paired_permutation(data[1:2], seed=1)).all()
    assert (p != paired_permutation(data, seed=2)).any()


@pytest.mark.parametrize(
    ("raw", "adjusted"),
    [
        ([], []),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.9, 0.6], [1.0, 1.0, 1.0]),
    ],
)
def test_holm_by_hand(raw: list[float], adjusted: list[float]) -> None:
    assert holm(raw).tolist() == pytest.approx(adjusted)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="no queries"):
        bootstrap_means(np.empty((2, 0)), seed=1)
    with pytest.raises(InputError, match="at least 1, got 0"):
        paired_permutation(np.ones((1, 20)), seed=1, permutations=0)
    with pytest.raises(InputError, match="between 0 and 1, got 95"):
        confidence_interval(np.ones((1, 10)), np.ones((1, 3)), level=95)


def test_the_permutations_grow_with_the_family() -> None:
    changes = np.vstack([np.full(100, 0.1), np.random.default_rng(3).normal(0, 1, (4, 100))])
    usual = paired_permutation(changes, seed=1)
    assert paired_permutation(changes, seed=1, tests=50).tolist() == usual.tolist()
    family = paired_permutation(changes, seed=1, tests=2_000)
    assert 2_000 * usual[0] > 0.05 > 2_000 * family[0] == 2_000 / 400_001
    assert family[1:].tolist() == usual[1:].tolist()


def test_the_least_p_value_of_few_queries_is_that_of_all_patterns() -> None:
    """Drawn patterns repeat the observed one and its opposite, 2 of ``2**queries``."""
    assert least_p_value(2, 10_000) == 0.5
    assert least_p_value(14, 10_000_000) == 2 / 2**14
    assert least_p_value(14, 10_000) == 2 / 2**14
    assert least_p_value(5_000, 10_000) == 1 / 10_001
