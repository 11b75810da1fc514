"""How far a chain of tasks can be made in this process, and which units or jobs it waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import MANIFEST
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Assignment, Facts, Task
from pipeline.core.workdir import Workdir

_LIGHT = ("pool",)
"""Stages a login node may run: nothing can be divided without their artifacts."""

_WHOLE = {"fit": "embed", "terms": "index", "index": "index", "search": "search"}
"""The subcommand whose own job makes a task without units, by stage."""

TRAIN = "train"
"""The stage, and the subcommand, whose one job makes all inputs of its own too, and needs the GPU."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Pending:
    """A task whose units are planned and not all finished.

    Attributes:
        task: the task.
        work: the folder it is made in.
        units: all units, with their sizes.
        left: the units that are missing.
    """

    task: Task
    work: Path
    units: dict[str, int]
    left: tuple[str, ...]


@dataclass(frozen=True)
class ChainState:
    """What a chain still needs.

    Attributes:
        pending: tasks that wait for units, which slices can make now.
        whole: tasks left to jobs of their own (:func:`whole_job`), inputs first.
        later: tasks that wait for others, or are too heavy for this machine.
    """

    pending: tuple[Pending, ...]
    whole: tuple[Task, ...]
    later: tuple[Task, ...]

    @property
    def finished(self) -> bool:
        """Whether everything is published."""
        return not (self.pending or self.whole or self.later)


class _MissingError(Exception):
    """Raised instead of making units."""


def resume(
    root: Path, resources: Resources, targets: Iterable[Task], *, light: bool, whole: bool = False
) -> ChainState:
    """Make what needs no slices, plan the units of the rest, publish what has all its units. No unit is made.

    With ``light`` only pools and plans are made, as on a login node; with ``whole`` tasks are left to jobs of their own
    where they have one.
    """
    runner = Runner(root, resources, executor=_refuse)
    pending: list[Pending] = []
    whole_tasks: list[Task] = []
    later: list[Task] = []
    targets = list(targets)
    training = [task for task in targets if task.stage == TRAIN]
    for task in training or with_inputs(targets):
        if runner.published(task):
            continue
        sequential = task.units is not None and task.units.sequential
        waits = sequential and any(earlier.task.folder == task.folder for earlier in pending)
        heavy = light and task.units is None and task.stage not in _LIGHT
        if whole and whole_job(task):
            whole_tasks.append(task)
        elif heavy or waits or not _ready(runner, task):
            later.append(task)
        else:
            try:
                runner.make(task)
            except _MissingError as missing:
                (job,) = missing.args[0].jobs
                pending.append(Pending(task, job.out.path, job.out.plan() or {}, tuple(job.units)))
    return ChainState(tuple(pending), tuple(whole_tasks), tuple(later))


def whole_job(task: Task) -> str | None:
    """Return the subcommand whose own job makes a task; None: the task has units, or an input that has.

    BM25's terms, index and ranking, and the fit of an encoder, run beside the slices, with a log of their own.
    """
    if task.stage == TRAIN:
        return TRAIN
    divided = any(needed.units is not None for needed in with_inputs([task]))
    return None if divided else _WHOLE.get(task.stage)


def make_whole(runner: Runner, targets: Iterable[Task], subcommand: str) -> int:
    """Make the tasks of a subcommand's own job whose inputs are there; return their number."""
    made = 0
    for task in with_inputs(targets):
        if whole_job(task) == subcommand and not runner.published(task) and _ready(runner, task):
            runner.make(task)
            made += 1
    return made


def wait_until_visible(
    root: Path, expected: Mapping[str, Iterable[str]], patience: float, artifacts: Iterable[str] = ()
) -> bool:
    """Wait until this machine sees what others have finished; False: it did not in time.

    A shared file system may show a file seconds after another machine wrote it.

    What is expected are units by work folder, and folders of published ``artifacts``, both below ``root``.
    """
    deadline = time.monotonic() + patience
    waiting = {root / folder: set(units) for folder, units in expected.items()}
    manifests = {root / folder / MANIFEST for folder in artifacts}
    while True:
        manifests = {path for path in manifests if not path.is_file()}
        for folder, units in waiting.items():
            if folder.is_dir():
                os.listdir(folder)  # opening a folder makes NFS look again
                units -= {unit for unit in units if Workdir(folder).done(unit)}
            else:  # it was published meanwhile
                units.clear()
        seen = not any(waiting.values()) and not manifests
        if seen or time.monotonic() > deadline:
            return seen
        time.sleep(_POLL_SECONDS)


def _ready(runner: Runner, task: Task) -> bool:
    return all(isinstance(source, Artifact) or runner.published(source) for source in task.reads.values())


def _refuse(assignment: Assignment) -> list[Facts]:
    raise _MissingError(assignment)
