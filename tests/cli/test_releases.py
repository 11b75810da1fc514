"""Releases and vectors through the command: fetched, built, described, and taken to a table of results."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np

from pipeline.core.artifact import published
from pipeline.core.workspace import VECTORS
from pipeline.encode.store import VectorStore
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.corpus.test_join import random_tables
from tests.sources.server import KEY, Datasets, serving


def test_s2ag_is_fetched_built_and_described(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    for paper in tables["papers"][:40]:
        paper["title"] = "The same title in full length"
    lines = {name: [json.dumps(record).encode() for record in rows] for name, rows in tables.items()}
    served = Datasets()
    served.releases["2026-09-17"] = {
        name: {f"{name}_{n}.gz": gzip.compress(b"\n".join(rows[n::2])) for n in range(2)}
        for name, rows in lines.items()
    }
    with serving(served) as endpoint:
        fetch = ["fetch", "s2ag", "--endpoint", endpoint]
        assert "S2_API_KEY or with --api-key-file" in one_line_error(mdcr(tmp_path, *fetch, env={"S2_API_KEY": ""}))
        plan = mdcr(tmp_path, *fetch, "--dry-run", env={"S2_API_KEY": f" {KEY}\n"})
        assert plan.stdout.splitlines() == [f"{name}/{name}_{n}.gz" for name in lines for n in range(2)]
        (tmp_path / "key.txt").write_text(f"{KEY}\n")
        of_file = ("--api-key-file", str(tmp_path / "key.txt"))
        trial = mdcr_json(tmp_path, *fetch, *of_file, "--first", "1", "--output", str(tmp_path / "trial"))
        assert sorted(trial["files"]) == sorted(f"{name}/{name}_0.gz" for name in lines)
        result = mdcr(tmp_path, *fetch, env={"S2_API_KEY": KEY})
    folder = tmp_path / "corpora/releases/s2ag-2026-09-17"
    assert result.stdout.strip() == str(folder)
    assert KEY not in result.stderr + plan.stderr

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


def test_a_key_on_the_command_line_is_refused_and_none_is_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes("kéy-of-mine".encode("latin-1"))
    for words in (
        ["--api-key", "kéy-of-mine"],
        ["--api-key-file", "key-of-mine"],
        ["--api-key-file", f"{tmp_path}/key"],
    ):
        line = one_line_error(mdcr(tmp_path, "fetch", "s2ag", "--endpoint", "http://127.0.0.1:9", *words))
        assert "y-of-mine" not in line
        assert "--api-key-file" in line
    line = one_line_error(mdcr(tmp_path, "fetch", "s2ag", env={"S2_API_KEY": "kéy-of-mine"}))
    assert "API key must be printable ASCII" in line
    assert "of-mine" not in line


def embeddings(ids: list[str], model: str, seed: int) -> dict[str, bytes]:
    """Return two files of vectors as S2AG writes them."""
    vectors = np.random.default_rng(seed).normal(size=(len(ids), 8)).astype(np.float32)
    lines = [
        json.dumps({"corpusid": int(paper), "model": model, "vector": json.dumps(vector), "updated": "2022-01-27"})
        for paper, vector in zip(ids, vectors.tolist(), strict=True)
    ]
    return {f"20260917_{n}_embeddings.gz": gzip.compress("\n".join(lines[n::2]).encode()) for n in range(2)}


def test_embeddings_are_fetched_and_evaluated(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    ids = [str(paper["corpusid"]) for paper in tables["papers"]]
    served = Datasets()
    served.releases["2026-09-17"] = {
        name: {f"{name}.gz": gzip.compress("\n".join(map(json.dumps, rows)).encode())} for name, rows in tables.items()
    } | {f"embeddings-specter_v{n}": embeddings([*ids, "999999"], f"v{n}", n) for n in (1, 2)}
    fetch = ["fetch", "s2ag", "--datasets", "papers,abstracts,citations,embeddings-specter_v2", "--endpoint"]
    with serving(served) as endpoint:
        result = mdcr(tmp_path, *fetch, endpoint, env={"S2_API_KEY": KEY})
        fetch[3] = "embeddings-specter_v1"
        alone = mdcr(tmp_path, *fetch, endpoint, "--output", str(tmp_path / "alone"), env={"S2_API_KEY": KEY})
    folder = result.stdout.strip()
    assert f"--model vectors:{folder}/embeddings-specter_v2" in result.stderr
    assert "next: mdcr corpus" in result.stderr
    assert "next: mdcr corpus" not in alone.stderr
    mdcr_json(tmp_path, "corpus", "--source", "s2ag", "--input", folder)
    folders = f"{folder}/embeddings-specter_v2", f"{tmp_path}/alone/embeddings-specter_v1"
    systems = f"vectors:{folders[0]}", f"vectors:{folders[1]}:distance=cosine"
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
