"""Reranking: the order of sentence-transformers on top, the other order below, the same bytes after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers

from pipeline.core.artifact import Artifact, published
from pipeline.core.task import Task
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.encode.reranker import CrossEncoder
from pipeline.stages import rerank
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.rerank import rerank_task
from tests.builders import make_corpus, make_pool
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.encode.tiny import save_cross_encoder, words
from tests.stages.making import apart, make

DEPTH, HEAD = 20, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cross_encoder(tmp_path_factory.mktemp("cross") / "tiny")


def world(root: Path, folder: Path, *, texts: bool = False) -> tuple[Artifact, Artifact, Task, Task]:
    """Return corpus, pool, the task that ranks first, and the one that reranks."""
    papers = [
        {"paper_id": f"{n:03d}", "title": words(2 + n % 5, n), "abstract": words(n, 3 * n) if n % 4 else ""}
        for n in range(40)
    ]
    asked = {f"q{n}": words(3 + n, 11 * n) for n in range(5)} if texts else None
    corpus = make_corpus(root, papers, shard_rows=15, query_texts=asked)
    pool = make_pool(root, corpus, None if texts else [0, 4, 9, 17, 39], slug="texts" if texts else "pool")
    model = registry.resolve("stub")
    first = dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model, depth=DEPTH)
    cross = registry.resolve(f"cross:{folder}", reranker=True)
    return corpus, pool, first, rerank_task(corpus, pool, first, cross, head=HEAD)


@pytest.mark.parametrize("texts", [False, True])
def test_the_head_is_that_of_sentence_transformers_and_the_rest_keeps_its_order(
    tmp_path: Path, stub: None, folder: Path, texts: bool
) -> None:
    corpus, _, first, task = world(tmp_path, folder, texts=texts)
    before, artifact = read_ranking(make(tmp_path, first)), make(tmp_path, task)
    after = read_ranking(artifact)
    reader = Corpus(corpus)
    peer = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    strings = [" ".join(filter(None, text)) for block in reader.texts(np.arange(40)) for text in block]
    queries = reader.query_texts.column("text").to_pylist() if texts else [strings[row] for row in (0, 4, 9, 17, 39)]
    for number, query in enumerate(queries):
        was, now = before.row[before.query == number], after.row[after.query == number]
        scores = after.score[after.query == number]
        expected = peer.predict([(query, strings[row]) for row in was[:HEAD]])
        best = np.argsort(-expected)
        assert now[:HEAD].tolist() == was[:HEAD][best].tolist()
        np.testing.assert_allclose(scores[:HEAD], expected[best], atol=1e-5)
        assert now[HEAD:].tolist() == was[HEAD:].tolist()
        assert (np.diff(scores) <= 0).all()
        below = np.arange(1, DEPTH - HEAD + 1, dtype=np.float32)
        np.testing.assert_array_equal(scores[HEAD:], scores[HEAD - 1] - below)
    assert artifact.manifest.counts["pairs"] == 5 * HEAD
    assert artifact.manifest.config["encoder"]["revision"].startswith("sha256:")
    assert artifact.manifest.provenance["model"] == f"cross:{folder}"


def test_a_killed_run_continues_and_slices_give_the_same_bytes(
    tmp_path: Path, stub: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "UNIT_PAIRS", 2 * HEAD)
    _, _, first, task = world(tmp_path, folder)
    make(tmp_path, first)
    whole = make(tmp_path, task)
    whole.path.rename(tmp_path / "whole")
    units: list[int] = []
    score = CrossEncoder.score

    def fail(self: CrossEncoder, pairs: Any) -> Any:
        if len(pairs) > 2:  # with two pairs the encoder tries itself out
            units.append(len(pairs))
            if len(units) == 2:
                raise RuntimeError("killed")
        return score(self, pairs)

    monkeypatch.setattr(CrossEncoder, "score", fail)
    with pytest.raises(RuntimeError, match="killed"):
        make(tmp_path, task)
    made = make(tmp_path, task)
    assert len(units) == 4  # three, one of them twice
    assert made.manifest.outputs == whole.manifest.outputs
    made.path.rename(tmp_path / "made")
    assert apart(tmp_path, 2).make(task).manifest.outputs == whole.manifest.outputs


def test_reranked_systems_in_the_table(root: Path, folder: Path) -> None:
    pool = flags("--year 2019 --size 300 --queries 10 --samples 1")
    name = f"rerank(bm25:k1=1.2,b=0.5,cross:{folder}:max_length=64,10)"
    rows = mdcr_json(root, "eval", *pool, "--model", f"bm25:k1=1.2,b=0.5,{name}")["rows"]
    of = {(row["system"], row["sample"]): row["value"] for row in rows if row["measure"] == "recall@100"}
    shown = name.replace(str(folder), folder.name)
    assert {system for system, _ in of} == {"bm25:k1=1.2,b=0.5", shown}
    assert of[shown, 1] == of["bm25:k1=1.2,b=0.5", 1]
    assert [ranking.manifest.stage for ranking in published(root / RANKINGS)].count("rerank") == 1
    again = mdcr(root, "eval", *pool, "--model", f"bm25:k1=1.2,b=0.5,{name}", "--json")
    assert json.loads(again.stdout)["rows"] == rows
    assert "rerank:" not in again.stderr
    refused = mdcr(root, "eval", *pool, "--model", f"rerank(bm25,cross:{folder},30)", "--depth", "20")
    assert "must rerank at most --depth 20 entries" in one_line_error(refused)
