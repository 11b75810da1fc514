"""Means over samples, macro averages and significance, by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.stats

from pipeline.core.errors import InputError
from pipeline.measure.design import Draws
from pipeline.measure.permutation import paired_permutation
from pipeline.measure.statistics import (
    bootstrap_means,
    confidence_interval,
    holm,
    permutation_of_means,
)
from pipeline.scores.average import AVERAGE, families
from pipeline.scores.compare import compare
from pipeline.scores.frames import load_runs
from pipeline.scores.layout import select_measures
from pipeline.scores.summary import SUMMARY, exported, summarise, summarise_samples
from tests.scores.cases import figure, made_up, scored, tables_of

DRAWS = Draws(seed=5, resamples=300, permutations=400)


def test_mean_and_deviation_over_samples() -> None:
    values = np.random.default_rng(1).random((3, 25))
    many = pl.concat([scored("a", {"map": row.tolist()}, sample=number) for number, row in enumerate(values, 1)])
    summary = summarise(many, draws=DRAWS)
    assert dict(summary.schema) == SUMMARY
    (row,) = summary.rows(named=True)
    assert row["value"] == pytest.approx(values.mean())
    assert row["deviation"] == pytest.approx(values.mean(axis=1).std(ddof=1))
    mean = values.mean(axis=0)[None]
    low, high = confidence_interval(bootstrap_means(mean, seed=5, resamples=300), mean)
    assert (row["low"], row["high"]) == (pytest.approx(low[0]), pytest.approx(high[0]))
    assert (row["samples"], row["queries"], row["positives"]) == ([1, 2, 3], 25, 100)
    assert row["pools"] == ["dataset-200000-s1", "dataset-200000-s2", "dataset-200000-s3"]
    alone = summarise_samples(many, load_runs(many), DRAWS)
    assert alone["value"].to_list() == pytest.approx(values.mean(axis=1).tolist())
    assert alone["sample"].to_list() == [1, 2, 3]


def test_a_row_of_fewer_samples_is_never_best_and_stands_apart() -> None:
    parts = [scored("a-few", {"map": [0.9, 0.8]}, sample=1), scored("b-few", {"map": [0.7, 0.8]}, sample=1)]
    parts += [
        scored(name, {"map": [value, 0.2]}, sample=n) for n in (1, 2, 3) for name, value in (("c", 0.1), ("d", 0.3))
    ]
    scores = pl.concat(parts)
    summary = summarise(scores, draws=DRAWS)
    assert summary.filter("best")["label"].to_list() == ["d"]
    (table,) = tables_of(scores, summary, ["map"])
    assert [(row.label, row.summary) for row in table.lines] == [
        ("c", False), ("d", False), ("a-few", True), ("b-few", True),
    ]  # fmt: skip
    order = [row["label"] for row in exported(select_measures(summary, ["map"])).rows(named=True)]
    assert order == [row.label for row in table.lines]  # cells of a page take their records in this order
    assert sum(set(line) == {"-"} for line in str(table).splitlines()) == 2  # below the header, and above the rest
    assert "Of fewer samples, apart from the others: a-few 1, b-few 1." in table.notes


def test_what_is_resampled_decides_the_interval() -> None:
    """Samples alone have the t interval of their figures; queries and samples one that is longer than either."""
    random = np.random.default_rng(4)
    values = np.clip(random.random((4, 150)) * 0.5 + random.normal(0.2, 0.05, (4, 1)), 0, 1)
    many = pl.concat([scored("a", {"map": row.tolist()}, sample=number) for number, row in enumerate(values, 1)])
    ends = {}
    for name in ("queries", "papers", "both"):
        (row,) = summarise(many, draws=Draws(seed=5, resample=name)).rows(named=True)
        assert (row["resample"], row["value"]) == (name, pytest.approx(values.mean()))
        ends[name] = row["high"] - row["low"]
    alone = summarise_samples(many, load_runs(many), Draws(seed=5, resample="papers"))
    assert alone["resample"].to_list() == ["queries"] * 4
    figures = values.mean(axis=1)
    expected = scipy.stats.t.interval(0.95, 3, figures.mean(), scipy.stats.sem(figures))
    assert ends["papers"] == pytest.approx(expected[1] - expected[0], rel=0.1)
    assert ends["both"] > max(ends["queries"], ends["papers"]) * 0.99
    (table,) = tables_of(many, summarise(many, draws=Draws(seed=5, resample="both")))
    counted = "over queries and samples of candidates (where several)"
    assert f"[95% interval {counted}; tests are over queries]" in table.notes[0]
    assert f"bootstrap {counted}: 10,000 resamples" in table.notes[-1]


def test_samples_are_resampled_for_differences_too_and_one_sample_is_refused() -> None:
    many = pl.concat([made_up(["a", "b"], [(None, 10)], samples=3), made_up(["a", "b"], [("Art", 20)], samples=1)])
    both = compare(many, "a", "b", ["map"], Draws(seed=5, resample="both"))
    plain = compare(many, "a", "b", ["map"], Draws(seed=5, resamples=10_000))
    assert both["resample"].unique().to_list() == ["both"]
    assert both.filter(field="Art").select("low", "high").rows()[0] == pytest.approx(
        plain.filter(field="Art").select("low", "high").rows()[0]
    )
    with pytest.raises(InputError, match="papers needs 2 samples or more of each pool, got 1 of Art"):
        summarise(many, draws=Draws(resample="papers"))
    with pytest.raises(InputError, match="resample.*'paper' is unknown"):
        Draws(resample="paper")


def test_order_of_scores_does_not_matter() -> None:
    many = made_up(["a", "b"], [("Art", 10), ("Physics", 20)])
    first, second = (
        summarise(scores, baseline="a").sort("label", "field", "measure")
        for scores in (many, many.sample(fraction=1, shuffle=True, seed=2))
    )
    assert first.drop("table").equals(second.drop("table"))


def test_macro_average_weighs_fields_alike() -> None:
    many = [
        scored("a", {"map": [1.0, 0.0]}, field="Art", size=50, sample=1),
        scored("a", {"map": [0.5, 0.0]}, field="Art", size=50, sample=2),
        scored("a", {"map": [0.2, 0.2, 0.2, 0.4]}, field="History", size=40, sample=1),
    ]
    average = figure(summarise(pl.concat(many), draws=DRAWS), "a", AVERAGE, None, "map")
    assert average["value"] == pytest.approx((0.375 + 0.25) / 2)
    assert average["deviation"] == pytest.approx(np.std([(0.5 + 0.25) / 2, (0.25 + 0.25) / 2], ddof=1))
    assert (average["queries"], average["positives"], average["samples"]) == (6, 200, [1, 2])
    parts = {"Art": np.array([[0.75, 0.0]]), "History": np.array([[0.2, 0.2, 0.2, 0.4]])}
    art, history = (bootstrap_means(values, seed=5, item=name, resamples=300) for name, values in parts.items())
    low, high = confidence_interval((art + history) / 2, *parts.values())
    assert (average["low"], average["high"]) == (pytest.approx(low[0]), pytest.approx(high[0]))


def test_fields_with_other_samples_have_no_deviation_of_their_average() -> None:
    many = [scored("a", {"map": [0.5]}, field="Art", sample=sample) for sample in (1, 2)]
    many += [scored("a", {"map": [0.3]}, field="Physics", sample=sample) for sample in (1, 2, 3)]
    average = figure(summarise(pl.concat(many), draws=DRAWS), "a", AVERAGE, 200_000, "map")
    assert average["value"] == pytest.approx(0.4)
    assert average["deviation"] is None


def test_a_system_that_misses_a_field_has_no_average() -> None:
    many = made_up(["a", "b"], [("Art", 10), ("Physics", 10)], measures=["map"])
    summary = summarise(many.filter(~((pl.col("label") == "b") & (pl.col("field") == "Art"))), draws=DRAWS)
    places = set(summary.select("label", "field").rows())
    assert places == {("a", "Art"), ("a", "Physics"), ("a", AVERAGE), ("b", "Physics")}


def test_p_values_are_corrected_over_fields() -> None:
    fields = ("Art", "Biology", "Physics")
    many = made_up(["base", "b", "c"], [(field, 10 + i) for i, field in enumerate(fields)], measures=["map"], samples=2)
    noise = pl.Series(np.random.default_rng(4).random(len(many)))
    many = many.with_columns(pl.col("value") + 0.2 * noise - 0.095 * (pl.col("label") != "base"))
    summary = summarise(many, baseline="base", draws=DRAWS)
    means = many.group_by("label", "field", "query").agg(pl.col("value").mean()).sort("query")
    for system in ("b", "c"):
        raw = []
        for field in fields:
            one, base = (means.filter(label=name, field=field)["value"].to_numpy() for name in (system, "base"))
            raw.append(paired_permutation((one - base)[None], seed=5, item=field, permutations=400)[0])
        rows = [figure(summary, system, field, 10 + i, "map") for i, field in enumerate(fields)]
        assert [row["p_value"] for row in rows] == raw
        assert [row["p_adjusted"] for row in rows] == holm(raw).tolist()
        assert [row["marked"] for row in rows] == [p < 0.05 for p in holm(raw)]
    assert any(0.05 < p < 1 for p in summary["p_value"].drop_nulls())
    assert summary.filter(label="base")["p_value"].null_count() == 4


def test_the_mean_over_fields_is_tested_apart() -> None:
    fields = {"Art": 10, "Biology": 11, "Physics": 12}
    many = made_up(["base", "b", "c"], list(fields.items()), measures=["map"], samples=2)
    many = many.with_columns(pl.col("value") + 0.2 * pl.Series(np.random.default_rng(4).random(len(many))))
    means = many.group_by("label", "field", "query").agg(pl.col("value").mean()).sort("query")
    value = {key: part["value"].to_numpy() for key, part in means.group_by("label", "field")}
    raw = {}
    for system in ("b", "c"):
        changes = {field: (value[system, field] - value["base", field])[None] for field in fields}
        (raw[system],) = permutation_of_means(changes, seed=5, permutations=400).tolist()
    summary = summarise(many, baseline="base", draws=DRAWS)
    rows = {system: figure(summary, system, AVERAGE, None, "map") for system in raw}
    assert {system: row["p_value"] for system, row in rows.items()} == raw
    assert {system: row["p_adjusted"] for system, row in rows.items()} == raw
    assert (figure(summary, "b", "Art", 10, "map")["tests"], rows["b"]["tests"]) == (3, 1)


def test_systems_on_other_samples_are_not_tested() -> None:
    many = [scored("a", {"map": [0.5, 0.1]}, sample=sample) for sample in (1, 2)]
    many.append(scored("b", {"map": [0.4, 0.2]}, sample=1))
    assert summarise(pl.concat(many), baseline="a")["p_value"].to_list() == [None, None]


def test_a_row_is_tested_against_the_baseline_of_its_depth() -> None:
    random = np.random.default_rng(3)
    rows = [("bm25 (depth 10)", 10), ("bm25 (depth 500)", 500), ("lsa (depth 500)", 500), ("x (depth 7)", 7)]
    many = pl.concat(
        [
            scored(label.split()[0], {"map": random.random(20).tolist()}, label=label, depth=depth)
            for label, depth in rows
        ]
    )
    summary = summarise(many, baseline="bm25")
    tested = summary.filter(pl.col("p_value").is_not_null())
    assert tested.select("label", "baseline").rows() == [("lsa (depth 500)", "bm25 (depth 500)")]
    notes = " ".join(tables_of(many, summary)[0].notes)
    assert "† differs from bm25 (depth 500)" in notes
    assert "Not tested against bm25: x (depth 7)" in notes
    other = summarise(many, baseline="lsa (depth 500)").drop_nulls("p_value")
    assert other.select("label", "baseline").rows() == [("bm25 (depth 500)", "lsa (depth 500)")]


def test_notes_count_by_system() -> None:
    half, deep = {"map": [0.5]}, {"depth": 9}
    many = [
        scored("a", half, queries_without_results=2, **deep),
        scored(
            "a", half, size=9, queries_without_positive=4,
            positives_not_in_collection=7, **deep,
        ),
        scored(
            "b", half, size=9, queries_without_positive=4, queries_without_results=1,
            positives_not_in_collection=7, **deep,
        ),
    ]  # fmt: skip
    (table,) = tables_of(pl.concat(many), summarise(pl.concat(many), draws=DRAWS))
    notes = " ".join(table.notes)
    assert "scored 0: a 2, b 1. Queries without a positive, left out: 4." in notes
    assert "Positives that are not in the collection: 7, left out of denominators." in notes
    assert "the top 9 of each query" in notes


def test_what_cannot_be_summarised() -> None:
    one = scored("BM25", {"map": [1.0]})
    with pytest.raises(InputError, match="no scores to report"):
        summarise(one.clear())
    with pytest.raises(InputError, match=r"baseline must be one of BM25 on these pools, got 'bm2'"):
        summarise(one, baseline="bm2")
    two = [scored("a", {"map": [1.0]}), scored("a", {"map": [1.0, 0.0]}, sample=2)]
    with pytest.raises(InputError, match=r"s1 \(1 query, 100 positives\) and .*s2 \(2 queries"):
        summarise(pl.concat(two))
    two = [scored("a", {"map": [1.0]}), scored("b", {"map": [1.0]}, sample=2, positives=99)]
    with pytest.raises(InputError, match="other queries"):
        summarise(pl.concat(two))


def test_families() -> None:
    small, large = (None, 10), (None, 20)
    art, physics, physics_large, other = ("Art", 9), ("Physics", 10), ("Physics", 20), ("Zoology", 1)
    assert families([large, small, large]) == [("sizes", [small, large])]
    assert families([physics_large, physics]) == [("sizes", [physics, physics_large])]
    assert families([other, physics, art, small]) == [("sizes", [small]), ("fields", [art, physics, other])]
    assert families([art, physics, physics_large]) == [("sizes", [art]), ("sizes", [physics, physics_large])]
    both = [(field, size) for field in ("Art", "Physics") for size in (5, 6)]
    assert families([*both, physics]) == [
        ("fields", [("Art", 5), ("Physics", 5)]),
        ("fields", [("Art", 6), ("Physics", 6)]),
        ("sizes", [physics]),
    ]
