"""Stage ``score``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING, SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.measure.engines import ENGINES
from pipeline.measure.measures import DEFAULT
from pipeline.sources.beir import Beir
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from pipeline.stages.score import score_task, score_tasks
from tests.builders import make_corpus, make_pool
from tests.measure.cases import Run, ranking_table
from tests.stages.making import make


def ranking_task(run: Run, queries: int) -> Task:
    table = ranking_table(run)

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        out.arrow("ranking.arrow", table, RANKING)
        return {"queries": queries, "entries": table.num_rows}

    return Task("rank", 1, RANKINGS, "bm25", {"content": repr(table.to_pydict())}, {}, write)


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return make_corpus(tmp_path, 8, [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")])


def make_score(root: Path, corpus: Artifact, run: Run, *, ran: int = 3, **pool: Any) -> Artifact:
    """Score a run of the papers 0, 1 and 2."""
    opened = make_pool(root, corpus, [0, 1, 2], **{"sample": 2, **pool})
    measures = ("r@30", "map", "ndcg")
    return make(root, score_task(ranking_task(run, ran), opened, corpus, system="My BM25", measures=measures))


def test_a_pool_without_a_positive_is_refused(tmp_path: Path) -> None:
    of = make_corpus(tmp_path, 8, [("00006", "00007")])
    with pytest.raises(InputError, match=r"got none of . queries\. Compare the ids of its qrels"):
        make_score(tmp_path, of, [{5: 3.0}, {6: 1.0}, {}])


def test_one_row_for_each_query_and_measure(tmp_path: Path, corpus: Artifact) -> None:
    scores = make_score(tmp_path, corpus, [{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}])
    table = scores.arrow("scores.arrow")
    assert table.schema == SCORES
    assert set(table.column("system").to_pylist()) == {"My BM25"}
    assert set(table.column("pool").to_pylist()) == {make_pool(tmp_path, corpus, [0, 1, 2], sample=2).name}
    assert set(table.column("sample").to_pylist()) == {2}
    assert table.column("measure").to_pylist() == ["map"] * 3 + ["ndcg"] * 3 + ["recall@30"] * 3
    assert table.column("query").to_pylist() == [0, 1, 2] * 3
    both = 1 + 1 / np.log2(3)
    expected = [(1 + 2 / 3) / 2, 1 / 2, 0, 1.5 / both, 1 / np.log2(3), 0, 1, 1, 0]
    assert table.column("value").to_pylist() == pytest.approx(expected)
    assert scores.manifest.counts == {
        "queries": 3,
        "queries_without_positive": 0,
        "queries_without_results": 1,
        "positives": 4,
        "positives_not_in_collection": 0,
        "retrieved": 5,
        "depth": 3,
        "tied_share": 2 / 5,
    }
    assert scores.manifest.provenance["corpus"] == corpus.name
    assert scores.name.startswith("my-bm25-pool-")


def test_spelling_and_order_of_measures_are_no_identity(corpus: Artifact, tmp_path: Path) -> None:
    pool, ranking = make_pool(tmp_path, corpus, [0]), ranking_task([{}], 1)
    first, second, third = (
        score_task(ranking, pool, corpus, system="x", measures=measures)
        for measures in (("map", "recall@30"), ("R@30", "MAP", "map"), ("map",))
    )
    assert first.id == second.id != third.id


def test_the_default_measures_are_one_artifact_and_each_further_one_is_its_own(
    corpus: Artifact, tmp_path: Path
) -> None:
    pool, ranking = make_pool(tmp_path, corpus, [0]), ranking_task([{}], 1)

    def tasks(depth: int, *measures: str) -> list[tuple[str, tuple[str, ...]]]:
        made = score_tasks(ranking, pool, corpus, system="x", depth=depth, measures=measures, engine="numpy")
        return [(task.id, task.config.measures) for task in made]

    default, *further = tasks(500, "F1", "map", "recall@50")
    assert default[1] == tuple(map(str, DEFAULT))
    assert [measures for _, measures in further] == [("recall@50",), ("f1",)]
    assert tasks(500) == [default]
    assert tasks(500, "r@50", "r@30") == [default, further[0]]
    ((_, shallow),) = tasks(10)
    assert {*default[1]} - {*shallow} == {"recall@20", "recall@30", "recall@100"}
    with pytest.raises(InputError, match=r"recall@30 needs --depth[ =]30, got 10\."):
        tasks(10, "recall@30")


GRADES = [{"d1": 1, "d4": 2, "gone1": 3}, {"d2": 1, "d3": 0, "gone1": 0}, {"gone1": 1, "gone2": 2}, {"d0": 1}]
RANKED: Run = [{0: 3.0, 1: 2.0, 5: 1.0}, {2: 1.0, 0: 0.5}, {3: 1.0}, {}]


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Artifact, Artifact]:
    """A BEIR release whose judgements name documents that it lacks: corpus and pool."""
    (tmp_path / "beir/qrels").mkdir(parents=True)
    for name, records in {
        "corpus": [{"_id": f"d{number}", "title": "t", "text": f"x{number}"} for number in range(6)],
        "queries": [{"_id": f"q{number}", "text": "a"} for number in range(4)],
    }.items():
        (tmp_path / f"beir/{name}.jsonl").write_text("\n".join(map(json.dumps, records)))
    lines = [f"q{q}\t{paper}\t{grade}" for q, grades in enumerate(GRADES) for paper, grade in grades.items()]
    (tmp_path / "beir/qrels/test.tsv").write_text("\n".join(lines))
    corpus = make(tmp_path, corpus_task("b", Beir(tmp_path / "beir")))
    config = PoolConfig(queries_are="texts", year=None, size="all", queries="all")
    return corpus, make(tmp_path, pool_task(corpus, config))


@pytest.mark.usefixtures("plain_ranx")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("way", "scored"), [("count", [0, 1, 2, 3]), ("ignore", [0, 1, 3])])
def test_positives_that_the_collection_lacks(
    tmp_path: Path, judged: tuple[Artifact, Artifact], way: str, scored: list[int], engine: str
) -> None:
    corpus, pool = judged
    assert pool.manifest.counts["positives_not_in_collection"] == 3
    (task,) = score_tasks(
        ranking_task(RANKED, 4), pool, corpus, system="x", depth=500, missing_positives=way, engine=engine
    )
    scores = make(tmp_path, task)
    values = scores.arrow("scores.arrow").column("value").to_numpy().reshape(len(DEFAULT), -1)
    kept = [{p: grade for p, grade in grades.items() if way == "count" or p.startswith("d")} for grades in GRADES]
    evaluator = pytrec_eval.RelevanceEvaluator(
        {str(q): kept[q] for q in scored},
        {"map", "ndcg", "ndcg_cut.10", "recall.5,10,20,30,100", "P.1", "recip_rank", "Rprec"},
    )
    theirs = evaluator.evaluate({str(q): {f"d{row}": s for row, s in RANKED[q].items()} for q in scored})
    names = ["map", "ndcg", "ndcg_cut_10", *(f"recall_{k}" for k in (5, 10, 20, 30, 100)), "P_1", "recip_rank", "Rprec"]
    expected = [[theirs.get(str(q), dict.fromkeys(names, 0.0))[name] for q in scored] for name in names]
    np.testing.assert_allclose(values, expected, atol=1e-9, rtol=0)
    counts = scores.manifest.counts
    assert (counts["queries"], counts["queries_without_positive"]) == (len(scored), 4 - len(scored))
    assert (counts["positives"], counts["positives_not_in_collection"]) == (7 if way == "count" else 4, 3)


def test_missing_positives_are_a_setting_of_given_judgements(tmp_path: Path, corpus: Artifact) -> None:
    pool = make_pool(tmp_path, corpus, [0])
    with pytest.raises(InputError, match="are papers, whose positives are all in the collection"):
        score_tasks(ranking_task([{}], 1), pool, corpus, system="x", depth=9, missing_positives="count")


def test_a_query_without_positive_is_left_out_and_counted(tmp_path: Path, corpus: Artifact) -> None:
    qrels = [(0, 3, 1), (1, 3, 0), (2, 7, 2), (2, 3, -1)]
    scores = make_score(tmp_path, corpus, [{3: 1.0}, {3: 1.0}, {7: 1.0}], qrels=qrels)
    table, counts = scores.arrow("scores.arrow"), scores.manifest.counts
    assert table.column("query").to_pylist() == [0, 2] * 3
    assert table.column("value").to_pylist() == [1.0] * 6
    assert (counts["queries"], counts["queries_without_positive"], counts["positives"]) == (2, 1, 2)
    assert counts["retrieved"] == 3


@pytest.mark.parametrize(
    ("run", "settings", "message"),
    [
        ([{3: 1.0}, {3: 1.0}, {}], {"ran": 2}, "ran 2 of the 3 queries"),
        (
            [{3: 1.0, 5: 0.5}, {4: 1.0}, {}],
            {"candidates": [0, 1, 3, 5, 7]},
            "paper .00004., ranked for query .00001., is",
        ),
        (
            [{}, {}, {8: 1.0}],
            {"candidates": [0, 1, 3, 5, 7]},
            "row 8, ranked for query .00002., is not a",
        ),
        ([{1: 1.0}, {1: 1.0}, {}], {}, "paper .00001., ranked for query .00001., is excluded"),
    ],
)
def test_a_ranking_that_is_not_of_the_pool_is_refused(
    tmp_path: Path, corpus: Artifact, run: Run, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_score(tmp_path, corpus, run, **settings)
