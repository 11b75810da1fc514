"""``mdcr tune``, and what BM25 is afterwards."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import api
from pipeline.core.artifact import published
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

pytestmark = [pytest.mark.java]
POOL = flags("--year 2019 --size 1200 --queries 20 --seed 5")


@pytest.fixture(scope="module")
def untuned(root: Path) -> dict[str, float]:
    return values(mdcr_json(root, "eval", *POOL, "--samples", "2", "--model", "bm25", "--measures", "map"))


@pytest.fixture(scope="module")
def printed(root: Path, untuned: dict[str, float]) -> str:
    result = mdcr(root, "tune", *POOL)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def tuning(root: Path, printed: str) -> dict[str, Any]:
    (tuned,) = mdcr_json(root, "tune", *POOL)["tunings"]
    return dict(tuned)


def values(answer: Any) -> dict[str, float]:
    return {f"{row['system']} s{row['sample']}": row["value"] for row in answer["rows"] if row["sample"]}


def test_the_grid_is_printed_with_its_best_point(root: Path, printed: str, tuning: dict[str, Any]) -> None:
    lines = printed.splitlines()
    grid, counts = np.array(tuning["grid"]["map"]), tuning["counts"]
    assert lines[0] == f"MAP (%) of BM25 on {tuning['name']}"
    head = next(number for number, line in enumerate(lines) if line.startswith("k1 \\ b"))
    assert lines[head].split()[3:] == [f"{b:g}" for b in tuning["grid"]["b"]]
    rows = [line.split() for line in lines[head + 2 : head + 2 + len(grid)]]
    assert [row[0] for row in rows] == [f"{k1:g}" for k1 in tuning["grid"]["k1"]]
    assert [[cell.rstrip("*") for cell in row[1:]] for row in rows] == [[f"{100 * v:.2f}" for v in row] for row in grid]
    i, j = np.unravel_index(grid.argmax(), grid.shape)
    assert [(a, b) for a, row in enumerate(rows) for b, cell in enumerate(row[1:]) if "*" in cell] == [(i, j)]
    assert (counts["k1"], counts["b"]) == (tuning["grid"]["k1"][i], tuning["grid"]["b"][j])
    text = " ".join(" ".join(lines[head + 3 + len(grid) :]).split())
    assert f"best: k1={counts['k1']:g}, b={counts['b']:g}: {100 * grid.max():.2f}" in text
    assert "over k1=0.9, b=0.4, on the queries that chose it); 20 queries" in text
    stored = (pool.manifest for pool in published(root / "corpora/pools"))
    (marks,) = (pool.counts["marks"] for pool in stored if pool.config["split"] == "validation")
    gaps = ((kind, marks[kind]) for kind in ("positives", "negatives"))
    without = [f"{of['without_abstract'] / of['papers']:.1%} of the {kind}" for kind, of in gaps]
    assert f"{' and '.join(without)} have no abstract: much of the gain" in text
    more = mdcr(root, "eval", *POOL[:-4], *flags("--queries 21 --seed 5 --samples 1 --model bm25"))
    assert "bm25: k1=0.9, b=0.4, not tuned: mdcr tune was not run with these settings" in more.stderr


def test_bm25_is_tuned_from_then_on_can_be_fixed_and_says_which_it_is(
    root: Path, untuned: dict[str, float], tuning: dict[str, Any]
) -> None:
    models = ("--samples", "2", "--model", "bm25,bm25:k1=0.9,b=0.4", "--measures", "map")
    tuned = values(mdcr_json(root, "eval", *POOL, *models))
    plain = "bm25:k1=0.9,b=0.4"
    assert set(tuned) == {"bm25 s1", "bm25 s2", f"{plain} s1", f"{plain} s2"}
    assert [tuned[f"{plain} s{n}"] for n in (1, 2)] == [untuned[f"bm25 s{n}"] for n in (1, 2)]
    best = {"k1": tuning["counts"]["k1"], "b": tuning["counts"]["b"]}
    assert best != {"k1": 0.9, "b": 0.4}
    fixed = f"bm25:k1={best['k1']:g},b={best['b']:g}"
    same = values(mdcr_json(root, "eval", *POOL, "--samples", "2", "--model", fixed, "--measures", "map"))
    assert [same[f"{fixed} s{n}"] for n in (1, 2)] == [tuned[f"bm25 s{n}"] for n in (1, 2)]
    rankings = [ranking.manifest for ranking in published(root / "runs/rankings")]
    by_tuning = [manifest for manifest in rankings if "tuning" in manifest.inputs]
    assert {manifest.inputs["tuning"] for manifest in by_tuning} == {tuning["id"]}
    assert all({name: manifest.config[name] for name in ("k1", "b")} == best for manifest in by_tuning)
    result = mdcr(root, "eval", *POOL, "--samples", "1", *models[2:])
    parameters = f"k1={best['k1']:g}, b={best['b']:g}"
    assert f"bm25: {parameters}, tuned on {tuning['name']}" in result.stderr
    table = " ".join(result.stdout.split())
    for text in (f"bm25 tuned to {parameters}", f"{plain} 3", "differs from bm25:"):
        assert text in table
    workspace = api.open(root)
    (pool,) = workspace.pools(year=2019, size=1200, queries=20, seed=5, samples=1)
    for first, second in ((plain, "bm25"), ("bm25:b=0.4,k1=0.9", "bm25:tuned")):
        (compared,) = mdcr_json(root, "compare", first, second, "--queries", "20")["pairs"][:1]
        assert (compared["first"], compared["second"]) == (plain, "bm25")
        assert len(workspace.most_different(pool, first, second, most=1)) == 1
        against = mdcr_json(root, "show", "--baseline", first, "--queries", "20")["rows"]
        assert {row["baseline"] for row in against if row["system"] == "bm25"} == {plain, None}
    assert set(workspace.scores(systems=plain, queries=20)["system"]) == {plain}
    refused = one_line_error(mdcr(root, "compare", "bm25:tuned", plain, "--queries", "21"))
    assert "'bm25:tuned' must be a system" in refused


def test_a_corpus_with_its_own_queries(tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    papers = [{"_id": str(n), "title": f"Kiwi {n}", "text": "plum", "metadata": {}} for n in range(5)]
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers)).encode()))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "kiwi", "metadata": {}}) + "\n")
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t3\t1\n")
    mdcr_json(tmp_path, "corpus", "--source", "beir", "--input", str(folder), "--corpus", "own")
    line = one_line_error(mdcr(tmp_path, "tune"))
    assert "own-" in line
    assert "brings its queries" in line
    assert "bm25:k1=1.2,b=0.75" in line
