"""Differences of two systems: against SciPy, by hand, and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest

from pipeline.measure.design import Design, estimate
from pipeline.measure.estimates import tall
from pipeline.measure.statistics import (
    mean_of_means,
    permutation_of_means,
    standardised_effect,
)

RNG = np.random.default_rng(5)
FIELDS = {"Art": RNG.normal(0.1, 0.2, (2, 4)), "Physics": RNG.normal(0.0, 0.1, (2, 6))}


def test_the_mean_over_fields_is_tested_by_all_sign_patterns() -> None:
    weighted = np.concatenate([values / values.shape[1] for values in FIELDS.values()], axis=1)
    patterns = np.array(list(itertools.product((1, -1), repeat=10)))
    for row, p_value in zip(weighted, permutation_of_means(FIELDS, seed=1), strict=True):
        assert p_value == np.mean(np.abs(patterns @ row) >= abs(row.sum()) - 1e-12)


def differences(groups: dict[str, np.ndarray]) -> pl.DataFrame:
    """Return the differences of each row of the groups from nothing, by a frame of values."""
    rows = len(next(iter(groups.values())))
    both = {name: np.concatenate([np.zeros_like(values), values]) for name, values in groups.items()}
    names = pl.DataFrame({"number": [*range(rows)] * 2, "side": ["none"] * rows + ["some"] * rows})
    design = Design(row=("number", "side"), item="item", group="group")
    base = {(number, "some"): (number, "none") for number in range(rows)}
    return estimate(tall(both, names), design, 1, base).filter(side="some")


def test_a_difference_has_its_mean_interval_effect_and_counts() -> None:
    found, means = differences(FIELDS), mean_of_means(FIELDS, seed=1)
    expected = np.mean([values.mean(axis=1) for values in FIELDS.values()], axis=0)
    assert found["difference"].to_list() == pytest.approx(expected)
    assert found["difference_low"].to_list() == pytest.approx(means.low)
    assert found["difference_high"].to_list() == pytest.approx(means.high)
    every = np.concatenate(list(FIELDS.values()), axis=1)
    assert found["wins"].to_list() == (every > 0).sum(axis=1).tolist()
    assert (found["wins"] + found["ties"] + found["losses"]).to_list() == [10, 10]
    expected = [np.mean([v[row].mean() / v[row].std(ddof=1) for v in FIELDS.values()]) for row in range(2)]
    assert found["effect"].to_list() == pytest.approx(expected)


def test_queries_of_one_unit_are_flipped_as_one_in_all_fields() -> None:
    values = FIELDS["Physics"]
    fields = {"Art": values, "Physics": values}
    both = permutation_of_means(fields, seed=1, units={"Art": "abcdef", "Physics": "abcdef"})
    assert both.tolist() == permutation_of_means({"": values}, seed=1).tolist()
    assert permutation_of_means(fields, seed=1)[0] < both[0]


def test_effect_counts_queries_of_one_unit_as_one() -> None:
    """Twice the same query is one."""
    values = FIELDS["Physics"]
    twice, units = {"": np.repeat(values, 2, axis=1)}, {"": [name for name in "abcdef" for _ in range(2)]}
    assert standardised_effect(twice, units) == pytest.approx(standardised_effect({"": values}))
    assert np.isnan(standardised_effect({"": values}, {"": ["a"] * 6})).all()


def test_a_resample_without_a_query_of_a_group_is_one_of_the_others() -> None:
    """Art has one paper, which two resamples in five leave out."""
    groups = {"Art": np.array([[1.0]]), "Physics": np.array([[0.2, 0.4]])}
    means = mean_of_means(groups, seed=1, units={"Art": ["a"], "Physics": ["b", "c"]})
    assert means.value == pytest.approx((1.0 + 0.3) / 2)
    assert set(means.draws.round(6).ravel().tolist()) == {0.2, 0.266667, 0.333333, 0.4, 0.6, 0.65, 0.7, 1.0}


def test_equal_differences_have_no_effect_size() -> None:
    assert np.isnan(standardised_effect({"": np.full((1, 3), 0.5)})).all()
    assert np.isnan(standardised_effect({"": np.ones((1, 1))})).all()
