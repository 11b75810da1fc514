"""Make what a chain of tasks can in this process, and return the units or jobs that it waits for."""

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
"""Stages that a login node may run, since work can only be divided with their artifacts."""

_WHOLE = {"fit": "embed", "terms": "index", "index": "index", "search": "search"}
"""Subcommand whose job makes a task without units, by stage."""

TRAIN = "train"
"""Stage and subcommand whose job also makes all its inputs, and needs the GPU."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Pending:
    """A task with planned units, some of them missing.

    Attributes:
        task: the task.
        work: work folder of the task.
        units: sizes of all units.
        missing: names of the missing units.
    """

    task: Task
    work: Path
    units: dict[str, int]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class ChainState:
    """The unfinished tasks of a chain.

    Attributes:
        pending: tasks with missing units, which slices can make now.
        whole: tasks that separate jobs make (:func:`whole_job`), inputs first.
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
    """Make the tasks without units, plan the units of the others, and publish tasks with all units. No unit is made.

    With ``light``, only pools and plans are made, as on a login node. With ``whole``, tasks that have a separate job
    (:func:`whole_job`) are left to it.
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
    """Return the subcommand whose separate job makes a task; None if the task or one of its inputs has units.

    The jobs of BM25's terms, index and ranking, and of the fit of an encoder, run in parallel to the slices.
    """
    if task.stage == TRAIN:
        return TRAIN
    divided = any(source.units is not None for source in with_inputs([task]))
    return None if divided else _WHOLE.get(task.stage)


def make_whole(runner: Runner, targets: Iterable[Task], subcommand: str) -> int:
    """Make the tasks of a subcommand's separate job whose inputs are published; return their number."""
    count = 0
    for task in with_inputs(targets):
        if whole_job(task) == subcommand and not runner.published(task) and _ready(runner, task):
            runner.make(task)
            count += 1
    return count


def wait_until_visible(
    root: Path, expected: Mapping[str, Iterable[str]], patience: float, artifacts: Iterable[str] = ()
) -> bool:
    """Wait until this machine sees the expected files of other machines; return whether it did in time.

    A shared file system may show a file seconds after another machine wrote it. ``expected`` has units by work folder,
    ``artifacts`` folders of published artifacts, all below ``root``.
    """
    deadline = time.monotonic() + patience
    missing = {root / folder: set(units) for folder, units in expected.items()}
    manifests = {root / folder / MANIFEST for folder in artifacts}
    while True:
        manifests = {path for path in manifests if not path.is_file()}
        for folder, units in missing.items():
            if folder.is_dir():
                os.listdir(folder)  # makes NFS refresh its cache
                units -= {unit for unit in units if Workdir(folder).done(unit)}
            else:  # another process has published it
                units.clear()
        visible = not any(missing.values()) and not manifests
        if visible or time.monotonic() > deadline:
            return visible
        time.sleep(_POLL_SECONDS)


def _ready(runner: Runner, task: Task) -> bool:
    return all(isinstance(source, Artifact) or runner.published(source) for source in task.reads.values())


def _refuse(assignment: Assignment) -> list[Facts]:
    raise _MissingError(assignment)
