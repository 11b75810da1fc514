"""Estimates by a design: against the statistics they are made of, by hand, and the contract of what a seed draws."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.stats

from pipeline.core.errors import InputError
from pipeline.measure.design import DIFFERENCE, ESTIMATE, Design, Draws, corrected, estimate
from pipeline.measure.permutation import paired_permutation
from pipeline.measure.statistics import (
    bootstrap_means,
    confidence_interval,
    holm,
    mean_of_means,
    permutation_of_means,
    standardised_effect,
)

RNG = np.random.default_rng(52)
FIELDS = {"Art": RNG.random((3, 12)), "Physics": RNG.random((3, 110))}
SYSTEMS = ("bm25", "lsa", "minilm")


def tall(groups: dict[str, np.ndarray], **columns: object) -> pl.DataFrame:
    """A row for each value, items numbered from 0."""
    return pl.DataFrame(
        [
            {"system": system, "field": field, "query": query, "value": float(values[row, query])} | columns
            for field, values in groups.items()
            for row, system in enumerate(SYSTEMS[: len(values)])
            for query in range(values.shape[1])
        ]
    )


def test_a_set_has_its_means_and_intervals_and_a_macro_average_those_of_its_groups() -> None:
    values = tall(FIELDS)
    for field, expected in FIELDS.items():
        found = estimate(values.filter(field=field), Design(row=("system",), of=("field",), group="field"), 7)
        mean = mean_of_means({field: expected}, 7)
        assert found["system"].to_list() == [*SYSTEMS]
        np.testing.assert_allclose(found.select("value", "low", "high").to_numpy().T, mean[:3], rtol=0, atol=1e-15)
    macro = estimate(values, Design(row=("system",), group="field"), 7)
    np.testing.assert_allclose(macro.select("value", "low", "high").to_numpy().T, mean_of_means(FIELDS, 7)[:3])
    assert macro["items"].to_list() == [122] * 3
    assert macro["interval"].to_list() == ["percentile"] * 3
    assert estimate(values, Design(row=("system",), of=("field",), group="field"), 7)[
        "interval"
    ].unique().sort().to_list() == ["BCa", "percentile"]


def test_the_order_of_the_frame_is_nothing_and_numbers_are_drawn_by_size() -> None:
    values = tall({"": FIELDS["Physics"]}, measure="map")
    design = Design(row=("system",), of=("field",))
    found, mixed = (
        estimate(frame, design, 3, ("bm25",)) for frame in (values, values.sample(fraction=1, shuffle=True, seed=1))
    )
    assert mixed.sort("system").equals(found.sort("system"))
    as_text = values.with_columns(pl.col("query").cast(pl.String))
    by_text = estimate(as_text, design, 3)
    order = sorted(range(110), key=str)
    np.testing.assert_allclose(by_text["low"], mean_of_means({"": FIELDS["Physics"][:, order]}, 3).low)


def test_differences_are_those_of_the_pairs_with_one_family_for_a_set_and_measure() -> None:
    values = pl.concat([tall(FIELDS, measure=name) for name in ("map", "mrr")])
    found = estimate(values, Design(row=("system",), group="field"), 5, ("bm25",))
    assert found.filter(system="bm25").select(list(DIFFERENCE)).null_count().row(0) == (2,) * len(DIFFERENCE)
    changes = {field: of_field[1:] - of_field[0] for field, of_field in FIELDS.items()}
    p_values = permutation_of_means(changes, 5)
    for _, of_measure in found.filter(pl.col("p").is_not_null()).group_by("measure"):
        np.testing.assert_allclose(of_measure["p"], p_values)
        np.testing.assert_allclose(of_measure["p_adjusted"], holm(p_values))
        np.testing.assert_allclose(of_measure["effect"], standardised_effect(changes))
        ends = of_measure.select("difference", "difference_low", "difference_high").to_numpy().T
        np.testing.assert_allclose(ends, mean_of_means(changes, 5)[:3], atol=1e-15)
        counts = of_measure.select("wins", "ties", "losses").to_numpy()
        assert counts.sum(axis=1).tolist() == [122, 122]
        assert counts[0, 0] == sum((of_field[0] > 0).sum() for of_field in changes.values())


def test_each_row_may_have_its_own_baseline_and_families_may_span_sets() -> None:
    values = tall(FIELDS)
    design = Design(row=("system",), of=("field",), group="field", family=("system",))
    found = estimate(values, design, 5, {("minilm",): ("lsa",)})
    tested = found.filter(pl.col("p").is_not_null())
    assert tested.select("field", "system", "tests").rows() == [("Art", "minilm", 2), ("Physics", "minilm", 2)]
    raw = [paired_permutation((v[2] - v[1])[None], seed=5, item=field)[0] for field, v in FIELDS.items()]
    assert tested["p"].to_list() == pytest.approx(raw)
    assert tested["p_adjusted"].to_list() == pytest.approx(holm(raw))


def test_estimates_of_several_calls_can_be_one_family() -> None:
    values, design = tall(FIELDS), Design(row=("system",), of=("field",), group="field", family=())
    together = estimate(values, design, 5, ("bm25",))
    apart = [estimate(values.filter(field=field), design, 5, ("bm25",), Draws(tests=4)) for field in FIELDS]
    assert corrected(pl.concat(apart)).equals(together)


def test_a_measure_may_rate_fewer_items() -> None:
    """Queries without a document of a measure's grade have no value; the others keep the order of their draws."""
    whole = tall({"": FIELDS["Physics"]}, measure="map")
    half = whole.with_columns(measure=pl.lit("mrr"), value=pl.when(pl.col("query") % 2 == 0).then("value"))
    found = estimate(pl.concat([whole, half]), Design(row=("system",)), 5, ("bm25",))
    assert found["measure"].to_list() == ["map"] * 3 + ["mrr"] * 3
    for name, frame in (("map", whole), ("mrr", half.filter(pl.col("query") % 2 == 0))):
        assert found.filter(measure=name).equals(estimate(frame, Design(row=("system",)), 5, ("bm25",)))


