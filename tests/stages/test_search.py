"""Searching pools: what is ranked, what is counted, and that settings of a run change no byte."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import registry
from pipeline.encode.base import Encoded
from pipeline.retrieve.base import Metric
from pipeline.retrieve.engines import IndexSettings
from pipeline.stages.dense import approximate_ranking_task, dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from tests.builders import make_corpus, make_pool
from tests.encode.stub import Stub, StubEncoder, unit_vector
from tests.retrieve.reference import brute_force
from tests.stages.making import make

pytestmark = pytest.mark.usefixtures("stub")
PAPERS = 70


class SeveralStub(Stub):
    multi_vector = True


def several() -> SeveralStub:
    """Return the stub as an encoder of several vectors a text."""
    stub = registry.resolve("stub")
    return SeveralStub(**{field.name: getattr(stub, field.name) for field in dataclasses.fields(stub) if field.init})


def dense(
    corpus: Artifact,
    pool: Artifact,
    *,
    metric: Metric = "l2",
    depth: int = 10,
    multi_vector: bool = False,
) -> Task:
    model = dataclasses.replace(several() if multi_vector else registry.resolve("stub"), distance=metric)
    return dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model, depth=depth)


def entries(artifact: Artifact, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in artifact.arrow("ranking.arrow").select(columns).to_pylist()]


def test_ranking_is_that_of_brute_force(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=25)
    pool = make_pool(tmp_path, corpus, [3, 30, 60], list(range(10, 70)), exclusions=[(3, 11), (30, 30), (60, 60)])
    artifact = make(tmp_path, dense(corpus, pool, metric="cosine", depth=20))
    opened = Pool(pool, Corpus(corpus))
    store = store_of(make(tmp_path, embed_tasks(corpus, pool, registry.resolve("stub"))["paper"]))
    rows, vectors = next(store.blocks(opened.candidates, 100))
    queries = next(store.blocks(opened.query_rows, 100)).vectors
    expected = brute_force(queries, rows, vectors, "cosine", 20, opened.exclusions)
    assert artifact.arrow("ranking.arrow").equals(expected.table())
    assert artifact.manifest.counts == {
        "queries": 3,
        "queries_without_results": 0,
        "candidates": 60,
        "excluded": 3,
        "entries": 60,
        "depth": 20,
    }


def test_how_it_ran_changes_no_byte_and_no_name(tmp_path: Path) -> None:
    made = []
    for workers, memory in ((1, 2**30), (3, 2**16), (2, 2**20)):
        root = tmp_path / str(workers)
        corpus = make_corpus(root, PAPERS, shard_rows=25)
        pool = make_pool(root, corpus, list(range(0, PAPERS, 3)))
        made.append(make(root, dense(corpus, pool), resources=Resources(memory, workers, "cpu")))
    assert len({(artifact.name, artifact.file("ranking.arrow").read_bytes()) for artifact in made}) == 1


def test_query_texts_are_searched(tmp_path: Path) -> None:
    corpus = make_corpus(
        tmp_path,
        [{"paper_id": str(n), "title": word} for n, word in enumerate(("kiwi", "melon", "plum"))],
        query_texts={"q2": "plum", "q1": "melon"},
        judgements=[("q1", "1", 1), ("q2", "2", 1)],
    )
    artifact = make(tmp_path, dense(corpus, make_pool(tmp_path, corpus), depth=1))
    assert entries(artifact, "query", "row") == [(0, 1), (1, 2)]


def test_a_pool_without_queries(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 9)
    artifact = make(tmp_path, dense(corpus, make_pool(tmp_path, corpus, [], list(range(9)))))
    assert artifact.manifest.counts["entries"] == artifact.arrow("ranking.arrow").num_rows == 0


def test_rankings_load_without_faiss_java_or_numba() -> None:
    code = (
        "import sys, pipeline.stages.bm25; "
        "print([m for m in ('numba', 'faiss', 'jnius', 'torch', 'pyserini') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class SeveralEncoder(StubEncoder):
    """One to three vectors a text, two of them those of other texts, so that pairs tie."""

    def finish(self, prepared: Sequence[Text]) -> Iterator[Encoded]:
        lengths = [len(text.title) for text in prepared]
        vectors = [unit_vector(Text(f"{n + step}", ""), 32) for n in lengths for step in range(1 + n % 3)]
        owners = np.repeat(np.arange(len(prepared)), [1 + n % 3 for n in lengths])
        yield Encoded(owners, np.stack(vectors), len(prepared), 1, 1)


def no_vector(text: Text, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return zero for titles that begin with ``zero``, else a direction."""
    return unit_vector(text, dimension) * np.float32(not text.title.startswith("zero"))


