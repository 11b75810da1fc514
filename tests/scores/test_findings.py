"""What a page says that it shows, beside the figures and tests that it is made from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.measure.estimates import smallest_shown
from pipeline.scores.average import AVERAGE, Draws
from pipeline.scores.compare import compare
from pipeline.scores.findings import findings, findings_of_pair, findings_of_tables, headline
from pipeline.scores.frames import load_runs
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Cell, Column, Table, TableRow
from tests.scores.cases import scored

DRAWS = Draws(seed=5, resamples=300, permutations=2000)
RANDOM = np.random.default_rng(3)
BASE = RANDOM.uniform(0.3, 0.6, 120)
CHANGES = {
    "up": RANDOM.normal(0.05, 0.05, 120),
    "down": RANDOM.normal(-0.04, 0.05, 120),
    "same": RANDOM.normal(0.0, 0.05, 120),
}


def frame(**facts: Any) -> pl.DataFrame:
    """Scores of a baseline, a better, a worse and an equal system by two measures; NDCG falls where MAP rises."""
    changes = {"bm25": np.zeros(120), **CHANGES}
    return pl.concat([
        scored(name, {"map": (BASE + change).tolist(), "ndcg": (0.9 - BASE - change).tolist()}, **facts)
        for name, change in changes.items()
    ])  # fmt: skip


def found(scores: pl.DataFrame, baseline: str | None = "bm25", draws: Draws = DRAWS) -> tuple[str, ...]:
    return findings(summarise(scores, baseline=baseline, draws=draws), load_runs(scores))


def test_each_conclusion_is_that_of_the_test_with_its_interval() -> None:
    scores = frame()
    summary = summarise(scores, baseline="bm25", draws=DRAWS)
    first, shown, unknown, limits = found(scores)
    (best,) = summary.filter(measure="map", label="up").rows(named=True)
    figure = f"{100 * best['value']:.1f} [{100 * best['low']:.1f}, {100 * best['high']:.1f}]"
    place = "(dataset level, 200k candidates, 120 queries)"
    assert first == f"up has MAP {figure} {place}, the highest of 4 systems, by NDCG it is down."
    texts = {}
    for row in summary.filter(pl.col("p_value").is_not_null(), measure="map").rows(named=True):
        (change,) = compare(scores, "bm25", row["label"], ["map"], DRAWS).rows(named=True)
        interval = f"{100 * change['difference']:+.1f} [{100 * change['low']:+.1f}, {100 * change['high']:+.1f}]"
        texts[row["label"]] = f"{row['label']} ({interval}, p {row['p_adjusted']:.2g}"
        assert row["marked"] == (row["label"] != "same")
    assert shown == (
        f"By the paired test, better than bm25: {texts['up']}); worse than bm25: {texts['down']}); "
        "differences are in points."
    )
    (same,) = compare(scores, "bm25", "same", ["map"], DRAWS).rows(named=True)
    detectable = 100 * smallest_shown(same["error"], 0.05)
    assert same["detectable"] == pytest.approx(detectable / 100)
    assert unknown == (
        f"No difference from bm25 is shown for {texts['same']}, detectable {detectable:.1f}); detectable is the "
        "difference that these queries show with power 0.8."
    )
    assert limits == f"Limits: 120 queries give MAP to ± {50 * (best['high'] - best['low']):.1f} points."


def test_where_test_and_interval_disagree_it_says_so() -> None:
    """Holm's correction over pools takes a conclusion back, not the interval of one pool."""
    scores = pl.concat([frame(size=size) for size in (1_000, 2_000, 3_000)])
    shift = 2.2 * CHANGES["same"].std(ddof=1) / 120**0.5 - CHANGES["same"].mean()
    near = scores.filter(label="same").with_columns(pl.col("value") + pl.when(measure="map").then(shift).otherwise(0))
    scores = pl.concat([scores.filter(label="bm25"), near])
    row = headline(summarise(scores, baseline="bm25", draws=DRAWS)).filter(label="same").row(0, named=True)
    (change,) = compare(scores.filter(size=3_000), "bm25", "same", ["map"], DRAWS).rows(named=True)
    assert change["p_value"] < 0.05 < row["p_adjusted"]
    assert not change["low"] <= 0 <= change["high"]
    sentences = found(scores)
    assert re.search(
        r"No difference from bm25 is shown for same \(.*, test and interval disagree, detectable", sentences[1]
    )
    assert "Over the 3 pool sizes, MAP of same goes from" in sentences[2]
    assert sentences[2].endswith("; against bm25: no difference shown at 1k, 2k, 3k.")


def test_equivalent_within_the_margin_is_not_called_no_difference() -> None:
    sentences = found(frame(), draws=Draws(seed=5, resamples=300, permutations=2000, margin=3.0))
    assert any(re.match(r"Equivalent to bm25 within 3 points: same \(", sentence) for sentence in sentences)
    assert not any("No difference" in sentence for sentence in sentences)


