"""Work in units: divided in any way, killed, doubled, its artifact is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, Job, Slice, UnitProvenance, divide, run_assignment
from pipeline.core.workdir import Workdir
from tests.core.letters import HERE, Together, make, together

TASK = together("abcdefg")


@pytest.fixture
def whole(tmp_path: Path) -> Artifact:
    return make(tmp_path / "whole", TASK)


@pytest.fixture
def planned(tmp_path: Path) -> Runner:
    """Plan the task, as submitting it does, and make nothing."""
    with pytest.raises(StageError, match="lacks 7 units"):
        divided(tmp_path, lambda _: [])
    return Runner(tmp_path, HERE)


def divided(root: Path, executor: Callable[[Assignment], list[UnitProvenance]] | None = None) -> Artifact:
    return Runner(root, HERE, executor=executor).make(TASK)


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 100)), st.integers(1, 9))
def test_every_unit_is_in_one_part(sizes: dict[str, int], count: int) -> None:
    parts = divide(sizes, count)
    assert len(parts) == count
    assert sorted(unit for part in parts for unit in part) == sorted(sizes)
    totals = [sum(sizes[unit] for unit in part) for part in parts]
    assert max(totals) - min(totals) <= max(sizes.values(), default=0)
    assert [Slice(index, count).units(sizes) for index in range(count)] == parts


@pytest.mark.parametrize("text", ["4/4", "1", "-1/3", "a/b", "0/0"])
def test_slices_as_users_write_them(text: str) -> None:
    assert Slice.parse("0/4") == Slice(0, 4)
    with pytest.raises(InputError, match="is not a slice"):
        Slice.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_slices_make_what_one_process_makes(whole: Artifact, planned: Runner, count: int) -> None:
    assert sum(planned.work_slice([TASK], Slice(index, count)) for index in range(count)) == 7
    assert not planned.path(TASK).exists()
    assert planned.work_slice([TASK], Slice(0, count)) == 0  # again: nothing is left
    sliced = divided(planned.root)
    assert sliced.manifest.outputs == whole.manifest.outputs
    assert sliced.manifest.counts == whole.manifest.counts
    assert sliced.manifest.provenance["made"] == whole.manifest.provenance["made"]
    assert sorted(path.name for path in sliced.path.iterdir()) == sorted(path.name for path in whole.path.iterdir())
    assert planned.work_slice([TASK], Slice(0, count)) == 0  # after publishing as well


def test_processes_make_what_one_process_makes(whole: Artifact, tmp_path: Path) -> None:
    several = make(tmp_path, together("abcdefg", processes=3))
    assert several.manifest.outputs == whole.manifest.outputs


def test_a_slice_of_what_was_not_planned_is_nothing(tmp_path: Path) -> None:
    assert Runner(tmp_path, HERE).work_slice([TASK], Slice(0, 1)) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lost_slice_is_what_is_missing(planned: Runner) -> None:
    for index in (0, 2):
        planned.work_slice([TASK], Slice(index, 3))
    work = Workdir(planned.work_folder(TASK))
    units = work.plan()
    assert units is not None
    assert [unit for unit in units if not work.done(unit)] == Slice(1, 3).units(units)
    with pytest.raises(StageError, match="lacks .* unit"):
        divided(planned.root, lambda _: [])
    assert divided(planned.root).manifest.counts == {"bytes": 7}


def test_a_damaged_unit_is_made_again(whole: Artifact, planned: Runner) -> None:
    planned.work_slice([TASK], Slice(0, 1))
    (planned.work_folder(TASK) / "c").write_text("C")
    left: list[str] = []

    def note(assignment: Assignment) -> list[UnitProvenance]:
        left.extend(assignment.sizes)
        return [run_assignment(assignment)]

    assert divided(planned.root, note).manifest.outputs == whole.manifest.outputs
    assert left == ["c"]


def test_a_doubled_assignment_makes_nothing_twice(planned: Runner) -> None:
    work = Workdir(planned.work_folder(TASK))
    assignment = Assignment(Together(), (Job({}, work, work.plan() or {}),), HERE, True)
    assert run_assignment(assignment)["made"] == sorted(assignment.sizes)
    before = {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")}
    assert run_assignment(assignment) == {}
    for letter in assignment.sizes:  # two at once: the second writes the same again
        with work.file(letter) as (path, written):
            path.write_text(letter)
            written.counts = {"bytes": 1}
    assert {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")} == before
