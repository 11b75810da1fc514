from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from pipeline.core.errors import InputError
from pipeline.measure.board import ALPHA, board, plan
from pipeline.measure.permutation import pair_p_values, tail_bound
from pipeline.measure.ranks import all_pairs


def tall(values: np.ndarray, groups: list[str] | None = None, units: list[str] | None = None) -> pl.DataFrame:
    systems, items = values.shape
    names = [f"i{item:03}" for item in range(items)]
    rows = [
        (f"s{system}", names[item], (groups or [""] * items)[item], (units or names)[item], values[system, item])
        for system, item in itertools.product(range(systems), range(items))
        if not np.isnan(values[system, item])
    ]
    return pl.DataFrame(rows, ["system", "item", "group", "unit", "value"], orient="row")


def exact_p(differences: np.ndarray) -> float:
    signs = np.array(list(itertools.product([-1, 1], repeat=len(differences))))
    return float((np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).mean())


def test_tail_bound_is_never_below_the_exact_p_value_and_equals_it_for_one_sign() -> None:
    random = np.random.default_rng(3)
    values = random.random((6, 12))
    values[1] = values[0] + random.random(12)  # one sign
    first, second = np.triu_indices(6, 1)
    bounds = tail_bound(values, first, second)
    exact = [exact_p(values[b] - values[a]) for a, b in zip(first, second, strict=True)]
    assert (bounds >= np.array(exact) - 1e-12).all()
    assert bounds[0] == pytest.approx(2 * 2.0**-12)
    assert (bounds <= 1).all()
    assert np.median(bounds / exact) < 8
    assert tail_bound(np.ones((2, 5)), np.array([0]), np.array([1])).tolist() == [1.0]


def test_large_families_are_significant_where_permutations_alone_cannot_be() -> None:
    random = np.random.default_rng(5)
    values = random.normal(0, 0.01, (50, 60)) + np.linspace(0, 1, 50)[:, None]
    p_values = all_pairs(values, seed=13)
    assert (p_values[np.triu_indices(50, 2)] < ALPHA).all()


def test_up_to_18_units_the_pairs_of_a_large_board_are_exact() -> None:
    random = np.random.default_rng(9)
    values = random.normal(0, 0.05, (46, 14)) + np.linspace(0, 1, 46)[:, None]
    made = board(tall(values), seed=13)
    assert made.bounded is None
    pairs = [(0, 1), (3, 9), (0, 45)]
    exact = {pair: exact_p(made.values[pair[0]] - made.values[pair[1]]) for pair in pairs}
    first, second = np.triu_indices(46, 1)
    plain, _ = pair_p_values(made.values, first, second, 13, "", 2**14, 18)
    found = dict(zip(zip(first.tolist(), second.tolist(), strict=True), plain.tolist(), strict=True))
    assert [found[pair] for pair in pairs] == pytest.approx([exact[pair] for pair in pairs])
    assert not [line for line in made.remarks() if "bounds" in line or "draw" in line]
    others = board(tall(random.normal(0, 0.05, (46, 30)) + np.linspace(0, 1, 46)[:, None]), seed=13)
    assert others.bounded is not None
    said = " ".join(others.remarks())
    assert f"{others.bounded.sum():,} of 1,035 p-values are Chernoff bounds" in said


def test_means_weigh_groups_alike_and_items_that_some_lack_are_left_out() -> None:
    values = np.add.outer([0.5, 0.3, 0.1], np.linspace(0, 0.4, 9))
    made = board(tall(values, groups=["a"] * 3 + ["b"] * 6), seed=13)
    expected = [(row[:3].mean() + row[3:].mean()) / 2 for row in values]
    assert made.estimates["value"].to_list() == pytest.approx(expected)
    holed = values.copy()
    holed[0, 2] = holed[2, 5] = np.nan
    assert len(board(tall(holed), seed=13).items) == 7


def test_what_the_first_place_hangs_on() -> None:
    first, second = np.full(10, 0.5), np.full(10, 0.5)
    first[:3] += [0.3, 0.2, 0.1]
    second[9] += 0.35
    made = board(tall(np.stack([first, second])), seed=13)
    row = made.standing().row(1, named=True)
    assert made.systems == ["s0", "s1"]
    assert row["left_out"] == 1  # without the first item, 0.3 against 0.35
    assert made.deciding()["item"][0] == "i000"
    assert made.deciding()["leader"].to_list() == ["s1"] + ["s0"] * 9
    assert made.deciding()["share"].sum() == pytest.approx(1)


def test_families_are_flipped_as_one() -> None:
    values = np.array([[0.6] * 12, [0.5] * 12])
    alone = board(tall(values), seed=13)
    families = board(tall(values, units=["x"] * 4 + ["y"] * 4 + ["z"] * 4), seed=13)
    assert alone.p_values[0, 1] == pytest.approx(2.0**-11)
    assert families.p_values[0, 1] == pytest.approx(2.0**-2) == pytest.approx(families.least_p)
    assert families.ranks[1:].tolist() == [[1, 1], [2, 2]]


def test_a_plan_needs_the_items_that_its_simulation_shows() -> None:
    random = np.random.default_rng(17)
    pilot = board(tall(np.clip(random.normal(0.5, 0.1, (3, 60)), 0, 1)), seed=13)
    for planned in plan(pilot, 0.03, 13).rows(named=True):
        assert 0.7 <= planned["power"] <= 0.9
        assert planned["needed"] == pytest.approx((planned["deviation"] / 0.03) ** 2 * 10.5, rel=0.15)


def test_a_plan_that_cannot_be_simulated_says_what_it_needs() -> None:
    values = np.random.default_rng(19).random((2, 30))
    planned = plan(board(tall(values), seed=13), 1e-6, 13)
    assert planned["needed"][-1] > 10**9
    assert math.isnan(planned["power"][-1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((1, 5)), "two systems or more must be compared, got s0"),
        (np.array([[0.1, np.nan, 0.2], [np.nan, 0.3, 0.2]]), r"got 1 of 3\. Give results of more"),
        (np.ones((2, 1)), r"got 1 of 1\. Give results of more items"),
    ],
)
def test_too_few(values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        board(tall(values), seed=13)
