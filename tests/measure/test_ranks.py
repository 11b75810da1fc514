"""Ranks against plain definitions, and letters against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pipeline.measure.permutation import paired_permutation
from pipeline.measure.ranks import all_pairs, coverage_blocks, letters, ranks, ranks_with_ends, standings
from pipeline.measure.statistics import holm


def test_a_rank_counts_the_higher_values_and_equal_ones_share_the_mean() -> None:
    drawn = np.random.default_rng(1).integers(0, 4, 12) / 4
    higher = (drawn > drawn[:, None]).sum(axis=1)
    equal = (drawn == drawn[:, None]).sum(axis=1)
    np.testing.assert_array_equal(ranks(drawn), 1 + higher + (equal - 1) / 2)


def test_the_ends_of_a_rank_leave_out_who_is_told_apart() -> None:
    apart = np.zeros((4, 4), bool)
    for pair in ((0, 2), (0, 3), (1, 3)):  # of 0.9, 0.5, 0.4, 0.1
        apart[pair] = apart[pair[::-1]] = True
    _, low, high = ranks_with_ends(np.array([0.9, 0.5, 0.4, 0.1]), apart)
    assert (low.tolist(), high.tolist()) == ([1, 1, 2, 3], [2, 3, 4, 4])


@pytest.mark.parametrize("systems", [5, 10])
@pytest.mark.parametrize(("together", "step"), [(10, 0.0), (2, 0.1), (2, 3.0), (1, 0.1), (1, 1.5)])
def test_all_intervals_of_ranks_hold_together(systems: int, together: int, step: float) -> None:
    """Steps are standard errors of a difference: equal, nearly equal and different systems (``bench/intervals.py``)."""
    random, held, short = np.random.default_rng(systems), 0, 0
    means = 0.01 * step * (np.arange(systems) // together)
    _, first, last = ranks_with_ends(means, means != means[:, None])  # ranks that equal systems share
    for seed in range(100):
        values = means[:, None] + random.normal(0, 0.1, (systems, 200)) + random.random(200)
        observed = values.mean(axis=1)
        _, low, high = ranks_with_ends(observed, all_pairs(values, seed=seed) < 0.05)
        held += bool(((low <= first) & (last <= high)).all())
        short += int((high - low).sum() < systems * (systems - 1))
    assert held >= 90
    assert short == 100 or step < 1


def test_all_pairs_are_the_paired_permutation_of_each() -> None:
    random = np.random.default_rng(4)
    for queries in (9, 60):  # all signs, drawn signs
        values = random.random((5, queries)) + 0.3 * np.arange(5)[:, None]
        values[1] = values[0]
        pairs = list(itertools.combinations(range(5), 2))
        changes = np.stack([values[a] - values[b] for a, b in pairs])
        expected = holm(paired_permutation(changes, seed=3, item="x"))
        found = all_pairs(values, seed=3, item="x")
        np.testing.assert_allclose([found[pair] for pair in pairs], expected, atol=1e-3)
        assert (found == found.T).all()
        assert found[0, 1] == 1
        assert found.min() < 0.05


def test_so_many_pairs_can_still_be_told_apart() -> None:
    values = np.random.default_rng(0).random((20, 40)) * 0.01 + np.arange(20)[:, None]
    assert all_pairs(values, seed=1)[np.triu_indices(20, 1)].max() < 0.05


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2 ** (n * (n - 1) // 2) - 1))))
def test_letters_are_the_largest_sets_of_which_no_two_are_apart(drawn: tuple[int, int]) -> None:
    systems, bits = drawn
    apart = np.zeros((systems, systems), bool)
    for place, (a, b) in enumerate(itertools.combinations(range(systems), 2)):
        apart[a, b] = apart[b, a] = bits >> place & 1
    sets = [
        set(some)
        for size in range(1, systems + 1)
        for some in itertools.combinations(range(systems), size)
        if not any(apart[a, b] for a, b in itertools.combinations(some, 2))
    ]
    largest = {frozenset(some) for some in sets if not any(some < other for other in sets)}
    found = letters(apart)
    groups = {frozenset(n for n, text in enumerate(found) if letter in text) for letter in "".join(found)}
    assert groups == largest
    first = [min(n for n, text in enumerate(found) if letter in text) for letter in sorted({*"".join(found)})]
    assert first == sorted(first)


def test_boards_of_many_systems_have_letters_or_none() -> None:
    assert letters(np.zeros((3_000, 3_000), bool)) == ["a"] * 3_000
    matching = np.kron(np.eye(12, dtype=bool), ~np.eye(2, dtype=bool))  # 2 ** 12 sets: one of each pair
    assert letters(matching) == [""] * 24


def test_standings_over_benchmarks() -> None:
    first = [[1.0, 2, 3], [1, 1, 3], [2, 2, 3]]
    second = [[2.0, 1, 3], [1, 1, 1], [3, 3, 3]]
    third = [[2.0, 3, 1], [1, 3, 1], [2, 3, 2]]
    found = standings(np.array([first, second, third]))
    np.testing.assert_allclose(found.mean_rank, [[5 / 3, 2, 7 / 3], [1, 5 / 3, 5 / 3], [7 / 3, 8 / 3, 8 / 3]])
    np.testing.assert_allclose(found.borda, [[2 / 3, 1 / 2, 1 / 3], [1 / 3, 1 / 6, 1 / 6], [1, 2 / 3, 2 / 3]])
    np.testing.assert_array_equal(found.rank, [[1, 2, 3], [1, 1, 1], [3, 3, 3]])
    apart = standings(np.array([[[1.0, 2, 3], [1, 2, 2], [1, 3, 3]]] * 2))
    np.testing.assert_array_equal(apart.rank, [[1, 2, 3], [1, 2, 2], [1, 3, 3]])


def test_systems_are_ranked_in_blocks_that_have_all_benchmarks() -> None:
    """Three systems on two benchmarks, of which one shares a further benchmark with a fourth; the fifth is alone."""
    measured = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], bool)
    assert [*coverage_blocks(measured)] == [([0, 1], [0, 1, 2]), ([2], [2, 3])]
    assert [*coverage_blocks(np.ones((3, 4), bool))] == [([0, 1, 2], [0, 1, 2, 3])]
    assert not [*coverage_blocks(np.eye(3, dtype=bool))]


def test_ranks_of_countries_are_those_of_csranks() -> None:
    """Mathematics in PISA 2018 (OECD): scores of 37 countries and their standard errors.

    ``ends`` are the simultaneous 95% intervals of the R package csranks 1.2.2 (Mogstad et al. 2024; 20,000 bootstrap
    draws, stepwise). Holm's correction of tests of pairs has no bootstrap: two ends are wider by a place.
    """
    scores = np.array([
        491.4, 498.9, 508.1, 512, 417.4, 390.9, 499.5, 509.4, 523.4, 507.3, 495.4, 500, 451.4, 481.1, 495.2, 499.6, 463,
        486.6, 527, 525.9, 496.1, 481.2, 483.4, 408.8, 519.2, 494.5, 501, 515.6, 492.5, 486.2, 508.9, 481.4, 502.4,
        515.3, 453.5, 501.8, 478.2,
    ])  # fmt: skip
    errors = np.array([
        1.94, 2.97, 2.26, 2.36, 2.42, 2.99, 2.46, 1.74, 1.74, 1.97, 2.32, 2.65, 3.09, 2.32, 1.95, 2.2, 3.5, 2.78, 2.47,
        3.12, 1.96, 1.95, 1.1, 2.49, 2.63, 1.71, 2.22, 2.6, 2.68, 2.56, 1.36, 1.46, 2.65, 2.91, 2.26, 2.56, 3.24,
    ])  # fmt: skip
    ends = np.array([
        [12, 7, 4, 3, 35, 37, 7, 4, 1, 4, 12, 7, 32, 23, 12, 8, 31, 15, 1, 1, 12, 23, 23, 35, 1, 12, 7, 1, 12, 18, 4,
        24, 5, 1, 32, 6, 23],
        [30, 26, 18, 17, 36, 37, 25, 18, 6, 18, 26, 25, 34, 31, 26, 25, 34, 31, 6, 7, 26, 31, 31, 36, 11, 26, 24, 12,
        31, 31, 18, 31, 24, 13, 34, 24, 32],
    ])  # fmt: skip
    first, second = np.triu_indices(len(scores), 1)
    distances = np.abs(scores[first] - scores[second]) / np.hypot(errors[first], errors[second])
    apart = np.zeros((len(scores), len(scores)), bool)
    apart[first, second] = holm(2 * norm.sf(distances)) < 0.05
    ours = ranks_with_ends(scores, apart | apart.T)[1:]
    assert np.abs(ours - ends).sum() == 2
    assert np.abs(ours - ends).max() == 1
