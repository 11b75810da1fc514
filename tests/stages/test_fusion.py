"""Fused systems and approximate search in the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, mdcr_json

POOL = flags("--year 2019 --size 900 --queries 20 --samples 2")


def test_fused_systems_in_the_table(root: Path) -> None:
    rows = mdcr_json(root, "eval", *POOL, "--model", "bm25,lsa,rrf(bm25,lsa)")["rows"]
    assert {row["system"] for row in rows} == {"bm25", "lsa", "rrf(bm25,lsa)"}


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
