"""Work in units: divided in any way, killed, doubled, its artifact is the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Facts, Inputs, Job, Task
from pipeline.core.units import Assignment, Slice, divide, run_assignment
from pipeline.core.workdir import Workdir

HERE = Resources(memory=2**30, workers=2, device="cpu")


@dataclass(frozen=True)
class Letters:
    """A unit a letter."""

    letters: str
    processes: int = 1
    sequential = False
    accelerated = False

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        return {f"{letter}.txt": number + 1 for number, letter in enumerate(self.letters)}

    def devices(self, resources: Resources) -> list[str]:
        return [resources.device] * self.processes

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        for job in jobs:
            for unit in job.units:
                with job.out.file(unit) as (path, written):
                    path.write_text(unit[0] * 3)
                    written.rows = 3
        return {"made": [unit for job in jobs for unit in job.units]}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:
        out.note(made=sorted(unit for each in facts for unit in each["made"]))
        return {"letters": len(out.outputs())}


def task(letters: str = "abcdefg", processes: int = 1) -> Task:
    return Task("letters", 1, "room", letters, {"letters": letters}, {}, units=Letters(letters, processes))


def make(root: Path, **options: object) -> Artifact:
    return Runner(root, HERE, **options).make(task())  # type: ignore[arg-type]


class StoppedError(Exception):
    """Raised where units would be made."""


def plan_only(root: Path) -> Runner:
    """Plan the task, as submitting it does, and make nothing."""

    def refuse(assignment: Assignment) -> list[Facts]:
        raise StoppedError

    with pytest.raises(StoppedError):
        make(root, executor=refuse)
    return Runner(root, HERE)


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 100)), st.integers(1, 9))
def test_every_unit_is_in_one_part(sizes: dict[str, int], count: int) -> None:
    assignments = divide(sizes, count)
    assert len(assignments) == count
    assert sorted(unit for assignment in assignments for unit in assignment) == sorted(sizes)
    totals = [sum(sizes[unit] for unit in assignment) for assignment in assignments]
    assert max(totals) - min(totals) <= max(sizes.values(), default=0)
    assert [Slice(index, count).units(sizes) for index in range(count)] == assignments


def test_slices_as_users_write_them() -> None:
    assert Slice.parse("0/4") == Slice(0, 4)
    for text in ("4/4", "1", "-1/3", "a/b", "0/0"):
        with pytest.raises(InputError, match="is not a slice"):
            Slice.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_slices_make_what_one_process_makes(tmp_path: Path, count: int) -> None:
    whole = make(tmp_path / "whole")
    runner = plan_only(tmp_path / "slices")
    made = [runner.work_slice([task()], Slice(index, count)) for index in range(count)]
    assert sum(made) == 7
    assert not runner.path(task()).exists()
    assert runner.work_slice([task()], Slice(0, count)) == 0  # again: nothing is left
    sliced = make(tmp_path / "slices")
    assert sliced.manifest.outputs == whole.manifest.outputs
    assert sliced.manifest.counts == whole.manifest.counts
    assert sliced.manifest.provenance["made"] == whole.manifest.provenance["made"]
    assert sorted(path.name for path in sliced.path.iterdir()) == sorted(path.name for path in whole.path.iterdir())
    assert runner.work_slice([task()], Slice(0, count)) == 0  # after publishing as well


def test_processes_make_what_one_process_makes(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    several = Runner(tmp_path / "several", HERE).make(task(processes=3))
    assert several.manifest.outputs == whole.manifest.outputs


def test_a_slice_of_what_was_not_planned_is_nothing(tmp_path: Path) -> None:
    assert Runner(tmp_path, HERE).work_slice([task()], Slice(0, 1)) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lost_slice_is_what_is_missing(tmp_path: Path) -> None:
    runner = plan_only(tmp_path)
    for index in (0, 2):
        runner.work_slice([task()], Slice(index, 3))
    work = Workdir(runner.work_folder(task()))
    units = work.plan()
    assert units is not None
    assert [unit for unit in units if not work.done(unit)] == Slice(1, 3).units(units)
    with pytest.raises(StageError, match="units of .* are missing"):
        make(tmp_path, executor=lambda assignment: [])
    assert make(tmp_path).manifest.counts == {"letters": 7}


def test_a_damaged_unit_is_made_again(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    runner = plan_only(tmp_path / "damaged")
    runner.work_slice([task()], Slice(0, 1))
    (runner.work_folder(task()) / "c.txt").write_text("ccX")
    left: list[str] = []

    def note(assignment: Assignment) -> list[Facts]:
        left.extend(assignment.sizes)
        return [run_assignment(assignment)]

    assert make(tmp_path / "damaged", executor=note).manifest.outputs == whole.manifest.outputs
    assert left == ["c.txt"]


def test_a_doubled_assignment_makes_nothing_twice(tmp_path: Path) -> None:
    runner = plan_only(tmp_path)
    work = Workdir(runner.work_folder(task()))
    assignment = Assignment(Letters("abcdefg"), (Job({}, work, work.plan() or {}),), HERE, True)
    assert run_assignment(assignment)["made"] == sorted(assignment.sizes)
    before = {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")}
    assert run_assignment(assignment) == {}
    assignment.stage.work(assignment.jobs, HERE)  # two at once: the second writes the same again
    assert {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")} == before
