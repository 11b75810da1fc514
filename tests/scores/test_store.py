"""From published scores to frames."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
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
from pipeline.measure.design import Draws
from pipeline.measure.measures import MEASURES
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.scores.choose import choose, load
from pipeline.scores.facts import artifact_of
from pipeline.scores.frames import RUNS, SCORES_SCHEMA, load_runs
from pipeline.scores.labels import labelled
from pipeline.scores.layout import build_tables
from pipeline.scores.store import scores_of, stored
from pipeline.scores.summary import exported, summarise, summarise_samples
from tests.scores import published as made
from tests.scores.published import BAD, GOOD
from tests.stages.making import flip

Spoil = Callable[[Artifact, pytest.MonkeyPatch], None]

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
    scores, draws = load(tmp_path), Draws(seed=3, resamples=200)
    found = exported(
        pl.concat(
            [summarise(scores, baseline="bm25", draws=draws), summarise_samples(scores, load_runs(scores), draws)]
        )
    ).rows(named=True)
    assert len(found) == 2 * 2 * (1 + 2)
    low, high = confidence_interval(bootstrap_means(np.array([MAP]), seed=3, resamples=200), np.array([MAP]))
    first = next(row for row in found if (row["system"], row["sample"], row["measure"]) == ("bm25", 2, "map"))
    expected = {
        "corpus": corpus.name,
        "pool": pools[1].name,
        "size": 8,
        "k1": 0.9,
        "value": pytest.approx(np.mean(MAP)),
        "low": pytest.approx(low[0]),
        "high": pytest.approx(high[0]),
        "p_value": None,
        "positives": 4,
        "scores": scores.filter(system="bm25", pool=pools[1].name)["scores"][0].to_list(),
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
    table = load(tmp_path)
    assert dict(table.schema) == SCORES_SCHEMA
    assert len(table) == 3 * 3
    own = table.filter(system="bm25", measure="map")
    assert own["query_id"].to_list() == ["00000", "00001", "00002"]
    assert own["value"].to_list() == pytest.approx(MAP)
    assert own.select("field", "year", "split", "size", "seed", "sample", "queries", "depth", "k1", "b").row(0) == (
        None, 2019, "test", 8, 13, 1, 3, 500, 0.9, 0.4,
    )  # fmt: skip
    assert table.filter(system="x").select("precision", "engine", "revision").row(0) == ("float32", "exact", "a" * 40)
    corpus.path.rename(tmp_path / "gone")
    gone = load(tmp_path)
    assert gone["query_id"].null_count() == len(gone) == 9


def test_scores_of_one_ranking_are_one_row_with_all_measures(tmp_path: Path, corpus: Artifact) -> None:
    pool = made.pool(tmp_path, corpus)
    for measures in ("map,mrr", "recall@2,mrr", "ndcg"):
        made.score(tmp_path, corpus, pool, "bm25", GOOD, measures)
    made.score(tmp_path, corpus, pool, "other", GOOD, "map,ndcg,recall@2,mrr")
    runs = stored(tmp_path).sort("system")
    assert dict(runs.schema) == RUNS
    assert runs["measures"].to_list() == [["map", "ndcg", "recall@2", "mrr"]] * 2
    one, other = (scores_of(runs.filter(system=name)).sort("measure", "query")["value"] for name in ("bm25", "other"))
    assert one.to_list() == other.to_list()


def test_a_measure_deeper_than_its_ranking_is_not_shown(tmp_path: Path, corpus: Artifact) -> None:
    pool = made.pool(tmp_path, corpus)
    made.score(tmp_path, corpus, pool, "bm25", GOOD, "map,recall@20", depth=10)
    made.score(tmp_path, corpus, pool, "lsa", GOOD, "map,recall@20", depth=20)
    made.score(tmp_path, corpus, pool, "deep", GOOD, "recall@20", depth=10)
    runs = choose(stored(tmp_path), tmp_path)
    assert runs.select("system", "measures").rows() == [("bm25", ["map"]), ("lsa", ["map", "recall@20"])]
    choose(runs, tmp_path, measures=("recall@20",))
    with pytest.raises(InputError, match=r"recall@20 was not scored .* --measures recall@20 --depth 20"):
        choose(runs, tmp_path, measures=("recall@20",), depth=10)


def test_what_is_gone_is_left_out(tmp_path: Path, corpus: Artifact, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="nothing that was scored is in"):
        load(tmp_path)
    for seed in (13, 2):
        made.score(tmp_path, corpus, made.pool(tmp_path, corpus, seed=seed), "bm25")
    run = stored(tmp_path).filter(seed=2).row(0, named=True)
    gone = artifact_of(run, "pool")
    (gone.path / "manifest.json").write_text("{}")
    assert stored(tmp_path)["seed"].to_list() == [13]
    said = capsys.readouterr().err
    assert f"{run['scores'][0]}, because {gone.path / 'manifest.json'} is damaged" in said
    gone.path.rename(tmp_path / "gone")
    assert stored(tmp_path)["seed"].to_list() == [13]
    assert f"has no artifact {gone.id[:12]} any more" in capsys.readouterr().err


def unknown_measure(scores: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MEASURES, "mine")


def no_query(scores: Artifact, _: pytest.MonkeyPatch) -> None:
    dataclasses.replace(scores.manifest, counts={**scores.manifest.counts, "queries": 0}).write(scores.path)


def other_schema(scores: Artifact, _: pytest.MonkeyPatch) -> None:
    dataclasses.replace(scores.manifest, schema=2).write(scores.path)


def flipped(scores: Artifact, _: pytest.MonkeyPatch) -> None:
    flip(scores.path / "scores.arrow")


@pytest.mark.parametrize("spoil", [unknown_measure, no_query, other_schema, flipped])
def test_scores_that_cannot_be_read_are_left_out_with_a_line(
    tmp_path: Path, corpus: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil: Spoil
) -> None:
    monkeypatch.setitem(MEASURES, "mine", dataclasses.replace(MEASURES["map"], name="mine", aliases=()))
    pool = made.pool(tmp_path, corpus)
    made.score(tmp_path, corpus, pool, "lsa")
    spoiled = made.score(tmp_path, corpus, pool, "bm25", measures="mine")
    assert set(load(tmp_path)["system"]) == {"lsa", "bm25"}
    spoil(spoiled, monkeypatch)
    assert set(load(tmp_path)["system"]) == {"lsa"}
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert spoiled.name in line
    assert any(remedy in line for remedy in ("emove", "--repair"))


def test_what_cannot_stand_in_one_table(tmp_path: Path, corpus: Artifact) -> None:
    for seed, sample in ((1, 1), (2, 2)):
        made.score(tmp_path, corpus, made.pool(tmp_path, corpus, seed=seed, sample=sample), "bm25")
    runs = stored(tmp_path).sort("seed")
    assert labelled(runs)["kind"].n_unique() == 2
    with pytest.raises(InputError, match=r"one field and size, but \(seed: 1 -> 2\)"):
        labelled(runs, together=True)
    twin = runs.filter(seed=1).with_columns(pl.lit("twin").alias("pool"))
    assert labelled(pl.concat([runs.filter(seed=1), twin]))["kind"].n_unique() == 2


def test_pools_smaller_than_asked_are_grouped_by_what_was_asked(tmp_path: Path, corpus: Artifact) -> None:
    for size, sample in itertools.product((20, 30), (1, 2)):
        pool = made.pool(tmp_path, corpus, size=size, sample=sample, candidates=6 + sample)
        made.score(tmp_path, corpus, pool, "bm25")
    runs = labelled(stored(tmp_path))
    assert set(runs["size"]) == {8}
    asked = runs.group_by("kind").agg(pl.col("size_asked").unique(), pl.len())
    assert sorted(asked.drop("kind").rows()) == [([20], 2), ([30], 2)]
    summary = summarise(scores_of(runs))
    assert sorted(summary.filter(measure="map")["samples"].to_list()) == [[1, 2], [1, 2]]
    titles = [table.title for table in build_tables(summary, runs)]
    assert [sum(f"of {size} candidates asked for" in title for title in titles) for size in (20, 30)] == [1, 1]


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
    runs = stored(tmp_path)
    holed = Runner(tmp_path, Resources()).make(task)
    runs = runs.with_columns(pl.Series("score_paths", [[str(holed.path)]]))
    with pytest.raises(CorruptError, match="one value for each query and measure"):
        scores_of(runs)


def test_of_rankings_with_equal_settings_the_newest_counts(tmp_path: Path, corpus: Artifact) -> None:
    """A fusion is ranked again where a stage of one of its parts has a new version; its settings are the same."""
    made.score(tmp_path, corpus, made.pool(tmp_path, corpus), "rrf(bm25,lsa)", GOOD)
    runs = stored(tmp_path)
    again = runs.with_columns(pl.col("published") + 1, ranking=pl.lit("again-") + pl.col("ranking"))
    for both in (pl.concat([runs, again]), pl.concat([again, runs])):
        assert set(choose(both, tmp_path)["ranking"]) == set(again["ranking"])
