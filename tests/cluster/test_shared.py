"""Shared file systems: files that stay hidden are made again, folders stay small, slices lock nothing."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from pipeline.cluster.slices import plan_slices
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Slice, Task
from pipeline.encode import registry
from pipeline.stages.embed import embed_tasks
from tests.builders import made_up_paper, make_corpus, make_pool
from tests.cluster.stale import stale_view

HERE = Resources(memory=2**30, workers=1, device="cpu")
SLICES = 3


@pytest.fixture
def task(tmp_path: Path, stub: None) -> Task:
    corpus = make_corpus(tmp_path, [made_up_paper(number) for number in range(120)], shard_rows=10)
    return embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve("stub"))["paper"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.arrow"))}


def expected(tmp_path: Path, task: Task) -> dict[str, bytes]:
    made = Runner(tmp_path, HERE).make(task)
    files = contents(made.path)
    made.path.rename(tmp_path / "expected")
    return files


def slices(root: Path, task: Task) -> None:
    for number in range(SLICES):
        Runner(root, HERE).work_slice([task], Slice(number, SLICES))


def test_files_that_stay_hidden_are_made_again_to_the_same_bytes(tmp_path: Path, task: Task) -> None:
    whole = expected(tmp_path, task)
    (pending,) = plan_slices(tmp_path, HERE, [task])
    slices(tmp_path, task)
    with stale_view(tmp_path / "indexes", attributes=60, listings=0):
        (again,) = plan_slices(tmp_path, HERE, [task])
    assert again.units
    slices(tmp_path, task)
    assert not plan_slices(tmp_path, HERE, [task])
    assert contents(Runner(tmp_path, HERE).path(task)) == whole
    assert not pending.out.path.exists()


def test_slices_lock_nothing_and_keep_folders_small(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pending,) = plan_slices(tmp_path, HERE, [task])

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    most = 0
    for number in range(SLICES):
        Runner(tmp_path, HERE).work_slice([task], Slice(number, SLICES))
        count = sum(len(names) for _, _, names in os.walk(pending.out.path))
        most = max(most, count)
    assert most <= 2 * len(pending.units) + 2 + 1 + SLICES  # each shard and its record, the rows, the plan, facts
    assert not plan_slices(tmp_path, HERE, [task])  # a file system without locks publishes as well


def test_slices_of_several_kinds_of_processors_are_said(
    tmp_path: Path, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    (pending,) = plan_slices(tmp_path, HERE, [task])
    slices(tmp_path, task)
    facts = pending.out.path / f"scratch/facts-1-{SLICES}.json"
    records = json.loads(facts.read_text())
    here = records[0]["arithmetic"]
    facts.write_text(json.dumps([{**record, "arithmetic": "Other (avx2)"} for record in records]))
    made = Runner(tmp_path, HERE).make(task)
    assert made.manifest.provenance["hardware"] == sorted([here, "Other (avx2)"])
    line = f"{made.name} was computed on {', '.join(sorted([here, 'Other (avx2)']))}"
    assert line in capsys.readouterr().err