def test_fields_count_one_by_one_and_in_their_mean() -> None:
    scores = pl.concat([frame(field="Art"), frame(field="Biology").filter(pl.col("label") != "down")])
    sentences = found(scores)
    assert headline(summarise(scores, baseline="bm25", draws=DRAWS))["field"].unique().to_list() == [AVERAGE]
    assert sentences[0].startswith("up has MAP")
    assert "(mean over fields, 200k candidates, 240 queries), the highest of 4 systems" in sentences[0]
    assert "; against bm25: better in Art, Biology." in sentences[-2]
    assert "down" not in "".join(sentences[:-2]).replace("by NDCG it is down", ""), "it has no mean over fields"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"k1": 4.0, "also": ["bm25:tuned"]}, "was tuned to the edge of the grid (k1=4)"),
        ({"k1": 3.5, "also": ["bm25:tuned"]}, ""),
        ({"k1": 4.0}, ""),
        ({"positives_not_in_collection": 7}, "7 positives are not in the collection"),
        (
            {"positives_papers": 50, "positives_without_abstract": 10,
             "negatives_papers": 200, "negatives_without_abstract": 1},
            "20.0% of the positives and 0.5% of the negatives have no abstract",
        ),
        (
            {"name": "scincl", "year": 2019},
            "training data may hold the citations of the queries of 2019: scincl (to ",
        ),
        ({"name": "scincl", "year": 2099}, ""),
    ],
)  # fmt: skip
def test_limits(facts: dict[str, Any], said: str) -> None:
    scores = scored(
        facts.get("name", "bm25"), {"map": BASE.tolist()}, **{k: v for k, v in facts.items() if k != "name"}
    )
    *_, alone, limits = found(scores, None)
    assert alone == "One system: there is nothing to test it against."
    expected = r"Limits: 120 queries give MAP to ± [\d.]+ points" + (f"; .*{re.escape(said)}.*" if said else r"\.")
    assert re.fullmatch(expected, limits)


def test_few_queries() -> None:
    scores = frame().filter(pl.col("query") < 5).with_columns(queries=pl.lit(5, pl.Int64))
    assert "5 queries are few; so few queries that no test can show a difference" in found(scores)[-1]


@pytest.mark.parametrize("pair", [("bm25", "up"), ("up", "bm25"), ("bm25", "same")])
def test_a_pair(pair: tuple[str, str]) -> None:
    scores = pl.concat([frame(size=size) for size in (1_000, 2_000)])
    differences = compare(scores, *pair, draws=DRAWS)
    first, counts, pools, others, limits = findings_of_pair(differences, load_runs(scores))
    row = differences.filter(measure="map", size=2_000).row(0, named=True)
    conclusion = {"better": f"{pair[1]} is better.", "worse": f"{pair[0]} is better."}.get(
        row["finding"], f"no difference is shown (detectable {100 * row['detectable']:.1f})."
    )
    assert first.endswith(f"{100 * row['high']:+.1f}] points, p {row['p_adjusted']:.2g}: {conclusion}")
    assert f"better on {row['wins']} queries, the same on {row['ties']}, worse on {row['losses']}." in counts
    assert pools == f"On 2 pools: {row['finding']} on 2."
    ndcg = differences.filter(measure="ndcg", size=2_000).row(0, named=True)
    ndcg_figure = f" ({100 * ndcg['difference']:+.1f} [{100 * ndcg['low']:+.1f}, {100 * ndcg['high']:+.1f}])"
    figure = "" if ndcg["finding"] == "no difference shown" else ndcg_figure
    assert others == f"By the other measures, {pair[1]} against {pair[0]}: {ndcg['finding']} by NDCG{figure}."
    assert f"give the difference to ± {50 * (row['high'] - row['low']):.1f} points" in limits


def table(*rows: tuple[str, Any, Any]) -> Table:
    columns = (Column("1k", "MAP"), Column("", "count"))
    return Table("Tables (some)", "", columns, tuple(TableRow(label, tuple(values)) for label, *values in rows), ())


def test_tables_without_a_summary() -> None:
    best, marked = Cell(0.5, best=True), Cell(0.25, marks="†")
    assert findings_of_tables([table(("a", best, "x"), ("b", marked, "y"))]) == (
        "Tables: a has the best of 1 of 1 comparisons, such as 1k MAP: 50.0.",
        "1 of 2 figures differ from the baseline by their test (†).",
        "Tables, 1k MAP: from 25.0† (b) to 50.0 (a).",
    )
    assert findings_of_tables([table(("a", "0.2 [0.1, 0.3]", "1,200"), ("b", "-0.7", "9"), ("c", "0.1", None))]) == (
        "Tables, 1k MAP: from -0.7 (b) to 0.2 [0.1, 0.3] (a).",
        "Tables, count: from 9 (b) to 1,200 (a).",
        "No test stands behind these figures.",
    )
    assert findings_of_tables([table(("a", "2019-04-01", "x"), ("b", "2s", "y"))]) == ()
