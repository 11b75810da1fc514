from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from pipeline.core.artifact import Artifact, published
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from tests.cli.run import flags, mdcr, mdcr_json, scores_of
from tests.shared import real

pytestmark = pytest.mark.xdist_group("eval")
"""One process makes what all of them look at."""

POOLS = flags("--year 2019 --size 900,1400 --queries 20 --samples 2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("eval")
    built = mdcr_json(root, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))
    assert built["counts"]["read"] == 3000 == built["counts"]["kept"]
    return root


@pytest.mark.java
def test_eval_gives_every_system_pool_and_measure(root: Path) -> None:
    result = mdcr_json(root, "eval", *POOLS, "--model", "bm25,lsa")
    rows = result["rows"]
    assert list(rows[0]) == [
        "system", "pool", "field", "size", "sample", "measure", "value", "low", "high", "queries", "positives",
    ]  # fmt: skip
    cells = {(r["system"], r["size"], r["sample"], r["measure"]) for r in rows}
    measures = ("map", "ndcg", "recall@30", "precision@1", "mrr", "recall@100")
    assert cells == {
        (system, size, sample, measure)
        for system in ("bm25", "lsa")
        for size in (900, 1400)
        for sample in (1, 2)
        for measure in measures
    }
    assert len(rows) == len(cells)
    assert all(0 < r["low"] <= r["value"] <= r["high"] <= 1 and r["queries"] == 20 for r in rows)
    chance = max(r["positives"] / r["queries"] / r["size"] for r in rows)
    assert all(r["value"] > 5 * chance for r in rows if r["measure"] == "map")


@pytest.mark.java
def test_the_figures_are_trec_evals(root: Path) -> None:
    rows = mdcr_json(root, "eval", *POOLS, "--model", "bm25,lsa")["rows"]
    value_of = {(r["system"], r["pool"], r["measure"]): r["value"] for r in rows}
    pools = {artifact.id: artifact for artifact in published(root / "corpora/pools")}
    checked = 0
    for ranking in published(root / "runs/rankings"):
        pool_artifact = pools[ranking.manifest.inputs["pool"]]
        corpus = Corpus(_corpus(root))
        pool = Pool(pool_artifact, corpus)
        ids = corpus.ids(np.arange(len(corpus)))
        queries = pool.query_ids()
        run: dict[str, dict[str, float]] = {query: {} for query in queries}
        for entry in ranking.arrow("ranking.arrow").to_pylist():
            run[queries[entry["query"]]][ids[entry["row"]]] = entry["score"]
        qrels: dict[str, dict[str, int]] = {query: {} for query in queries}
        for judgement in pool.qrels.to_pylist():
            qrels[queries[judgement["query"]]][ids[judgement["row"]]] = judgement["grade"]
        assert all(query not in run[query] for query in queries)
        names = {"map": "map", "ndcg": "ndcg", "recall_30": "recall@30", "recip_rank": "mrr", "P_1": "precision@1"}
        scored = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg", "recall.30", "recip_rank", "P.1"}).evaluate(run)
        system = ranking.name.split("-")[0]
        for theirs, ours in names.items():
            expected = float(np.mean([scored[query][theirs] for query in queries]))
            assert value_of[system, pool_artifact.name, ours] == pytest.approx(expected, abs=1e-9)
            checked += 1
    assert checked == 2 * 4 * 5


def _corpus(root: Path) -> Artifact:
    (artifact,) = published(root / "corpora")
    return artifact


@pytest.mark.java
def test_a_second_run_makes_nothing_and_a_new_size_makes_only_what_is_missing(root: Path) -> None:
    mdcr_json(root, "eval", *POOLS, "--model", "bm25,lsa")
    before = scores_of(root)
    plan = mdcr_json(root, "eval", *POOLS, "--model", "bm25,lsa", "--dry-run")["plan"]
    assert plan
    assert all(step["present"] for step in plan)
    again = mdcr(root, "eval", *POOLS, "--model", "bm25,lsa")
    assert again.returncode == 0
    assert again.stderr == ""
    assert "MAP" in again.stdout
    assert "bm25" in again.stdout
    assert scores_of(root) == before
    other = mdcr_json(root, *flags("eval --year 2019 --size 1000 --queries 20 --samples 1 --model lsa --dry-run"))
    assert {s["stage"] for s in other["plan"] if not s["present"]} == {"pool", "embed", "search", "score"}
    assert any("-> 1000" in change for s in other["plan"] for change in s["changed"])


@pytest.mark.java
def test_a_paper_is_embedded_once(root: Path) -> None:
    made = mdcr_json(root, "embed", *POOLS, "--model", "lsa")["artifacts"]
    embedded = sum(artifact["counts"]["embedded"] for artifact in made)
    pools = [Pool(artifact, Corpus(_corpus(root))) for artifact in published(root / "corpora/pools")]
    wanted = set().union(*({*p.candidates.tolist(), *p.query_rows.tolist()} for p in pools if len(p.query_rows) == 20))
    assert embedded <= len(wanted)


@pytest.mark.java
def test_everything_is_deterministic_and_takes_one_sample(root: Path) -> None:
    rows = mdcr_json(root, *flags("eval --year 2018 --size all --queries all --model lsa --measures map"))["rows"]
    assert [row["sample"] for row in rows] == [1]
    again = mdcr_json(root, *flags("eval --year 2018 --size all --queries all --seed 99 --model lsa --measures map"))
    assert again["rows"][0]["value"] == rows[0]["value"]


@pytest.mark.java
def test_tables_in_every_format_and_reports_on_disk(root: Path, tmp_path: Path) -> None:
    mdcr_json(root, "eval", *POOLS, "--model", "bm25,lsa")
    for name, sign in (("markdown", "| system |"), ("csv", "system,"), ("latex", "\\toprule"), ("terminal", "---")):
        shown = mdcr(root, "show", "table", "--year", "2019", "--size", "900,1400", "--format", name)
        assert shown.returncode == 0, shown.stderr
        assert sign in shown.stdout
    written = mdcr_json(root, "report", "--year", "2019", "--size", "900,1400", "--output", str(tmp_path))["reports"]
    names = {path.name for place in written for path in Path(place).iterdir()}
    assert {"table.md", "table.csv", "table.tex"} <= names
    for what in ("corpus", "pools", "artifacts"):
        assert json.loads(mdcr(root, "show", what, "--json").stdout)[what]


@pytest.mark.java
@pytest.mark.realdata
def test_scifact_bm25_is_near_the_published_figure(tmp_path: Path) -> None:
    folder = str(real("beir-scifact"))
    mdcr_json(tmp_path, "corpus", "--source", "beir", "--input", folder, "--corpus", "scifact")
    (row,) = mdcr_json(tmp_path, *flags("eval --corpus scifact --model bm25 --measures ndcg@10"))["rows"]
    assert (row["queries"], row["size"], row["positives"]) == (300, 5183, 339)
    assert row["value"] == pytest.approx(0.6789, abs=0.015)
