"""Means over samples, macro averages and significance, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from pipeline.report.aggregate import summarise
from pipeline.report.model import AVERAGE, Family, ReportSettings, Setup, families
from pipeline.report.tables import build_tables

from pipeline.core.errors import InputError
from pipeline.measure.statistics import bootstrap_means, confidence_interval, holm, paired_permutation
from tests.report.cases import made_up, scored

SETTINGS = ReportSettings(seed=5, resamples=300, permutations=400)


def test_mean_and_deviation_over_samples() -> None:
    values = np.random.default_rng(1).random((3, 25))
    many = [scored("a", {"map": each}, sample=number) for number, each in enumerate(values, 1)]
    (summary,) = summarise(many, SETTINGS).summaries
    assert summary.value == pytest.approx(values.mean())
    assert summary.deviation == pytest.approx(values.mean(axis=1).std(ddof=1))
    mean = values.mean(axis=0)[None]
    low, high = confidence_interval(bootstrap_means(mean, seed=5, resamples=300), mean)
    assert (summary.low, summary.high) == (pytest.approx(low[0]), pytest.approx(high[0]))
    assert (summary.samples, summary.queries, summary.positives) == (3, 25, 100)
    assert summary.pools == ("dataset-200000-s1", "dataset-200000-s2", "dataset-200000-s3")


def test_order_of_scores_does_not_matter() -> None:
    many = made_up(["a", "b"], [("Art", 10), ("Physics", 20)])
    shuffled = [many[place] for place in np.random.default_rng(2).permutation(len(many))]
    first, second = (summarise(scores, ReportSettings(baseline="a")) for scores in (many, shuffled))
    assert set(first.summaries) == set(second.summaries)


def test_macro_average_weighs_fields_alike() -> None:
    many = [
        scored("a", {"map": [1.0, 0.0]}, field="Art", size=50, sample=1),
        scored("a", {"map": [0.5, 0.0]}, field="Art", size=50, sample=2),
        scored("a", {"map": [0.2, 0.2, 0.2, 0.4]}, field="History", size=40, sample=1),
    ]
    report = summarise(many, SETTINGS)
    average = report.find("a", AVERAGE, None, "map")
    assert average is not None
    assert average.value == pytest.approx((0.375 + 0.25) / 2)
    assert average.deviation == pytest.approx(np.std([(0.5 + 0.25) / 2, (0.25 + 0.25) / 2], ddof=1))
    assert (average.queries, average.positives, average.samples) == (6, 200, 2)
    parts = {"Art": np.array([[0.75, 0.0]]), "History": np.array([[0.2, 0.2, 0.2, 0.4]])}
    art, history = (bootstrap_means(each, seed=5, item=name, resamples=300) for name, each in parts.items())
    low, high = confidence_interval((art + history) / 2, *parts.values())
    assert (average.low, average.high) == (pytest.approx(low[0]), pytest.approx(high[0]))


def test_fields_with_other_samples_have_no_deviation_of_their_average() -> None:
    many = [scored("a", {"map": [0.5]}, field="Art", sample=sample) for sample in (1, 2)]
    many += [scored("a", {"map": [0.3]}, field="Physics", sample=sample) for sample in (1, 2, 3)]
    average = summarise(many, SETTINGS).find("a", AVERAGE, 200_000, "map")
    assert average is not None
    assert average.value == pytest.approx(0.4)
    assert average.deviation is None


def test_a_system_that_misses_a_field_has_no_average() -> None:
    many = made_up(["a", "b"], [("Art", 10), ("Physics", 10)], measures=["map"])
    report = summarise([each for each in many if (each.system, each.pool.setup.field) != ("b", "Art")], SETTINGS)
    assert report.find("a", AVERAGE, 10, "map") is not None
    assert report.find("b", AVERAGE, 10, "map") is None
    assert report.find("b", "Art", 10, "map") is None


def test_p_values_are_corrected_over_fields() -> None:
    fields = ("Art", "Biology", "Physics")
    many = made_up(["base", "b", "c"], [(field, 10 + i) for i, field in enumerate(fields)], measures=["map"], samples=2)
    random = np.random.default_rng(4)
    for each in many:
        each.values[:] += 0.2 * random.random(each.values.shape) - 0.095 * (each.system != "base")
    report = summarise(many, ReportSettings(seed=5, permutations=400, baseline="base"))
    for system in ("b", "c"):
        raw = []
        for field in fields:
            mean = {
                name: np.mean([s.values[0] for s in many if (s.system, s.pool.setup.field) == (name, field)], axis=0)
                for name in ("base", system)
            }
            difference = (mean[system] - mean["base"])[None]
            raw.append(paired_permutation(difference, seed=5, item=field, permutations=400)[0])
        found = [report.find(system, field, 10 + i, "map") for i, field in enumerate(fields)]
        assert [each.p_value for each in found if each] == raw
        assert [each.p_adjusted for each in found if each] == holm(raw).tolist()
    assert any(0.05 < (each.p_value or 0) < 1 for each in report.summaries)
    assert all(each.p_value is None for each in report.summaries if each.system == "base" or each.field == AVERAGE)


def test_systems_on_other_samples_are_not_tested() -> None:
    many = [scored("a", {"map": [0.5, 0.1]}, sample=sample) for sample in (1, 2)]
    many.append(scored("b", {"map": [0.4, 0.2]}, sample=1))
    report = summarise(many, ReportSettings(baseline="a"))
    assert [each.p_value for each in report.summaries] == [None, None]


def test_measures_to_show() -> None:
    many = made_up(["a"], [(None, 10)], measures=["recall@30", "map", "mrr"])
    assert summarise(many, SETTINGS).measures == ("map", "recall@30", "mrr")
    chosen = summarise(many, SETTINGS, ["mrr", "map"])
    assert chosen.measures == ("mrr", "map")
    assert {each.measure for each in chosen.summaries} == {"map", "mrr", "recall@30"}
    with pytest.raises(InputError, match="ndcg was not scored"):
        summarise(many, SETTINGS, ["ndcg"])


def test_a_row_is_tested_against_the_baseline_of_its_depth() -> None:
    random = np.random.default_rng(3)
    rows = [("bm25 (depth 10)", 10), ("bm25 (depth 500)", 500), ("lsa (depth 500)", 500), ("x (depth 7)", 7)]
    many = [
        scored(label, {"map": random.random(20)}, identity={"system": label.split()[0], "depth": depth})
        for label, depth in rows
    ]
    report = summarise(many, ReportSettings(baseline="bm25"))
    assert report.baselines == {"lsa (depth 500)": "bm25 (depth 500)"}
    assert [each.system for each in report.summaries if each.p_value is not None] == ["lsa (depth 500)"]
    notes = " ".join(build_tables(report)[0].notes)
    assert "† differs from bm25 (depth 500)" in notes
    assert "Not tested against bm25: x (depth 7)" in notes
    assert summarise(many, ReportSettings(baseline="lsa (depth 500)")).baselines == {
        "bm25 (depth 500)": "lsa (depth 500)"
    }


def test_systems_are_sorted_by_their_mean_over_pools() -> None:
    many = made_up(["a", "b", "c"], [("Art", 10), ("Physics", 20)], samples=1)
    assert summarise(many, SETTINGS, sort="ndcg").systems == ("c", "b", "a")
    assert summarise(many, SETTINGS).systems == ("a", "b", "c")
    with pytest.raises(InputError, match="mrr was not scored"):
        summarise(many, SETTINGS, sort="mrr")


def test_notes_count_by_system() -> None:
    half = {"map": [0.5]}
    many = [
        scored("a", half, retrieved=100, tied_share=0.5, queries_without_results=2, depth=9),
        scored("a", half, size=9, retrieved=300, tied_share=0.1, queries_without_positive=4, depth=9, absent=7),
        scored(
            "b", half, size=9, retrieved=0, queries_without_positive=4, queries_without_results=1, depth=9, absent=7
        ),
    ]
    (table,) = build_tables(summarise(many, SETTINGS))
    notes = " ".join(table.notes)
    assert "tied score: a 20.0%, b 0.0%." in notes
    assert "scored 0: a 2, b 1. Queries without a positive, left out: 4." in notes
    assert "Positives that are not in the collection: 7, left out of denominators." in notes
    assert "the top 9 of each query" in notes


def test_what_cannot_be_summarised() -> None:
    with pytest.raises(InputError, match="no scores to report"):
        summarise([], SETTINGS)
    with pytest.raises(InputError, match=r"baseline must be one of BM25 on these pools, got 'bm2'"):
        summarise([scored("BM25", {"map": [1.0]})], ReportSettings(baseline="bm2"))
    two = [scored("a", {"map": [1.0]}), scored("a", {"map": [1.0, 0.0]}, sample=2)]
    with pytest.raises(InputError, match=r"s1 \(1 queries, 100 positives\) and .*s2 \(2 queries"):
        summarise(two, SETTINGS)
    two = [scored("a", {"map": [1.0]}), scored("b", {"map": [1.0]}, sample=2, positives=99)]
    with pytest.raises(InputError, match="other queries"):
        summarise(two, SETTINGS)


def test_families() -> None:
    small, large = Setup(None, 10), Setup(None, 20)
    art, physics, physics_large, other = (
        Setup("Art", 9),
        Setup("Physics", 10),
        Setup("Physics", 20),
        Setup("Zoology", 1),
    )
    assert families([large, small, large]) == (Family("sizes", (small, large)),)
    assert families([physics_large, physics]) == (Family("sizes", (physics, physics_large)),)
    assert families([other, physics, art, small]) == (
        Family("sizes", (small,)),
        Family("fields", (art, physics, other)),
    )
    assert families([art, physics, physics_large]) == (
        Family("sizes", (art,)),
        Family("sizes", (physics, physics_large)),
    )
    both = [Setup(field, size) for field in ("Art", "Physics") for size in (5, 6)]
    assert families([*both, physics]) == (
        Family("fields", (Setup("Art", 5), Setup("Physics", 5))),
        Family("fields", (Setup("Art", 6), Setup("Physics", 6))),
        Family("sizes", (physics,)),
    )
    assert Family("fields", (art, physics)).size is None
    assert Family("fields", (art,)).size == 9
