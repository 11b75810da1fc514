"""Making artifacts, planning them without making units, and damaging them."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, Slice, Task, UnitProvenance

HERE = Resources(memory=2**30, workers=2, device="cpu")


class PlannedError(Exception):
    """Raised where units would be made."""


def make(root: Path, task: Task, *, repair: bool = False, resources: Resources = HERE) -> Artifact:
    return Runner(root, resources, repair=repair).make(task)


def planning(root: Path) -> Runner:
    """Return a runner that makes no unit: it raises :class:`PlannedError` where one is missing."""

    def refuse(assignment: Assignment) -> list[UnitProvenance]:
        raise PlannedError

    return Runner(root, HERE, executor=refuse)


def work_slices(root: Path, tasks: list[Task], count: int) -> int:
    """Make the units of planned tasks in so many slices; return the number of units."""
    return sum(Runner(root, HERE).work_slice(tasks, Slice(number, count)) for number in range(count))


def flip(path: Path, place: int = -100) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
