"""Dense search in units: the ranking of one pass, to the byte, ties included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.units import Assignment, Slice, run_here
from pipeline.encode import registry
from pipeline.stages import dense
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
    model = registry.resolve("stub")
    return dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model, depth=depth, engine=engine)


def embed(root: Path, corpus: Artifact, pools: list[Artifact]) -> None:
    for pool in pools:
        Runner(root, HERE).make(embed_tasks(corpus, pool, registry.resolve("stub"))["paper"])


@pytest.mark.parametrize("engine", ["exact", "faiss"])
@pytest.mark.parametrize(("slices", "most", "depth"), [(3, 64, 3), (4, 2, 200), (5, 1, 3)])
def test_slices_rank_as_one_pass_does(
    tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch, slices: int, most: int, depth: int, engine: str
) -> None:
    monkeypatch.setattr(dense, "MOST_UNITS", most)
    corpus, pool = world(tmp_path, [0, 5, 7, 119], [*range(40), *range(55, 120)])
    task = ranking_task(corpus, pool, depth, engine)
    embed(tmp_path, corpus, [pool])
    whole = Runner(tmp_path, HERE).make(task)
    whole.path.rename(tmp_path / "whole")
    with pytest.raises(PlannedError):
        Runner(tmp_path, HERE, executor=refuse).make(task)
    made = [Runner(tmp_path, HERE).work_slice([task], Slice(number, slices)) for number in range(slices)]
    assert sum(made) == min(most, 11)
    sliced = Runner(tmp_path, HERE, executor=refuse).make(task)
    assert sliced.manifest.outputs == whole.manifest.outputs
    assert sliced.manifest.counts == whole.manifest.counts
    scores = sliced.arrow("ranking.arrow").column("score").to_numpy()
    assert len(np.unique(scores)) < len(scores)  # there were ties to break


def test_a_slice_ranks_several_pools_in_one_pass(tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools with the same queries, one of them without candidates in most shards, and one with other queries."""
    corpus, pool = world(tmp_path, [0, 5, 7], list(range(0, 120, 2)))
    pools = [
        pool,
        make_pool(tmp_path, corpus, [0, 5, 7], list(range(30, 40)), slug="few"),
        make_pool(tmp_path, corpus, [8], list(range(120)), slug="other"),
    ]
    tasks = [ranking_task(corpus, each, 9, "exact") for each in pools]
    embed(tmp_path, corpus, pools)
    alone = [Runner(tmp_path, HERE).make(task) for task in tasks]
    for artifact in alone:
        artifact.path.rename(tmp_path / artifact.name)
    for task in tasks:
        with pytest.raises(PlannedError):
            Runner(tmp_path, HERE, executor=refuse).make(task)
    passes: list[int] = []
    one_pass = dense.DenseSearch._pass

    def count(self: dense.DenseSearch, parts: Sequence[Any], title: str, resources: Resources) -> str:
        passes.append(len(parts))
        return one_pass(self, parts, title, resources)

    monkeypatch.setattr(dense.DenseSearch, "_pass", count)
    assert sum(Runner(tmp_path, HERE).work_slice(tasks, Slice(number, 2)) for number in range(2)) == 33
    assert sorted(passes) == [1] * 11 + [2] * 11
    made = Runner(tmp_path, HERE, executor=refuse).make_all(tasks)
    assert [each.manifest.outputs for each in made] == [each.manifest.outputs for each in alone]


def test_a_killed_search_continues_after_the_last_finished_unit(
    tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many units the next run would have planned itself."""
    monkeypatch.setattr(dense, "LOCAL_UNIT", 30)
    corpus, pool = world(tmp_path, [0, 5], list(range(120)))
    task = ranking_task(corpus, pool, 9, "exact")
    embed(tmp_path, corpus, [pool])
    whole = Runner(tmp_path, HERE).make(task)
    whole.path.rename(tmp_path / "whole")
    left: list[int] = []
    one_pass = dense.DenseSearch._pass

    def fail(self: dense.DenseSearch, parts: Sequence[Any], title: str, resources: Resources) -> str:
        left.append(len(parts[0].candidates))
        if len(left) == 3:
            raise RuntimeError("killed")
        return one_pass(self, parts, title, resources)

    monkeypatch.setattr(dense.DenseSearch, "_pass", fail)
    with pytest.raises(RuntimeError, match="killed"):
        Runner(tmp_path, HERE).make(task)
    monkeypatch.setattr(dense, "LOCAL_UNIT", 1_000)
    made = Runner(tmp_path, HERE).make(task)
    assert len(left) == 5
    assert sum(left[:2] + left[3:]) == 120
    assert made.manifest.outputs == whole.manifest.outputs


def test_a_pool_without_candidates(tmp_path: Path, stub: None) -> None:
    corpus, pool = world(tmp_path, [3], [])
    embed(tmp_path, corpus, [pool])
    made = Runner(tmp_path, HERE, executor=run_here).make(ranking_task(corpus, pool, 5, "exact"))
    assert made.manifest.counts["entries"] == 0
