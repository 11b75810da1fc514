"""From published scores to what a table shows, and to a frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.report.aggregate import summarise
from pipeline.report.choice import Choice, choose
from pipeline.report.collect import frame, load
from pipeline.report.frame import SCHEMA
from pipeline.report.longcsv import records
from pipeline.report.model import ReportSettings
from tests.report import published as made
from tests.report.cases import scored
from tests.report.published import BAD, GOOD

MAP = [(1 + 2 / 3) / 2, 1 / 2, 0]
"""Average precision of the three queries of ``GOOD``."""


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return made.corpus(tmp_path)


def test_scores_become_records(tmp_path: Path, corpus: Artifact) -> None:
    pools = [made.pool(tmp_path, corpus, sample=each) for each in (1, 2)]
    for pool in pools:
        made.score(tmp_path, corpus, pool, "bm25", GOOD, k1=0.9, b=0.4)
        made.score(tmp_path, corpus, pool, "SciNCL", BAD)
    chosen = choose(tmp_path)
    found = records(summarise(load(chosen), ReportSettings(seed=3, resamples=200, baseline="bm25")))
    assert len(found) == 2 * 2 * (1 + 2)
    low, high = confidence_interval(bootstrap_means(np.array([MAP]), seed=3, resamples=200), np.array([MAP]))
    first = next(row for row in found if (row["system"], row["sample"], row["measure"]) == ("bm25", 2, "map"))
    expected = {
        "corpus": corpus.name,
        "pool": pools[1].name,
        "field": None,
        "year": 2019,
        "split": "test",
        "seed": 13,
        "size": 8,
        "depth": 500,
        "k1": 0.9,
        "value": pytest.approx(np.mean(MAP)),
        "low": pytest.approx(low[0]),
        "high": pytest.approx(high[0]),
        "p_value": None,
        "queries": 3,
        "positives": 4,
        "scores": [next(e for e in chosen if (e.system, e.pool) == ("bm25", pools[1])).scores[0].name],
    }
    assert {name: first[name] for name in expected} == expected
    mean = next(row for row in found if (row["system"], row["sample"], row["measure"]) == ("SciNCL", None, "map"))
    assert (mean["samples"], mean["baseline"], mean["deviation"]) == ([1, 2], "bm25", 0.0)
    assert mean["p_adjusted"] >= mean["p_value"] > 0
    assert mean["pools"] == [pool.name for pool in pools]


def test_a_frame_has_every_query_with_its_id(tmp_path: Path, corpus: Artifact) -> None:
    pool = made.pool(tmp_path, corpus)
    made.score(tmp_path, corpus, pool, "bm25", GOOD, "map", k1=0.9, b=0.4)
    made.score(tmp_path, corpus, pool, "bm25", GOOD, "map,ndcg", k1=0.9, b=0.4)
    made.score(tmp_path, corpus, pool, "x", BAD, "ndcg", search="exact", encoder=made.ENCODER)
    table = frame(choose(tmp_path))
    assert dict(table.schema) == SCHEMA
    assert len(table) == 3 * 3
    own = table.filter(system="bm25", measure="map")
    assert own["query_id"].to_list() == ["00000", "00001", "00002"]
    assert own["value"].to_list() == pytest.approx(MAP)
    assert own.select("field", "year", "split", "size", "seed", "sample", "queries", "depth", "k1", "b").row(0) == (
        None, 2019, "test", 8, 13, 1, 3, 500, 0.9, 0.4,
    )  # fmt: skip
    assert table.filter(system="x").select("precision", "engine", "revision").row(0) == ("float32", "exact", "a" * 40)
    gone = frame([dataclasses.replace(each, corpus=None) for each in choose(tmp_path)])
    assert gone["query_id"].null_count() == len(gone) == 9


def test_scores_of_one_ranking_are_one_row_with_all_measures(tmp_path: Path, corpus: Artifact) -> None:
    pool = made.pool(tmp_path, corpus)
    for measures in ("map,mrr", "recall@2,mrr", "ndcg"):
        made.score(tmp_path, corpus, pool, "bm25", GOOD, measures)
    made.score(tmp_path, corpus, pool, "other", GOOD, "map,ndcg,recall@2,mrr")
    merged, whole = load(choose(tmp_path))
    assert merged.measures == whole.measures == ("map", "ndcg", "recall@2", "mrr")
    assert merged.values.tobytes() == whole.values.tobytes()


def test_a_measure_deeper_than_its_ranking_is_not_shown(tmp_path: Path, corpus: Artifact) -> None:
    pool = made.pool(tmp_path, corpus)
    made.score(tmp_path, corpus, pool, "bm25", GOOD, "map,recall@20", depth=10)
    made.score(tmp_path, corpus, pool, "lsa", GOOD, "map,recall@20", depth=20)
    made.score(tmp_path, corpus, pool, "deep", GOOD, "recall@20", depth=10)
    assert [(each.name, each.measures) for each in load(choose(tmp_path))] == [
        ("bm25", ("map",)),
        ("lsa", ("map", "recall@20")),
    ]
    choose(tmp_path, Choice(measures=("recall@20",)))
    with pytest.raises(InputError, match=r"recall@20 was not scored .* --measures recall@20 --depth 20, or .* map"):
        choose(tmp_path, Choice(measures=("recall@20",), depth=10))


def test_an_interval_does_not_depend_on_what_else_is_reported() -> None:
    random = np.random.default_rng(0)
    many = [
        scored(f"s{n}", {"map": random.random(30)}, field=field, sample=1) for n in range(4) for field in ("Art", None)
    ]
    together = {(s.system, s.field): s for s in summarise(many, ReportSettings()).summaries}
    for each in many:
        assert summarise([each], ReportSettings()).summaries == (together[each.system, each.pool.setup.field],)


def test_what_is_gone_is_left_out(tmp_path: Path, corpus: Artifact, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="nothing that was scored is in"):
        choose(tmp_path)
    made.score(tmp_path, corpus, made.pool(tmp_path, corpus), "bm25")
    made.score(tmp_path, corpus, made.pool(tmp_path, corpus, seed=2), "bm25")
    kept, gone = choose(tmp_path)
    (gone.pool.path / "manifest.json").write_text("{}")
    assert [each.pool.id for each in choose(tmp_path)] == [kept.pool.id]
    said = capsys.readouterr().err
    assert f"left out: {gone.scores[0].name}, because {gone.pool.path / 'manifest.json'} is damaged" in said
    gone.pool.path.rename(tmp_path / "gone")
    assert [each.pool.id for each in choose(tmp_path)] == [kept.pool.id]
    assert f"has no artifact {gone.pool.id[:12]} any more" in capsys.readouterr().err


def test_what_cannot_stand_in_one_table(tmp_path: Path, corpus: Artifact) -> None:
    with pytest.raises(InputError, match="no scores to report"):
        load([])
    for seed, sample in ((1, 1), (2, 2)):
        made.score(tmp_path, corpus, made.pool(tmp_path, corpus, seed=seed, sample=sample), "bm25")
    elsewhere = made.corpus(tmp_path, "other", 9)
    made.score(tmp_path, elsewhere, made.pool(tmp_path, elsewhere), "bm25")
    found = {each.pool.manifest.config["seed"]: each for each in choose(tmp_path)}
    with pytest.raises(InputError, match=r"other settings \(seed: 1 -> 2\)"):
        load([found[1], found[2]])
    with pytest.raises(InputError, match="pools of two corpora"):
        load([found[1], found[13]])
    twin = dataclasses.replace(found[1].pool, path=tmp_path / "twin", manifest=found[1].pool.manifest)
    twin = dataclasses.replace(twin, manifest=dataclasses.replace(twin.manifest, id="0" * 64))
    with pytest.raises(InputError, match="are both sample 1"):
        load([found[1], dataclasses.replace(found[1], pool=twin)])


@pytest.mark.parametrize("kept", [[], [0, 1, 2], range(1, 6), [0, *range(6)], [0, 0, *range(2, 6)]])
def test_a_table_with_holes_or_doubles_is_refused(tmp_path: Path, corpus: Artifact, kept: Sequence[int]) -> None:
    whole = made.score(tmp_path, corpus, made.pool(tmp_path, corpus), "bm25")
    part = whole.arrow("scores.arrow").take(pa.array(kept, pa.int64()))

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        out.arrow("scores.arrow", part, SCORES)
        out.note(corpus=corpus.name)
        return whole.manifest.counts

    config = {**whole.manifest.config, "system": "holed"}
    task = Task("score", 9, "runs/scores", "x", config, {}, write)
    (chosen,) = choose(tmp_path)
    holed = Runner(tmp_path, Resources()).make(task)
    with pytest.raises(CorruptError, match="one value for each query and measure"):
        load([dataclasses.replace(chosen, scores=(holed,))])
