"""How far a chain of tasks can go here and now, and which units stand in its way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import MANIFEST
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Task
from pipeline.core.units import Assignment
from pipeline.core.workdir import Workdir
from pipeline.runner import Runner, with_inputs

_LIGHT = ("pool",)
"""Stages whose work a login node can do: without their artifacts nothing can be divided."""

_APART = {"fit": "embed", "terms": "index", "index": "index", "search": "search"}
"""By stage: the subcommand whose own job makes a task that has no units and waits for none."""

_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class Pending:
    """A task whose units are planned and not all there.

    Attributes:
        task: which.
        work: the folder it is made in.
        units: all units, with their sizes.
        left: those that are missing.
    """

    task: Task
    work: Path
    units: dict[str, int]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Advance:
    """Where a chain stands.

    Attributes:
        pending: tasks that wait for units, which slices can make now.
        apart: tasks left to jobs of their own (:func:`job_of`), inputs first.
        later: tasks that wait for others, or are too heavy for this machine.
    """

    pending: tuple[Pending, ...]
    apart: tuple[Task, ...]
    later: tuple[Task, ...]

    @property
    def finished(self) -> bool:
        """Whether all is published."""
        return not (self.pending or self.apart or self.later)


def job_of(task: Task) -> str | None:
    """Return the subcommand whose own job makes a task: one without units that waits for none; None for any other.

    BM25's terms, index and ranking, and what an encoder is fitted on, run beside the slices, with a log of their own.
    """
    return _APART.get(task.stage) if _undivided(task) else None


def _undivided(task: Task | Artifact) -> bool:
    if isinstance(task, Artifact):
        return True
    return task.units is None and all(map(_undivided, task.reads.values()))


def settle(root: Path, expected: Mapping[str, Iterable[str]], patience: float, artifacts: Iterable[str] = ()) -> bool:
    """Wait until what other machines have finished can be seen here; False where it was not in time.

    A shared file system may show a file seconds after it was written elsewhere.

    Args:
        root: the workspace.
        expected: units by work folder, below ``root``.
        patience: seconds to wait at most.
        artifacts: folders of published artifacts, below ``root``.
    """
    deadline = time.monotonic() + patience
    waiting = {root / folder: set(units) for folder, units in expected.items()}
    manifests = {root / folder / MANIFEST for folder in artifacts}
    while True:
        manifests = {path for path in manifests if not path.is_file()}
        for folder, units in waiting.items():
            if folder.is_dir():
                os.listdir(folder)  # opening a folder makes NFS look anew
                units -= {unit for unit in units if Workdir(folder).done(unit)}
            else:  # published meanwhile
                units.clear()
        seen = not any(waiting.values()) and not manifests
        if seen or time.monotonic() > deadline:
            return seen
        time.sleep(_LOOK_EVERY)


class _MissingError(Exception):
    """Raised instead of making units."""


def advance(root: Path, resources: Resources, targets: Iterable[Task], *, light: bool, apart: bool = False) -> Advance:
    """Make whatever needs no slices, plan what does, publish what has all its units; make no unit.

    Args:
        root: the workspace.
        resources: what this process may use.
        targets: what is wanted in the end.
        light: leave out all but pools and plans, as on a login node.
        apart: leave out what jobs of its own are to make.
    """
    runner = Runner(root, resources, executor=_refuse)
    pending: list[Pending] = []
    own: list[Task] = []
    later: list[Task] = []
    for task in with_inputs(targets):
        if runner.published(task):
            continue
        if apart and job_of(task):
            own.append(task)
            continue
        ready = _ready(runner, task)
        heavy = task.units is None and light and task.stage not in _LIGHT
        if not ready or heavy or _behind(task, pending):
            later.append(task)
            continue
        try:
            runner.make(task)
        except _MissingError as missing:
            (job,) = missing.args[0].jobs
            pending.append(Pending(task, job.out.path, job.out.plan() or {}, tuple(job.units)))
    return Advance(tuple(pending), tuple(own), tuple(later))


def make_apart(runner: Runner, targets: Iterable[Task], subcommand: str) -> int:
    """Make what is left to the own job of a subcommand, as far as its inputs are there; return how much that was."""
    made = 0
    for task in with_inputs(targets):
        if job_of(task) == subcommand and not runner.published(task) and _ready(runner, task):
            runner.make(task)
            made += 1
    return made


def _ready(runner: Runner, task: Task) -> bool:
    return all(isinstance(i, Artifact) or runner.published(i) for i in task.reads.values())


def _refuse(assignment: Assignment) -> list[Facts]:
    raise _MissingError(assignment)


def _behind(task: Task, pending: Sequence[Pending]) -> bool:
    """Whether a task cannot be planned before another one of its room is published."""
    return task.units is not None and task.units.sequential and any(each.task.room == task.room for each in pending)
