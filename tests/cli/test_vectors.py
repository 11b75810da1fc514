"""Vectors made elsewhere through the command: S2AG's, fetched beside the papers, and files that do not fit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from pipeline.core.artifact import published
from pipeline.core.workspace import VECTORS
from pipeline.encode.store import VectorStore
from tests.cli.run import flags, mdcr, mdcr_json
from tests.corpus.test_join import random_tables
from tests.sources.server import KEY, Datasets, serving

POOL = flags("--size all --queries 5 --samples 1")


def embeddings(ids: list[str], model: str, seed: int) -> dict[str, bytes]:
    """Return two files of vectors as S2AG writes them."""
    vectors = np.random.default_rng(seed).normal(size=(len(ids), 8)).astype(np.float32)
    lines = [
        json.dumps({"corpusid": int(each), "model": model, "vector": json.dumps(vector), "updated": "2022-01-27"})
        for each, vector in zip(ids, vectors.tolist(), strict=True)
    ]
    return {f"20260917_{n}_embeddings.gz": gzip.compress("\n".join(lines[n::2]).encode()) for n in range(2)}


def test_embeddings_are_fetched_and_evaluated(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    ids = [str(paper["corpusid"]) for paper in tables["papers"]]
    held = Datasets()
    held.releases["2026-09-17"] = {
        name: {f"{name}.gz": gzip.compress("\n".join(map(json.dumps, rows)).encode())} for name, rows in tables.items()
    } | {f"embeddings-specter_v{n}": embeddings([*ids, "999999"], f"v{n}", n) for n in (1, 2)}
    fetch = ["fetch", "s2ag", "--datasets", "papers,abstracts,citations,embeddings-specter_v2", "--endpoint"]
    with serving(held) as endpoint:
        result = mdcr(tmp_path, *fetch, endpoint, env={"S2_API_KEY": KEY})
        fetch[3] = "embeddings-specter_v1"
        alone = mdcr(tmp_path, *fetch, endpoint, "--output", str(tmp_path / "alone"), env={"S2_API_KEY": KEY})
    folder = result.stdout.strip()
    assert f"--model vectors:{folder}/embeddings-specter_v2" in result.stderr
    assert "next: mdcr corpus" in result.stderr
    assert "next: mdcr corpus" not in alone.stderr
    mdcr_json(tmp_path, "corpus", "--source", "s2ag", "--input", folder)
    systems = f"vectors:{folder}", f"vectors:{tmp_path}/alone:distance=cosine"
    evaluated = mdcr(tmp_path, "eval", "--model", ",".join(("bm25", *systems)), *POOL)
    assert evaluated.returncode == 0, evaluated.stderr
    named = f"vectors:{Path(folder).name}", "vectors:alone:distance=cosine"
    assert all(f"\n{system} " in evaluated.stdout for system in ("bm25", *named))
    assert (
        "301 vectors; 300 of 300 papers of the corpus have one, 0 have none; 1 vectors are of other" in evaluated.stderr
    )
    for folder_of_store in (tmp_path / VECTORS).glob("[!.]*"):
        (segment,) = published(folder_of_store)
        assert segment.manifest.provenance["recorded_model"] in ("v1", "v2")
        assert VectorStore(folder_of_store, [segment]).dimension == 8
    shown = mdcr_json(tmp_path, *flags("show vectors --spot 2"))["vectors"]
    assert {row["coverage"] for row in shown} == {"100.0%"}
    assert mdcr(tmp_path, "plan", "--model", systems[0], "--json").returncode == 0
