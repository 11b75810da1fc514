"""Fused systems and approximate search in the table, and what weights are chosen on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.workspace import POOLS, WEIGHTS
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

POOL = flags("--year 2019 --size 900 --queries 20 --samples 2")


def test_fused_systems_in_the_table(root: Path) -> None:
    model = "bm25,lsa,rrf(bm25,lsa),wsum(bm25,lsa)"
    rows = mdcr_json(root, "eval", *POOL, "--model", model)["rows"]
    of = {(row["system"], row["sample"]): row["value"] for row in rows if row["measure"] == "map"}
    assert {system for system, _ in of} == {"bm25", "lsa", "rrf(bm25,lsa)", "wsum(bm25,lsa)"}
    (weights,) = published(root / WEIGHTS)
    pools = {pool.id: pool for pool in published(root / POOLS)}
    tuned_on = pools[weights.manifest.inputs["pool"]]
    assert tuned_on.manifest.config["split"] == "validation"
    chosen = weights.manifest.counts["weights"]
    assert sum(chosen.values()) == pytest.approx(1)
    grid = weights.arrow("grid.arrow").to_pylist()
    assert len(grid) == 11
    assert max(point["map"] for point in grid) == weights.manifest.counts["map"]
    by_weight = {point["weights"][0]: point["map"] for point in grid}
    assert by_weight[chosen["bm25"]] == weights.manifest.counts["map"] >= max(by_weight[0.0], by_weight[1.0])
    queries: dict[str, set[int]] = {"test": set(), "validation": set()}
    for pool in pools.values():
        queries[pool.manifest.config["split"]].update(pool.arrow("queries.arrow").column("row").to_pylist())
    assert queries["validation"]
    assert not queries["test"] & queries["validation"]
    error = one_line_error(mdcr(root, "eval", *POOL, "--split", "validation", "--model", "wsum(bm25,lsa)"))
    assert "is tuned on validation queries" in error


@pytest.mark.parametrize("kind", ["faiss:IVF8,Flat:nprobe=2", "faiss:HNSW32"])
def test_approximate_search_says_what_it_leaves_out(root: Path, kind: str) -> None:
    arguments = ("eval", *POOL, "--model", "bm25,lsa", "--engine", kind)
    result = mdcr_json(root, *arguments)
    assert {row["system"] for row in result["rows"]} == {"bm25", "lsa", f"lsa@{kind}"}
    assert len(result["approximate"]) == 2
    for row in result["approximate"]:
        assert row["system"] == f"lsa@{kind}"
        assert 0 < row["recall"] <= 1
    printed = mdcr(root, *arguments).stdout
    assert printed.count(f"lsa@{kind} on ") == 2
    assert f"recall@500 {result['approximate'][0]['recall']:.4f} of exact search\n" in printed
