"""Making artifacts, also in parts, and damaging them."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, Task, UnitProvenance, divide, run_assignment

HERE = Resources(memory=2**30, workers=2, device="cpu")


def make(root: Path, task: Task, *, repair: bool = False, resources: Resources = HERE) -> Artifact:
    return Runner(root, resources, repair=repair).make(task)


def apart(root: Path, count: int, made: list[str] | None = None) -> Runner:
    """Return a runner whose units are made in so many parts, one after the other; ``made`` gets their names."""

    def executor(assignment: Assignment) -> list[UnitProvenance]:
        (made if made is not None else []).extend(assignment.units)
        return [run_assignment(assignment.only(units)) for units in divide(assignment.units, count)]

    return Runner(root, HERE, executor=executor)


def flip(path: Path, place: int = -100) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
