"""Corpora and pools stay what they are: digests of their columns."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.sources.base import Release
from pipeline.sources.openalex import OpenAlex
from pipeline.sources.s2ag import S2ag
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from tests.releases import random_s2orc, write_s2orc
from tests.shared import real

GRAPH = ("outgoing-indptr.arrow", "outgoing-indices.arrow", "incoming-indptr.arrow", "incoming-indices.arrow")
POOL = ("queries.arrow", "candidates.arrow", "qrels.arrow", "exclusions.arrow")


def digest(artifact: Artifact, *files: str) -> str:
    """Return the first 16 hex digits of a SHA-256 over the values of some tables."""
    hashed = hashlib.sha256()
    for name in files:
        for output in artifact.outputs(name):
            hashed.update(json.dumps(artifact.arrow(output.path).to_pydict()).encode())
    return hashed.hexdigest()[:16]


def digests(root: Path, release: Release, **pools: PoolConfig) -> dict[str, str]:
    runner = Runner(root, Resources(2**30, 2))
    corpus = runner.make(corpus_task("c", release))
    tables = {"papers": ("papers-*.arrow",), "attributes": ("attributes.arrow",), "graph": GRAPH}
    made = {name: digest(runner.make(pool_task(corpus, config)), *POOL) for name, config in pools.items()}
    return made | {name: digest(corpus, *names) for name, names in tables.items()}


def test_a_random_release(tmp_path: Path) -> None:
    release = S2orc2020(write_s2orc(tmp_path / "release", random_s2orc(3_000, seed=1), parts=4))
    pools = {
        "all": PoolConfig(size="all", queries="all"),
        "drawn": PoolConfig(size=500, queries=30, sample=2),
        "physics": PoolConfig(field="Physics", size=200, queries=8, nested=True),
    }
    assert digests(tmp_path, release, **pools) == {
        "all": "a0f3bfcb4d1a94d7",
        "attributes": "23280c58b4cd8839",
        "drawn": "b6abbaf80d2936d9",
        "graph": "2cb4ae9587f87368",
        "papers": "57f6aa1703e82aee",
        "physics": "fe53643ba992179b",
    }


REAL_POOLS = {
    "dataset": PoolConfig(size=8_000, queries=300),
    "medicine": PoolConfig(field="Medicine", size=2_000, queries=100),
}
REAL = {
    "s2orc-real": {"attributes": "6fa987d3edf98652", "graph": "6526a0f75998b840", "papers": "3421026cf98ab7ce"}
    | {"dataset": "7a986383a2dc1fad", "medicine": "bc0df4da86562afc"},
    "openalex-sample": {"attributes": "6169b684e76854c2", "graph": "cf45f12d4a6684fe", "papers": "e10a63da2814ad48"},
    "s2ag-sample": {"attributes": "845147e3b7629f6a", "graph": "393f6828f75a8663", "papers": "6ae1298a4591a6f7"},
}


@pytest.mark.realdata
@pytest.mark.parametrize("name", REAL)
def test_real_papers(tmp_path: Path, name: str) -> None:
    kind: Any = {"s2orc-real": S2orc2020, "openalex-sample": OpenAlex, "s2ag-sample": S2ag}[name]
    pools = REAL_POOLS if name == "s2orc-real" else {}
    assert digests(tmp_path, kind(real(name)), **pools) == REAL[name]
