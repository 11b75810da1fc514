"""Work in units: divided in any way, killed, doubled, its artifact is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.artifact import Artifact
from pipeline.core.errors import StageError
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, UnitProvenance, divide, run_assignment
from pipeline.core.workdir import Workdir
from tests.core.letters import HERE, Units, in_units, make

TASK = in_units("abcdefg")


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


def parts(count: int, without: int = -1) -> Callable[[Assignment], list[UnitProvenance]]:
    """Return an executor that makes units in parts, but for one."""

    def executor(assignment: Assignment) -> list[UnitProvenance]:
        divided = divide(assignment.units, count)
        return [
            run_assignment(assignment.only(units)) for part, units in enumerate(divided) if units and part != without
        ]

    return executor


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 100)), st.integers(1, 9))
def test_every_unit_is_in_one_part(sizes: dict[str, int], count: int) -> None:
    parts = divide(sizes, count)
    assert len(parts) == count
    assert sorted(unit for part in parts for unit in part) == sorted(sizes)
    totals = [sum(sizes[unit] for unit in part) for part in parts]
    assert max(totals) - min(totals) <= max(sizes.values(), default=0)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_parts_make_what_one_process_makes(whole: Artifact, planned: Runner, count: int) -> None:
    made = divided(planned.root, parts(count))
    assert made.manifest.outputs == whole.manifest.outputs
    assert made.manifest.counts == whole.manifest.counts
    assert made.manifest.provenance["made"] == whole.manifest.provenance["made"]
    assert sorted(path.name for path in made.path.iterdir()) == sorted(path.name for path in whole.path.iterdir())


def test_a_lost_part_is_what_is_missing(planned: Runner) -> None:
    with pytest.raises(StageError, match="lacks .* unit"):
        divided(planned.root, parts(3, without=1))
    work = Workdir(planned.work_folder(TASK))
    units = work.plan()
    assert units is not None
    assert [unit for unit in units if not work.done(unit)] == divide(units, 3)[1]
    assert divided(planned.root).manifest.counts == {"bytes": 7}


def test_a_doubled_assignment_makes_nothing_twice(planned: Runner) -> None:
    work = Workdir(planned.work_folder(TASK))
    assignment = Assignment(Units(), {}, work, work.plan() or {}, HERE, True)
    assert run_assignment(assignment)["made"] == sorted(assignment.units)
    before = {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")}
    assert run_assignment(assignment) == {}
    for letter in assignment.units:  # two at once: the second writes the same again
        with work.file(letter) as (path, written):
            path.write_text(letter)
            written.counts = {"bytes": 1}
    assert {record.name: json.loads(record.read_text()) for record in work.path.glob(".*.done")} == before
