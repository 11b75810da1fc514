"""Plan units that processes started by hand make in slices, such as by an array of PBS or SGE."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Assignment, Facts, Task


class Pending(NamedTuple):
    """A task with planned units, some of them missing: its work folder, sizes of all units, names of the missing."""

    task: Task
    work: Path
    units: dict[str, int]
    missing: tuple[str, ...]


class _MissingError(Exception):
    """Raised instead of making units."""


def plan_slices(root: Path, resources: Resources, targets: Iterable[Task]) -> list[Pending]:
    """Make the tasks without units, publish those with all units, and plan the units of the others.

    Tasks that wait for units of others are left out.
    """
    runner = Runner(root, resources, executor=_refuse)
    pending: list[Pending] = []
    for task in with_inputs(targets):
        sequential = task.units is not None and task.units.sequential
        waits = sequential and any(earlier.task.folder == task.folder for earlier in pending)
        ready = all(isinstance(source, Artifact) or runner.published(source) for source in task.reads.values())
        if waits or not ready or runner.published(task):
            continue
        try:
            runner.make(task)
        except _MissingError as missing:
            (job,) = missing.args[0].jobs
            pending.append(Pending(task, job.out.path, job.out.plan() or {}, tuple(job.units)))
    return pending


def _refuse(assignment: Assignment) -> list[Facts]:
    raise _MissingError(assignment)
