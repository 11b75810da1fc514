"""Shared file systems: files that stay hidden are made again, folders stay small, workers lock nothing."""

from __future__ import annotations

import fcntl
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, Executor, Task, UnitProvenance, divide, run_assignment
from pipeline.encode import registry
from pipeline.stages.embed import embed_tasks
from tests.builders import made_up_paper, make_corpus, make_pool
from tests.cluster.stale import stale_view

HERE = Resources(memory=2**30, workers=1, device="cpu")


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


def apart(count: int = 3) -> Executor:
    return lambda assignment: [run_assignment(assignment.only(units)) for units in divide(assignment.units, count)]


def test_files_that_stay_hidden_are_made_again_to_the_same_bytes(tmp_path: Path, task: Task) -> None:
    whole, missing = expected(tmp_path, task), []

    def killed(assignment: Assignment) -> list[UnitProvenance]:
        missing.append(len(assignment.units))
        apart()(assignment)
        raise KeyboardInterrupt

    for hidden in (False, True):
        view = stale_view(tmp_path / "indexes", attributes=60, listings=0) if hidden else nullcontext()
        with pytest.raises(KeyboardInterrupt), view:
            Runner(tmp_path, HERE, executor=killed).make(task)
    assert missing[1] > 0
    assert contents(Runner(tmp_path, HERE, executor=apart()).make(task).path) == whole


def test_parts_lock_nothing_and_keep_folders_small(tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks publishes as well."""

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    counts = []

    def counting(assignment: Assignment) -> list[UnitProvenance]:
        facts = []
        for units in divide(assignment.units, 3):
            facts.append(run_assignment(assignment.only(units)))
            files = sum(len(names) for _, _, names in os.walk(assignment.out.path))
            counts.append(files - 2 * len(assignment.units))
        return facts

    Runner(tmp_path, HERE, executor=counting).make(task)
    assert max(counts) <= 2 + 1  # beside each shard and its record: the rows and theirs, the plan
