"""Makes artifacts: plans, skips existing ones, builds missing ones, publishes by one rename."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact, next_number, published
from pipeline.core.config import canonical, changed_fields
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Counts, Manifest
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.task import Executor, Inputs, Task, run_units
from pipeline.core.workdir import Workdir


@dataclass(frozen=True)
class Step:
    """One line of a plan: a task, whether its artifact exists, and its differences from the nearest artifact."""

    task: Task
    path: Path
    present: bool
    changed: tuple[str, ...] = ()


class Runner:
    """Makes the artifacts of tasks in a workspace folder with ``corpora/``, ``indexes/`` and ``runs/``.

    With ``repair``, artifacts are verified and damaged files rebuilt. ``executor`` makes units of work; None: this
    machine. ``wait`` gets the workspace and a work folder, under its lock, and returns when nobody writes in it.
    """

    def __init__(
        self,
        root: Path,
        resources: Resources,
        *,
        repair: bool = False,
        executor: Executor | None = None,
        wait: Callable[[Path, Path], None] = lambda _root, _folder: None,
    ) -> None:
        self.root = root
        self.resources = resources
        self.repair = repair
        self.executor = executor
        self.wait = wait
        self._made: dict[str, Artifact] = {}
        self._repaired: dict[str, dict[str, Any]] = {}
        self._remaining: set[str] = set()
        self._done = 0

    def path(self, task: Task) -> Path:
        """Return the final folder of a task's artifact."""
        return task.path(self.root)

    def work_folder(self, task: Task) -> Path:
        """Return the folder in which a task's artifact is made."""
        path = self.path(task)
        return path.with_name(f".{path.name}.partial")

    def published(self, task: Task) -> bool:
        """Return whether a task's artifact exists."""
        return (self.path(task) / MANIFEST).is_file()

    def plan(self, tasks: Iterable[Task]) -> list[Step]:
        """Return the steps of :meth:`make_all`, inputs first, without writing anything."""
        return [self._step(task) for task in with_inputs(tasks)]

    def expect(self, tasks: Iterable[Task]) -> None:
        """Count the missing artifacts of tasks, so that progress shows the remaining steps."""
        self._remaining = {task.id for task in with_inputs(tasks) if not self.published(task)}

    def make(self, task: Task) -> Artifact:
        """Return the artifact of a task, after building it and its inputs if they are missing.

        If several processes make the same artifact, one builds it and the others wait.
        """
        if task.id not in self._made:
            self._make(task)
            self._made[task.id] = Artifact.open(self.path(task))
        return self._made[task.id]

    def make_all(self, tasks: Sequence[Task]) -> list[Artifact]:
        """Return the artifacts of several tasks, as :meth:`make`."""
        self.expect(tasks)
        return [self.make(task) for task in tasks]

    def _make(self, task: Task) -> None:
        """Build the artifact of a task if it is missing, and repair it if it is damaged."""
        path = self.path(task)
        is_needed = self._damage(task) != [] or files.lock_file(path).exists()
        inputs: Inputs = {}
        if is_needed or self.repair:
            inputs = {name: i if isinstance(i, Artifact) else self.make(i) for name, i in task.reads.items()}
        if is_needed:
            with files.disk_errors(path.parent), files.locked(path):
                if damaged := self._damage(task):
                    self._reopen(task, damaged)
                if self.published(task):
                    Workdir(path).clear_records()  # of a build that was killed after publishing
                else:
                    self._build(task, inputs)

    def _damage(self, task: Task) -> list[str] | None:
        """Return the damaged files of a task's artifact, also its manifest; None if there is no artifact."""
        if not self.published(task):
            return None
        try:
            artifact = Artifact.open(self.path(task))
        except CorruptError:
            if self.repair:
                return [MANIFEST]
            raise
        if self.repair:
            return artifact.damaged()
        if not artifact.complete():
            raise CorruptError(
                f"{artifact.path} is damaged: {', '.join(artifact.damaged())}",
                "Run the same command with --repair to rebuild it alone",
            )
        return []

    def _build(self, task: Task, inputs: Inputs) -> None:
        self.wait(self.root, self.work_folder(task))
        work, started = Workdir.prepare(self.work_folder(task)), time.monotonic()
        self._remaining.add(task.id)
        say(f"[{self._done + 1}/{self._done + len(self._remaining)}] {task.stage}: {task.slug}")
        try:
            counts = self._run(task, inputs, work)
        except InputError:
            if not work.outputs():
                shutil.rmtree(work.path)
            raise
        seconds = time.monotonic() - started
        new = {"number": next_number(self.root), "finished": datetime.now(UTC).isoformat(timespec="seconds")}
        work.note(**self._repaired.get(task.id, new))
        work.publish(_manifest(task, inputs, work, counts, seconds), self.path(task))
        self._remaining.discard(task.id)
        self._done += 1

    def _reopen(self, task: Task, damaged: list[str]) -> None:
        """Make a damaged artifact a work folder, whose build goes on after the files that are intact."""
        path, work = self.path(task), self.work_folder(task)
        say(f"{task.stage}: repairing {', '.join(damaged)} of {path.name}")
        if MANIFEST not in damaged:
            manifest = Manifest.read(path)
            Workdir(path).adopt(manifest.outputs)
            number, finished, _ = manifest.order  # what is repaired is no newer
            self._repaired[task.id] = {"number": number, "finished": finished}
        shutil.rmtree(work, ignore_errors=True)
        path.rename(work)
        (work / MANIFEST).unlink()

    def _run(self, task: Task, inputs: Inputs, work: Workdir) -> Counts:
        try:
            if task.units is not None:
                return run_units(task.units, inputs, work, self.resources, self.executor)
            return task.run(inputs, work, self.resources) if task.run else {}
        except CorruptError as error:
            if self.repair and "--repair" in error.remedy:  # this command has already repaired the inputs that it makes
                raise CorruptError(error.what, "Run the command that makes it with --repair") from error
            raise

    def _step(self, task: Task) -> Step:
        path = self.path(task)
        if self.published(task):
            return Step(task, path, present=True)
        config = canonical(task.config)
        inputs = {name: i.id for name, i in task.inputs.items()}
        differences: list[list[str]] = []
        for artifact in published(path.parent):
            if artifact.manifest.stage == task.stage:
                changed = changed_fields(artifact.manifest.config, config)
                changed += [f"input {name}" for name in inputs if inputs[name] != artifact.manifest.inputs.get(name)]
                if artifact.manifest.stage_version != task.version:
                    changed.append(f"stage version: {artifact.manifest.stage_version} -> {task.version}")
                differences.append(changed)
        nearest = min(differences, key=len) if differences else []
        return Step(task, path, present=False, changed=tuple(nearest))


def with_inputs(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks and the tasks of their inputs, inputs first, without repeats."""
    tasks_by_id: dict[str, Task] = {}
    for task in tasks:
        inputs = with_inputs(source for source in task.reads.values() if isinstance(source, Task))
        for needed in (*inputs, task):
            tasks_by_id.setdefault(needed.id, needed)
    return list(tasks_by_id.values())


def _manifest(task: Task, inputs: Inputs, work: Workdir, counts: Counts, seconds: float) -> Manifest:
    derived = {"derived": {name: inputs[name].id for name in task.derived}} if task.derived else {}
    origin = {"origin": task.origin} if task.origin else {}
    return Manifest(
        id=task.id,
        stage=task.stage,
        stage_version=task.version,
        slug=task.slug,
        config=canonical(task.config),
        inputs={name: inputs[name].id for name in task.inputs},
        outputs=tuple(work.outputs()),
        counts=canonical(counts),
        provenance={**provenance.describe(), **derived, **origin, **work.notes, "wall_seconds": round(seconds, 2)},
    )
