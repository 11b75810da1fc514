"""Search in slices: the ranking of one pass, to the byte, ties included."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.task import Task
from pipeline.core.units import Assignment, Slice
from pipeline.encode import registry
from pipeline.runner import Runner
from pipeline.stages import ranking
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks
from tests.builders import make_corpus, make_pool
from tests.encode.stub import stub

__all__ = ["stub"]

HERE = Resources(memory=2**30, workers=1, device="cpu")
PAPERS = 120


class PlannedError(Exception):
    """Raised where units would be made."""


def refuse(assignment: Assignment) -> list[dict[str, object]]:
    raise PlannedError


def world(root: Path, queries: list[int], candidates: list[int]) -> tuple[Artifact, Artifact]:
    """Papers of which every seventh has the same text: their vectors, hence scores, are equal in every shard."""
    papers = [
        {"paper_id": f"{n:05d}", "title": f"title {0 if n % 7 == 0 else n}", "abstract": "the same"}
        for n in range(PAPERS)
    ]
    corpus = make_corpus(root, papers, shard_rows=11)
    return corpus, make_pool(root, corpus, queries, candidates)


def ranking_task(corpus: Artifact, pool: Artifact, depth: int, engine: str) -> Task:
    embedded = embed_tasks(corpus, pool, registry.resolve("stub"))
    task = dense_ranking_task(corpus, pool, embedded, name="stub", metric="l2", depth=depth, engine=engine)
    return dataclasses.replace(task, units=ranking.DenseSearch("stub", "l2", depth, engine))


@pytest.mark.parametrize("engine", ["exact", "faiss"])
@pytest.mark.parametrize(("slices", "most"), [(1, 64), (3, 64), (4, 2), (5, 1)])
@pytest.mark.parametrize("depth", [3, 17, 200])
def test_slices_rank_as_one_pass_does(
    tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch, slices: int, most: int, depth: int, engine: str
) -> None:
    monkeypatch.setattr(ranking, "MOST_UNITS", most)
    corpus, pool = world(tmp_path, [0, 5, 7, 119], [*range(40), *range(55, 120)])
    task = ranking_task(corpus, pool, depth, engine)
    for each in embed_tasks(corpus, pool, registry.resolve("stub")).values():
        Runner(tmp_path, HERE).make(each)
    whole = Runner(tmp_path, HERE).make(task)
    whole.path.rename(tmp_path / "whole")
    with pytest.raises(PlannedError):
        Runner(tmp_path, HERE, executor=refuse).make(task)
    made = [Runner(tmp_path, HERE).work_slice(task, Slice(number, slices)) for number in range(slices)]
    assert sum(made) == min(most, 10)
    sliced = Runner(tmp_path, HERE, executor=refuse).make(task)
    assert sliced.manifest.outputs == Artifact.open(tmp_path / "whole").manifest.outputs
    assert sliced.manifest.counts == whole.manifest.counts
    scores = sliced.arrow("ranking.arrow").column("score").to_numpy()
    assert len(np.unique(scores)) < len(scores)  # there were ties to break


def test_a_pool_without_candidates(tmp_path: Path, stub: None) -> None:
    corpus, pool = world(tmp_path, [3], [])
    task = ranking_task(corpus, pool, 5, "exact")
    Runner(tmp_path, HERE).make(embed_tasks(corpus, pool, registry.resolve("stub"))["paper"])
    made = Runner(tmp_path, HERE, executor=refuse).make(task)
    assert made.manifest.counts["entries"] == 0
