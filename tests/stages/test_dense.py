"""Dense search in units: the ranking of one pass, to the byte, ties included."""

from __future__ import annotations

import shutil
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
from tests.encode.stub import unit_vector
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


@pytest.mark.parametrize("units", [1, 4])
def test_a_search_goes_on_from_a_part(
    tmp_path: Path, corpus: Artifact, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    """Of a pool that is no part, or that excludes other candidates, nothing is taken."""
    monkeypatch.setattr(dense, "LOCAL_UNIT", 120 // units)
    queries, few = [0, 5, 7], list(range(0, 120, 2))
    large = make_pool(tmp_path, corpus, queries, list(range(120)), exclusions=[(0, 4), (5, 5)], slug="large")
    parts = {
        "part": (make_pool(tmp_path, corpus, queries, few, exclusions=[(0, 4)], slug="part"), 60),
        "other": (make_pool(tmp_path, corpus, queries, few, exclusions=[(0, 6)], slug="other"), 120),
        "queries": (make_pool(tmp_path, corpus, [0, 5, 8], few, exclusions=[(0, 4)], slug="queries"), 120),
    }
    alone = made_and_moved(tmp_path, ranking_task(tmp_path, corpus, large, 9))
    searched: list[int] = []
    search = exact.search
    monkeypatch.setattr(exact, "search", lambda *args, **how: (searched.append(how["count"]), search(*args, **how))[1])
    model = registry.resolve("stub")
    for pool, candidates in parts.values():
        ranking = ranking_task(tmp_path, corpus, pool, 9)
        make(tmp_path, ranking)
        searched.clear()
        vectors = embed_tasks(corpus, large, model)
        task = dense_ranking_task(corpus, large, vectors, model, depth=9, smaller=(pool, ranking))
        made = make(tmp_path, task)
        assert made.manifest.outputs == alone.manifest.outputs
        assert sum(searched) == candidates
        shutil.rmtree(made.path)


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


def test_vectors_that_float32_does_not_tell_apart_are_said(
    tmp_path: Path, corpus: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, ranking_task(tmp_path, corpus, make_pool(tmp_path, corpus, [0, 5], slug="apart"), 9))
    assert "does not tell" not in capsys.readouterr().err
    monkeypatch.setattr(
        "tests.encode.stub.unit_vector", lambda text, dimension: 1e5 + unit_vector(text, dimension) / 1e3
    )
    root = tmp_path / "alike"
    other = make_corpus(root, 40)
    make(root, ranking_task(root, other, make_pool(root, other, [0, 5]), 9))
    assert "does not tell 9" in capsys.readouterr().err
