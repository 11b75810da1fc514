"""Dense search in units: the ranking of one pass, to the byte, ties included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.task import Task
from pipeline.encode import registry
from pipeline.retrieve import exact
from pipeline.stages import dense
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks
from tests.builders import make_corpus, make_pool
from tests.stages.making import apart, make

pytestmark = pytest.mark.usefixtures("stub")
PAPERS = 120


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    """Papers of which every seventh has the same text: their vectors, hence scores, are equal in every shard."""
    papers = [
        {"paper_id": f"{n:05d}", "title": f"title {0 if n % 7 == 0 else n}", "abstract": "the same"}
        for n in range(PAPERS)
    ]
    return make_corpus(tmp_path, papers, shard_rows=11)


def ranking_task(root: Path, corpus: Artifact, pool: Artifact, depth: int) -> Task:
    """Return the task that ranks a pool, after embedding it."""
    model = registry.resolve("stub")
    vectors = embed_tasks(corpus, pool, model)
    make(root, vectors["paper"])
    return dense_ranking_task(corpus, pool, vectors, model, depth=depth)


def made_and_moved(root: Path, task: Task) -> Artifact:
    """Make an artifact and move it, so that it is missing; what it recorded stays in memory."""
    artifact = make(root, task)
    artifact.path.rename(root / artifact.name)
    return artifact


@pytest.mark.parametrize(("parts", "most", "depth"), [(3, 64, 3), (4, 2, 200), (5, 1, 3)])
def test_parts_rank_as_one_pass_does(
    tmp_path: Path, corpus: Artifact, monkeypatch: pytest.MonkeyPatch, parts: int, most: int, depth: int
) -> None:
    monkeypatch.setattr(dense, "MOST_UNITS", most)
    pool = make_pool(tmp_path, corpus, [0, 5, 7, 119], [*range(40), *range(55, 120)])
    task = ranking_task(tmp_path, corpus, pool, depth)
    whole = made_and_moved(tmp_path, task)
    units: list[str] = []
    sliced = apart(tmp_path, parts, units).make(task)
    assert len(units) == min(most, 11)
    assert sliced.manifest.outputs == whole.manifest.outputs
    assert sliced.manifest.counts == whole.manifest.counts
    scores = sliced.arrow("ranking.arrow").column("score").to_numpy()
    assert len(np.unique(scores)) < len(scores)  # there were ties to break


def test_a_killed_search_continues_after_the_last_finished_unit(
    tmp_path: Path, corpus: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many units the next run would have planned itself."""
    monkeypatch.setattr(dense, "LOCAL_UNIT", 30)
    task = ranking_task(tmp_path, corpus, make_pool(tmp_path, corpus, [0, 5]), 9)
    whole = made_and_moved(tmp_path, task)
    passes: list[int] = []
    search = exact.search

    def fail(*args: Any, **how: Any) -> Any:
        passes.append(how["count"])
        if len(passes) == 3:
            raise RuntimeError("killed")
        return search(*args, **how)

    monkeypatch.setattr(exact, "search", fail)
    with pytest.raises(RuntimeError, match="killed"):
        make(tmp_path, task)
    monkeypatch.setattr(dense, "LOCAL_UNIT", 1_000)
    made = make(tmp_path, task)
    assert len(passes) == 5  # four units, one of them twice
    assert made.manifest.outputs == whole.manifest.outputs


def test_a_pool_without_candidates(tmp_path: Path, corpus: Artifact) -> None:
    task = ranking_task(tmp_path, corpus, make_pool(tmp_path, corpus, [3], []), 5)
    assert make(tmp_path, task).manifest.counts["entries"] == 0
