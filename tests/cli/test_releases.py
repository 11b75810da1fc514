"""Releases and vectors through the command: built, described, and taken to a table of results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.artifact import published
from pipeline.core.workspace import VECTORS
from pipeline.encode.store import VectorStore
from tests.cli.run import flags, mdcr, mdcr_json
from tests.corpus.test_join import random_tables
from tests.releases import write_lines


def write_release(folder: Path, tables: Mapping[str, Any]) -> Path:
    """Write a release of S2AG, two files a dataset."""
    for name, rows in tables.items():
        for number in range(2):
            write_lines(folder / name / f"{name}_{number}.jsonl.gz", rows[number::2])
    return folder


def test_s2ag_is_built_and_described(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    for paper in tables["papers"][:40]:
        paper["title"] = "The same title in full length"
    folder = write_release(tmp_path / "s2ag", tables)
    build = ["corpus", "--source", "s2ag", "--input", str(folder)]
    whole = mdcr_json(tmp_path, *build)
    assert whole["counts"]["kept"] == 300
    distinct = mdcr_json(tmp_path, *build, *flags("--corpus fewer --duplicates drop --memory 512M --workers 2"))
    dropped = distinct["counts"]["dropped"]
    assert dropped["duplicate_doi"] == 0
    assert dropped["duplicate_title_and_year"] == 300 - distinct["counts"]["kept"] > 10
    shown = mdcr(tmp_path, *flags("show corpus --corpus fewer"))
    assert re.search(rf"papers +{distinct['counts']['kept']:,}\s", shown.stdout)
    listed = mdcr_json(tmp_path, *flags("show corpora"))["corpora"]
    kept = distinct["counts"]["kept"]
    assert [(row["corpus"], row["papers"]) for row in listed] == [("fewer", kept), ("s2ag", 300)]
    pools = mdcr_json(tmp_path, *flags("pool --corpus fewer --year 2019 --size all --queries 5 --samples 1"))["pools"]
    assert pools[0]["counts"]["queries"] == 5


def embeddings(ids: list[str], model: str, seed: int) -> list[dict[str, Any]]:
    """Return vectors as S2AG writes them."""
    vectors = np.random.default_rng(seed).normal(size=(len(ids), 8)).astype(np.float32)
    return [
        {"corpusid": int(paper), "model": model, "vector": json.dumps(vector), "updated": "2022-01-27"}
        for paper, vector in zip(ids, vectors.tolist(), strict=True)
    ]


def test_embeddings_of_s2ag_are_evaluated(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    ids = [str(paper["corpusid"]) for paper in tables["papers"]]
    vectors = {f"embeddings-specter_v{n}": embeddings([*ids, "999999"], f"v{n}", n) for n in (1, 2)}
    folder = write_release(tmp_path / "s2ag", {**tables, **vectors})
    mdcr_json(tmp_path, "corpus", "--source", "s2ag", "--input", str(folder))
    systems = f"vectors:{folder}/embeddings-specter_v2", f"vectors:{folder}/embeddings-specter_v1:distance=cosine"
    evaluated = mdcr(
        tmp_path, "eval", "--model", ",".join(("bm25", *systems)), *flags("--size all --queries 5 --samples 1")
    )
    assert evaluated.returncode == 0, evaluated.stderr
    named = "vectors:embeddings-specter_v2", "vectors:embeddings-specter_v1:distance=cosine"
    assert all(f"\n{system} " in evaluated.stdout for system in ("bm25", *named))
    assert (
        "301 vectors; 300 of 300 papers of the corpus have one, 0 have none; 1 vectors are of other" in evaluated.stderr
    )
    for folder_of_store in (tmp_path / VECTORS).glob("[!.]*"):
        (segment,) = published(folder_of_store)
        assert segment.manifest.provenance["recorded_model"] in ("v1", "v2")
        assert VectorStore(folder_of_store, [segment]).dimension == 8
