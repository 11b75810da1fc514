"""Plan units that processes started by hand make in slices, such as by an array of PBS or SGE."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.cluster.jobs import wait_for_workers
from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Assignment, Job, Task, UnitProvenance


class _MissingError(Exception):
    """Raised instead of making units; its argument is the assignment."""


def plan_slices(root: Path, resources: Resources, targets: Iterable[Task]) -> list[Job]:
    """Make the tasks without units, publish those with all units, and plan the units of the others.

    Return the missing units of each. Tasks that wait for units of others are left out.
    """
    runner = Runner(root, resources, executor=_refuse, wait=wait_for_workers)
    pending: dict[Path, Job] = {}
    for task in with_inputs(targets):
        folder = runner.work_folder(task)
        waits = task.units and task.units.sequential and any(other.parent == folder.parent for other in pending)
        if waits or not all(isinstance(source, Artifact) or runner.published(source) for source in task.reads.values()):
            continue
        try:
            runner.make(task)
        except _MissingError as missing:
            pending[folder] = missing.args[0].jobs[0]
    return list(pending.values())


def _refuse(assignment: Assignment) -> list[UnitProvenance]:
    raise _MissingError(assignment)
