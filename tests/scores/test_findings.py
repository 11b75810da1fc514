"""What a page says that it shows, beside the figures and tests that it is made from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.measure.design import Draws
from pipeline.measure.estimates import smallest_shown
from pipeline.scores.average import AVERAGE
from pipeline.scores.compare import compare
from pipeline.scores.findings import findings, headline
from pipeline.scores.frames import load_runs
from pipeline.scores.sources import as_training
from pipeline.scores.summary import summarise
from tests.scores.cases import scored

DRAWS = Draws(seed=5, resamples=300, permutations=2000)
RANDOM = np.random.default_rng(3)
BASE = RANDOM.uniform(0.3, 0.6, 120)
CHANGES = {
    "up": RANDOM.normal(0.05, 0.05, 120),
    "down": RANDOM.normal(-0.04, 0.05, 120),
    "same": RANDOM.normal(0.0, 0.05, 120),
}

SCINCL = [{"model": "scincl", "role": "paper", "training": as_training({"scincl": ("citations: s2", 2020)})}]


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
    first, shown = found(scores)
    (best,) = summary.filter(measure="map", label="up").rows(named=True)
    figure = f"{100 * best['value']:.1f} [{100 * best['low']:.1f}, {100 * best['high']:.1f}]"
    place = "(dataset level, 200k candidates, 120 queries)"
    assert first == f"up has MAP {figure} {place}, the highest of 4 systems."
    texts = {}
    for row in summary.filter(pl.col("p_value").is_not_null(), measure="map").rows(named=True):
        (change,) = compare(scores, "bm25", row["label"], ["map"], DRAWS).rows(named=True)
        interval = f"{100 * change['difference']:+.1f} [{100 * change['low']:+.1f}, {100 * change['high']:+.1f}]"
        texts[row["label"]] = f"{row['label']} ({interval}, p {row['p_adjusted']:.2g}"
        assert row["marked"] == (row["label"] != "same")
    (same,) = compare(scores, "bm25", "same", ["map"], DRAWS).rows(named=True)
    detectable = 100 * smallest_shown(same["error"], 0.05)
    assert same["detectable"] == pytest.approx(detectable / 100)
    assert shown == (
        f"By the paired test, in points, better than bm25: {texts['up']}); worse than bm25: {texts['down']}); "
        f"no difference from bm25 is shown for: {texts['same']}, detectable {detectable:.1f})."
    )


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
    assert re.search(r"no difference from bm25 is shown for: same \(.*, test and interval disagree", sentences[1])


def test_fields_count_one_by_one_and_in_their_mean() -> None:
    scores = pl.concat([frame(field="Art"), frame(field="Biology").filter(pl.col("label") != "down")])
    sentences = found(scores)
    assert headline(summarise(scores, baseline="bm25", draws=DRAWS))["field"].unique().to_list() == [AVERAGE]
    assert sentences[0].startswith("up has MAP")
    assert "(mean over fields, 200k candidates, 240 queries), the highest of 3 systems" in sentences[0]
    assert "down" not in "".join(sentences), "it has no mean over fields"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"encoders": SCINCL, "year": 2019}, "citations of the queries of 2019: bm25 (to 2020)"),
        ({"encoders": SCINCL, "year": 2099}, ""),
        ({"name": "minilm", "year": 2019}, ""),
    ],
)  # fmt: skip
def test_limits(facts: dict[str, Any], said: str) -> None:
    scores = scored(
        facts.get("name", "bm25"), {"map": BASE.tolist()}, **{k: v for k, v in facts.items() if k != "name"}
    )
    first, *limits = found(scores, None)
    assert first.startswith(facts.get("name", "bm25"))
    assert re.fullmatch(f"Limits: .*{re.escape(said)}.*" if said else "", "".join(limits))
