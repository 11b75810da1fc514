"""``mdcr eval`` and what it leaves: figures and plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from pipeline.core.artifact import published
from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.measures import DEFAULT
from tests.cli.run import flags, mdcr, mdcr_json, scores_of
from tests.shared import real

pytestmark = [pytest.mark.java]

EVALUATE = flags("eval --year 2019 --size 900,1400 --queries 20 --samples 2 --model bm25,lsa")
LSA = flags("eval --year 2019 --size 900 --queries 20 --samples 1 --model lsa")
THEIRS = {"map": "map", "ndcg": "ndcg", "ndcg_cut_10": "ndcg@10", "Rprec": "r-precision", "recip_rank": "mrr"}
THEIRS |= {"P_1": "precision@1"} | {f"recall_{cutoff}": f"recall@{cutoff}" for cutoff in (5, 10, 20, 30, 100)}
"""Names of measures by trec_eval's."""


@pytest.fixture(scope="module")
def rows(root: Path) -> list[dict[str, Any]]:
    return list(mdcr_json(root, *EVALUATE)["rows"])


def test_every_system_pool_and_measure(rows: list[dict[str, Any]]) -> None:
    assert {(r["system"], r["size"], r["sample"], r["measure"]) for r in rows} == {
        (system, size, sample, measure)
        for system in ("bm25", "lsa")
        for size in (900, 1400)
        for sample in (None, 1, 2)
        for measure in map(str, DEFAULT)
    }
    assert len(rows) == 2 * 2 * 3 * len(DEFAULT)
    assert all(0 < r["low"] <= r["value"] <= r["high"] <= 1 and r["queries"] == 20 for r in rows)
    chance = max(r["positives"] / r["queries"] / r["size"] for r in rows)
    assert all(r["value"] > 5 * chance for r in rows if r["measure"] == "map")


def test_the_figures_are_trec_evals_and_a_paper_is_embedded_once(root: Path, rows: list[dict[str, Any]]) -> None:
    value_of = {(r["system"], r["pool"], r["measure"]): r["value"] for r in rows}
    corpus = Corpus(find_corpus(root, None))
    ids = corpus.ids(np.arange(len(corpus)))
    pools = {artifact.id: Pool(artifact, corpus) for artifact in published(root / "corpora/pools")}
    asked = {"map", "ndcg", "ndcg_cut.10", "Rprec", "recip_rank", "P.1", "recall.5,10,20,30,100"}
    rankings = list(published(root / "runs/rankings"))
    assert len(rankings) == 2 * 4
    for ranking in rankings:
        pool = pools[ranking.manifest.inputs["pool"]]
        queries = pool.query_ids()
        run: dict[str, dict[str, float]] = {query: {} for query in queries}
        for entry in ranking.arrow("ranking.arrow").to_pylist():
            run[queries[entry["query"]]][ids[entry["row"]]] = entry["score"]
        qrels: dict[str, dict[str, int]] = {query: {} for query in queries}
        for judgement in pool.qrels.to_pylist():
            qrels[queries[judgement["query"]]][ids[judgement["row"]]] = judgement["grade"]
        assert all(query not in run[query] for query in queries)
        scored = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run)
        expected = {name: np.mean([scored[query][theirs] for query in queries]) for theirs, name in THEIRS.items()}
        assert set(expected) == set(map(str, DEFAULT))
        system = ranking.name.split("-")[0]
        ours = {name: value_of[system, pool.artifact.name, name] for name in expected}
        assert ours == pytest.approx(expected, abs=1e-9)
    wanted = set().union(*({*pool.candidates.tolist(), *pool.query_rows.tolist()} for pool in pools.values()))
    segments = [segment for store in (root / "indexes/vectors").iterdir() for segment in published(store)]
    stored = [row for segment in segments for row in segment.arrow("rows.arrow").column("row").to_pylist()]
    assert len(stored) == len(set(stored))
    assert set(stored) == wanted


def test_a_second_run_makes_nothing_and_a_new_size_makes_only_what_is_missing(
    root: Path, rows: list[dict[str, Any]]
) -> None:
    before = scores_of(root)
    plan = mdcr_json(root, *EVALUATE, "--dry-run")["plan"]
    assert plan
    assert all(step["present"] for step in plan)
    again = mdcr(root, *EVALUATE)
    untuned = "bm25: k1=0.9, b=0.4, not tuned: mdcr tune was not run with these settings\n"
    assert (again.returncode, again.stderr) == (0, untuned)
    assert "MAP" in again.stdout
    assert "bm25" in again.stdout
    assert scores_of(root) == before
    other = mdcr_json(root, *LSA, "--size", "1000", "--dry-run")["plan"]
    assert {step["stage"] for step in other if not step["present"]} == {"pool", "embed", "search", "score"}
    assert any("-> 1000" in change for step in other for change in step["changed"])


def test_a_pool_of_everything_has_one_sample_whatever_the_seed(own: Path) -> None:
    words = flags("eval --year 2018 --size all --queries all --model lsa")
    row = mdcr_json(own, *words)["rows"][0]
    assert row["sample"] == 1
    assert mdcr_json(own, *words, "--seed", "99")["rows"][0]["value"] == row["value"]


@pytest.mark.realdata
def test_scifact_bm25_is_near_the_published_figure(tmp_path: Path) -> None:
    folder = str(real("beir-scifact"))
    mdcr_json(tmp_path, "corpus", "--source", "beir", "--input", folder, "--corpus", "scifact")
    rows = mdcr_json(tmp_path, *flags("eval --corpus scifact --model bm25"))["rows"]
    (row,) = (row for row in rows if row["measure"] == "ndcg@10")
    assert (row["queries"], row["size"], row["positives"]) == (300, 5183, 339)
    assert row["value"] == pytest.approx(0.6789, abs=0.015)
