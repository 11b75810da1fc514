"""From published scores to rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.measure.statistics import bootstrap_means, percentile_interval
from pipeline.report.aggregate import summarise
from pipeline.report.collect import load, rows
from pipeline.report.model import ReportSettings
from pipeline.runner import Runner
from pipeline.stages.score import score_task
from tests.builders import make_corpus, make_pool
from tests.measure.cases import Run
from tests.report.cases import scored
from tests.stages.test_score import ranking_task

GOOD: Run = [{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}]
BAD: Run = [{4: 2.0}, {6: 1.0, 3: 0.5}, {7: 1.0}]


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return make_corpus(tmp_path, 8, [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")])


def score(root: Path, corpus: Artifact, pool: Artifact, system: str, run: Run, measures: str = "map,ndcg") -> Artifact:
    sample = pool.manifest.config["sample"]
    task = score_task(
        ranking_task(run, 3), pool, corpus, system=system, sample=sample, measures=tuple(measures.split(","))
    )
    return Runner(root, Resources(workers=1)).make(task)


def test_scores_become_rows(tmp_path: Path, corpus: Artifact) -> None:
    pools = [make_pool(tmp_path, corpus, [0, 1, 2], sample=each) for each in (1, 2)]
    scores = [
        score(tmp_path, corpus, pool, system, run)
        for pool in pools
        for system, run in (("BM25", GOOD), ("SciNCL", BAD))
    ]
    settings = ReportSettings(seed=3, resamples=200)
    found = rows(load(scores, pools), settings)
    assert len(found) == 8
    printed = json.loads(json.dumps(found))
    assert list(printed[0]) == [
        "system", "pool", "field", "size", "sample", "measure", "value", "low", "high", "queries", "positives",
    ]  # fmt: skip
    values = np.array([[(1 + 2 / 3) / 2, 1 / 2, 0]])
    low, high = percentile_interval(bootstrap_means(values, seed=3, resamples=200))
    assert printed[0] == {
        "system": "BM25",
        "pool": pools[0].name,
        "field": None,
        "size": 8,
        "sample": 1,
        "measure": "map",
        "value": pytest.approx(values.mean()),
        "low": pytest.approx(low[0]),
        "high": pytest.approx(high[0]),
        "queries": 3,
        "positives": 4,
    }
    assert [(row["system"], row["sample"], row["measure"]) for row in found[2:5]] == [
        ("SciNCL", 1, "map"),
        ("SciNCL", 1, "ndcg"),
        ("BM25", 2, "map"),
    ]


def test_scores_of_one_ranking_are_one_row_with_all_measures(tmp_path: Path, corpus: Artifact) -> None:
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1)
    parts = [score(tmp_path, corpus, pool, "BM25", GOOD, measures) for measures in ("map,mrr", "recall@2,mrr", "ndcg")]
    (whole,), (merged,) = (
        load([score(tmp_path, corpus, pool, "BM25", GOOD, "map,ndcg,recall@2,mrr")], [pool]),
        load(parts, [pool]),
    )
    assert merged.measures == whole.measures == ("map", "ndcg", "recall@2", "mrr")
    assert merged.values.tobytes() == whole.values.tobytes()


def test_an_interval_does_not_depend_on_what_else_is_reported() -> None:
    random = np.random.default_rng(0)
    many = [
        scored(f"s{n}", {"map": random.random(30)}, field=field, sample=sample)
        for n in range(4)
        for field in ("Art", None)
        for sample in (1, 2)
    ]
    together = rows(many, ReportSettings())
    assert [rows([each], ReportSettings())[0] for each in many] == together


def test_one_sample_has_the_same_interval_in_rows_and_in_summaries() -> None:
    alone = [scored("a", {"map": np.random.default_rng(1).random(30)}, field="Art")]
    (row,), (summary,) = rows(alone, ReportSettings()), summarise(alone, ReportSettings()).summaries
    assert (row["value"], row["low"], row["high"]) == (summary.value, summary.low, summary.high)


def test_field_and_size_come_from_the_pool(tmp_path: Path, corpus: Artifact) -> None:
    pool = make_pool(tmp_path, corpus, [0, 1, 2], [0, 3, 4, 5, 6, 7], sample=1)
    manifest = dataclasses.replace(pool.manifest, config={**pool.manifest.config, "field": "Art", "seed": 7})
    named = dataclasses.replace(pool, manifest=manifest)
    (loaded,) = load([score(tmp_path, corpus, pool, "BM25", [{}, {}, {}])], [named])
    assert loaded.pool.setup == ("Art", 6)
    assert loaded.pool.settings["seed"] == 7
    assert loaded.corpus == corpus.name
    assert summarise([loaded], ReportSettings()).pool_seeds == (7,)


def test_what_cannot_stand_in_one_report(tmp_path: Path, corpus: Artifact) -> None:
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1, seed=1)
    other = make_pool(tmp_path, corpus, [0, 1, 2], sample=2, seed=2)
    first = score(tmp_path, corpus, pool, "BM25", GOOD)
    with pytest.raises(InputError, match="no scores to report"):
        load([], [pool])
    with pytest.raises(InputError, match=f"the pool {pool.name} of .* is gone"):
        load([first], [other])
    with pytest.raises(InputError, match=f"BM25 was scored 2 times on {pool.name}"):
        load([first, score(tmp_path, corpus, pool, "BM25", BAD)], [pool])
    with pytest.raises(InputError, match=r"other settings \(seed: 1 -> 2\)"):
        load([first, score(tmp_path, corpus, other, "BM25", GOOD)], [pool, other])
    elsewhere = make_corpus(tmp_path, 8, [("00000", "00003"), ("00001", "00004"), ("00002", "00007")], name="other")
    third = make_pool(tmp_path, elsewhere, [0, 1, 2], sample=3, seed=1)
    with pytest.raises(InputError, match="pools of two corpora"):
        load([first, score(tmp_path, elsewhere, third, "BM25", [{}, {}, {}])], [pool, third])


def test_two_pools_of_one_sample(tmp_path: Path, corpus: Artifact) -> None:
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1)
    twin = make_pool(tmp_path, corpus, [0, 1, 2], sample=1, slug="twin")
    scores = [score(tmp_path, corpus, pool, "BM25", GOOD), score(tmp_path, corpus, twin, "SciNCL", BAD)]
    with pytest.raises(InputError, match="are both sample 1"):
        load(scores, [pool, twin])


@pytest.mark.parametrize("kept", [[], [0, 1, 2], range(1, 6), [0, *range(6)], [0, 0, *range(2, 6)]])
def test_a_table_with_holes_or_doubles_is_refused(tmp_path: Path, corpus: Artifact, kept: Sequence[int]) -> None:
    pool = make_pool(tmp_path, corpus, [0, 1, 2], sample=1)
    whole = score(tmp_path, corpus, pool, "BM25", GOOD)
    part = whole.arrow("scores.arrow").take(pa.array(kept, pa.int64()))

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        out.arrow("scores.arrow", part, SCORES)
        return whole.manifest.counts

    holed = Runner(tmp_path, Resources()).make(Task("score", 9, "runs/scores", "x", whole.manifest.config, {}, write))
    with pytest.raises(CorruptError, match="one value for each query and measure"):
        load([holed], [pool])