def test_a_difference_can_be_found_in_a_family_of_2_000() -> None:
    """10,000 flips give no p-value below 1/10,001, of which a correction over 2,000 tests would leave nothing."""
    pools, systems, queries = 20, 101, 40
    cube = RNG.normal(0, 0.1, (pools, systems, queries))
    cube[:, -1] = cube[:, 0] + 0.2 + RNG.normal(0, 0.02, (pools, queries))
    names = [axis.ravel() for axis in np.indices(cube.shape)]
    values = pl.DataFrame([*names, cube.ravel()], ["pool", "system", "query", "value"])
    found = estimate(values, Design(row=("system",), of=("pool",), family=()), 1, (0,), Draws(resamples=10))
    tested = found.filter(pl.col("p").is_not_null())
    assert tested["tests"].unique().to_list() == [2_000]
    assert tested["permutations"].unique().to_list() == [400_000]
    better = tested.filter(system=systems - 1)
    assert better["p_adjusted"].to_list() == pytest.approx([2_000 / 400_001] * pools)
    assert tested.filter(pl.col("system") < systems - 1)["p_adjusted"].min() > 0.05
    assert (better["detectable"] < 0.2).all()


def test_items_of_a_unit_are_drawn_and_flipped_as_one() -> None:
    once = tall({"": FIELDS["Art"]})
    twice = pl.concat([once, once.with_columns(pl.col("query") + 100)]).with_columns(paper=pl.col("query") % 100)
    design = Design(row=("system",), unit="paper")
    one, both = (estimate(frame, design, 9, ("bm25",)) for frame in (once.with_columns(paper="query"), twice))
    names = ["value", "low", "high", "difference_low", "difference_high", "p", "effect", "error", "detectable", "units"]
    for name in names:
        np.testing.assert_allclose(one[name].drop_nulls(), both[name].drop_nulls(), err_msg=name)
    assert (one["items"][0], both["items"][0]) == (12, 24)
    assert one.equals(estimate(once, Design(row=("system",)), 9, ("bm25",)))
    change = FIELDS["Art"][1] - FIELDS["Art"][0]
    assert one["error"][1] == pytest.approx(scipy.stats.sem(change))


def test_repetitions_are_averaged_and_can_be_drawn() -> None:
    cube = RNG.random((2, 3, 120))
    samples = [tall({"": cube[:, sample]}, sample=sample) for sample in range(3)]
    design = Design(row=("system",), over="sample")
    found = estimate(pl.concat(samples), design, 2, ("bm25",))
    mean = mean_of_means({"": cube.mean(axis=1)}, 2)
    np.testing.assert_allclose(found.select("value", "low", "high").to_numpy().T, mean[:3])
    drawn = estimate(pl.concat(samples), design, 2, draws=Draws(resample="papers"))
    spread = cube.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(3) * scipy.stats.t(2).ppf(0.975)
    np.testing.assert_allclose((drawn["high"] - drawn["low"]) / 2, spread, rtol=0.1)
    with pytest.raises(InputError, match="needs 2 samples or more"):
        estimate(samples[0], design, 2, draws=Draws(resample="papers"))
    apart = pl.concat([samples[0], samples[1].filter(system="lsa")])
    assert estimate(apart, design, 2, ("bm25",))["p"].null_count() == 2  # other samples: not compared


def test_given_resamples_are_combined() -> None:
    resamples = RNG.normal(0.5, 0.1, (2, 2, 500))
    rows = [
        (system, item, float(of.mean()), of.tolist())
        for system, items in zip("ab", resamples, strict=True)
        for item, of in enumerate(items)
    ]
    values = pl.DataFrame(rows, ["system", "query", "value", "draws"], orient="row")
    found = estimate(values, Design(row=("system",), resampled="draws"), 1, ("a",), keep_draws=True)
    np.testing.assert_allclose(found["low"], np.quantile(resamples.mean(axis=1), 0.025, axis=1))
    np.testing.assert_allclose(found["draws"][1], resamples[1].mean(axis=0))
    change = (resamples[1] - resamples[0]).mean(axis=0)
    assert found["difference_high"][1] == pytest.approx(np.quantile(change, 0.975))
    unknown = values.with_columns(draws=pl.when(pl.col("query") == 0).then("draws"))
    assert estimate(unknown, Design(row=("system",), resampled="draws"), 1)["low"].null_count() == 2


def test_kept_draws_are_the_resampled_means() -> None:
    found = estimate(tall({"": FIELDS["Physics"]}), Design(row=("system",)), 4, keep_draws=True)
    expected = bootstrap_means(FIELDS["Physics"], seed=4)
    np.testing.assert_allclose(np.stack(found["draws"].to_list()), expected)
    low, _ = confidence_interval(expected, FIELDS["Physics"])
    np.testing.assert_allclose(found["low"], low)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.filter((pl.col("system") != "lsa") | (pl.col("query") > 0)), "values of the same items"),
        (lambda frame: pl.concat([frame, frame.head(1)]), "one value of an item"),
    ],
)
def test_rows_with_other_items_are_refused(change: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        estimate(change(tall({"": FIELDS["Art"]})), Design(row=("system",)), 1)


def test_no_values_are_no_estimates() -> None:
    empty = tall({"": FIELDS["Art"]}).clear()
    assert estimate(empty, Design(row=("system",)), 1, ("a",)).columns == ["system", *ESTIMATE, *DIFFERENCE]
