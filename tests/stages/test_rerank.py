"""Reranking: the order of sentence-transformers on top, the other order below, the same bytes after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers

from pipeline.core.artifact import Artifact, published
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.units import Slice
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.encode.base import Encoded
from pipeline.stages import rerank
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.rerank import rerank_task
from pipeline.stages.search import read_ranking
from pipeline.stages.systems import Reranked, encoder_names, encoders, parse_systems
from tests.builders import make_corpus, make_pool
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.encode.stub import stub
from tests.encode.tiny import save_cross_encoder, words

__all__ = ["stub"]

CPU = Resources(memory=2**30, workers=1, device="cpu")
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
    cross = registry.resolve_cross_encoder(f"cross:{folder}")
    return corpus, pool, first, rerank_task(corpus, pool, first, cross, head=HEAD)


@pytest.mark.parametrize("texts", [False, True])
def test_the_head_is_that_of_sentence_transformers_and_the_rest_keeps_its_order(
    tmp_path: Path, stub: None, folder: Path, texts: bool
) -> None:
    corpus, _, first, task = world(tmp_path, folder, texts=texts)
    before, artifact = read_ranking(Runner(tmp_path, CPU).make(first)), Runner(tmp_path, CPU).make(task)
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
    Runner(tmp_path, CPU).make(first)
    whole = Runner(tmp_path, CPU).make(task)
    whole.path.rename(tmp_path / "whole")
    done: list[str] = []
    score = rerank._scores

    def fail(batches: Iterable[Encoded], unit: Any, progress: Any) -> Any:
        done.append(unit.path.name)
        if len(done) == 2:
            raise RuntimeError("killed")
        return score(batches, unit, progress)

    monkeypatch.setattr(rerank, "_scores", fail)
    with pytest.raises(RuntimeError, match="killed"):
        Runner(tmp_path, CPU).make(task)
    made = Runner(tmp_path, CPU).make(task)
    assert len(done) == 4
    assert len(set(done)) == 3
    assert made.manifest.outputs == whole.manifest.outputs
    made.path.rename(tmp_path / "made")

    def refuse(assignment: Any) -> list[Any]:
        raise RuntimeError("planned")

    with pytest.raises(RuntimeError, match="planned"):
        Runner(tmp_path, CPU, executor=refuse).make(task)
    assert sum(Runner(tmp_path, CPU).work_slice([task], Slice(number, 2)) for number in range(2)) == 3
    assert Runner(tmp_path, CPU, executor=refuse).make(task).manifest.outputs == whole.manifest.outputs


def test_names(folder: Path) -> None:
    text = f"rerank(rrf(bm25,lsa),cross:{folder}:max_length=64,compute=bfloat16,30),bm25"
    system, _ = parse_systems(text)
    assert isinstance(system, Reranked)
    assert (system.first.name, system.head, system.model.spec.max_length) == ("rrf(bm25,lsa)", 30, 64)
    assert system.model.spec.compute == "bfloat16"
    assert system.name == f"rerank(rrf(bm25,lsa),cross:{folder.name}:compute=bfloat16,max_length=64,30)"
    assert [model.name for model in encoders([system])] == encoder_names(text) == ["lsa"]
    (reduced,) = parse_systems(f"rerank(rrf(bm25,lsa),cross:{folder},30)", "bf16")
    assert isinstance(reduced, Reranked)
    assert reduced.name == f"rerank(rrf(bm25,lsa),cross:{folder.name}:compute=bfloat16,30)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rerank(bm25,cross:{folder})", "must name a system, a cross-encoder and a number"),
        ("rerank(bm25,{folder},10)", "must name a system, a cross-encoder and a number"),
        ("rerank(bm25,cross:{folder},0)", "must rerank a whole number of entries, got '0'"),
        ("rerank(bm25,cross:nowhere,10)", "must name a model of the hub or a folder"),
        ("rerank(bm25,cross:{folder}:pooling=cls,10)", "has no option 'pooling'"),
        ("rerank(rerank(bm25,cross:{folder},9),cross:{folder},10)", "is reranked already"),
        ("rrf(bm25,rerank(bm25,cross:{folder},10))", "fused already or reranked"),
    ],
)
def test_what_cannot_be_reranked_is_said(folder: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_systems(name.format(folder=folder))


def test_reranked_systems_in_the_table(tmp_path: Path, folder: Path) -> None:
    mdcr_json(tmp_path, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))
    pool = flags("--year 2019 --size 300 --queries 10 --samples 1")
    name = f"rerank(bm25:k1=1.2,b=0.5,cross:{folder}:max_length=64,10)"
    rows = mdcr_json(tmp_path, "eval", *pool, "--model", f"bm25:k1=1.2,b=0.5,{name}")["rows"]
    of = {(row["system"], row["sample"]): row["value"] for row in rows if row["measure"] == "recall@100"}
    shown = name.replace(str(folder), folder.name)
    assert {system for system, _ in of} == {"bm25:k1=1.2,b=0.5", shown}
    assert of[shown, 1] == of["bm25:k1=1.2,b=0.5", 1]
    assert len([each for each in published(tmp_path / RANKINGS) if each.manifest.stage == "rerank"]) == 1
    again = mdcr(tmp_path, "eval", *pool, "--model", f"bm25:k1=1.2,b=0.5,{name}", "--json")
    assert json.loads(again.stdout)["rows"] == rows
    assert "rerank:" not in again.stderr
    refused = mdcr(tmp_path, "eval", *pool, "--model", f"rerank(bm25,cross:{folder},30)", "--depth", "20")
    assert "must rerank at most --depth 20 entries" in one_line_error(refused)