class SomeZeroEncoder(StubEncoder):
    """Two vectors a text, the first of them zero; both for titles that begin with ``zero``."""

    def finish(self, prepared: Sequence[Text]) -> Iterator[Encoded]:
        vectors = np.stack([no_vector(text, 32) * np.float32(n) for text in prepared for n in (0, 1)])
        yield Encoded(np.repeat(np.arange(len(prepared)), 2), vectors, len(prepared), 1, 1)


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner_product"])
@pytest.mark.parametrize("how", ["exact", "several", "ivf"])
def test_a_query_whose_vectors_are_zero_has_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, metric: Metric
) -> None:
    """A zero candidate is ranked: it may be near a query."""
    monkeypatch.setattr("tests.encode.stub.unit_vector", no_vector)
    if how == "several":
        monkeypatch.setattr("tests.encode.stub.StubEncoder", SomeZeroEncoder)
    titles = [f"zero {n}" if n in (0, 4, 9) else f"title {n}" for n in range(30)]
    corpus = make_corpus(tmp_path, [{"paper_id": f"{n:02}", "title": t} for n, t in enumerate(titles)], shard_rows=11)
    pool = make_pool(tmp_path, corpus, [0, 1, 4, 7, 9])
    task = dense(corpus, pool, metric=metric, depth=29, multi_vector=how == "several")
    if how == "ivf":
        model = dataclasses.replace(registry.resolve("stub"), distance=metric)
        vectors, settings = embed_tasks(corpus, pool, model), IndexSettings("IVF5,Flat", "nprobe=5")
        task = approximate_ranking_task(corpus, pool, vectors, model, task, depth=29, settings=settings)
    made = make(tmp_path, task)
    query, row = zip(*entries(made, "query", "row"), strict=True)
    assert np.bincount(query, minlength=5).tolist() == [0, 29, 0, 29, 0]
    assert made.manifest.counts["queries_without_results"] == 3
    assert {0, 4, 9} <= set(row)


def test_papers_with_several_vectors_are_ranked_by_the_best_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.encode.stub.StubEncoder", SeveralEncoder)
    corpus = make_corpus(tmp_path, [{"paper_id": f"{n:03}", "title": "t" * (1 + n * n % 11)} for n in range(60)])
    pools = [make_pool(tmp_path, corpus, [3, 30, 50], list(range(n, 60)), slug=f"from{n}") for n in (0, 40)]
    made = [make(tmp_path, dense(corpus, pool, depth=20, multi_vector=True)) for pool in pools]
    model = several()
    store = store_of(make(tmp_path, embed_tasks(corpus, pools[0], model)["paper"]))
    for artifact, pool in zip(made, pools, strict=True):
        opened = Pool(pool, Corpus(corpus))
        candidates, queries = (store.grouped(rows) for rows in (opened.candidates, opened.query_rows))
        counts = np.diff(candidates.offsets)
        assert set(counts.tolist()) == {1, 2, 3}
        rows = np.repeat(opened.candidates, counts)
        expected = brute_force(queries, rows, candidates.vectors, "l2", 20, opened.exclusions)
        assert artifact.arrow("ranking.arrow").equals(expected.table())
