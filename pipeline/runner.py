"""Making artifacts: plan, skip what is there, build what is missing, publish by one rename."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical, changed_fields
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Counts, Manifest
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, RunTogether, Task
from pipeline.core.units import Executor, Slice, run_units, work_slice
from pipeline.core.workdir import Workdir


@dataclass(frozen=True)
class Step:
    """One line of a plan: the task, whether its artifact is there, and what differs from the nearest one."""

    task: Task
    path: Path
    present: bool
    changed: tuple[str, ...] = ()


class Runner:
    """Makes tasks' artifacts below one workspace folder.

    Args:
        root: the workspace: the folder that holds ``corpora/``, ``indexes/`` and ``runs/``.
        resources: limits of the run.
        repair: verify every artifact met and rebuild the damaged files alone.
        executor: who makes the units of work that divides; None: each task as it sees fit, on this machine.
    """

    def __init__(
        self, root: Path, resources: Resources, *, repair: bool = False, executor: Executor | None = None
    ) -> None:
        self.root = root
        self.resources = resources
        self.repair = repair
        self.executor = executor
        self._made: dict[str, Artifact] = {}

    def path(self, task: Task) -> Path:
        """Return the folder a task's artifact has or will have."""
        return self.root / task.room / task.name

    def plan(self, tasks: Iterable[Task]) -> list[Step]:
        """Return what :meth:`make` would do, inputs first; nothing is written."""
        steps: dict[str, Step] = {}
        for task in tasks:
            for each in in_order(task):
                if each.id not in steps:
                    steps[each.id] = self._step(each)
        return list(steps.values())

    def make(self, task: Task) -> Artifact:
        """Return the artifact of a task, building it and whatever of its inputs is missing.

        Of several processes that ask for one artifact at once, one builds it and the others wait for it.
        """
        if task.id in self._made:
            return self._made[task.id]
        path = self.path(task)
        artifact = self._existing(path)
        if artifact is None or (self.repair and artifact.damaged()):
            inputs = self._inputs(task)
            with files.disk_errors(path.parent), _lock(path):
                artifact = self._existing(path)
                if artifact is None:
                    artifact = self._build(task, inputs, path)
                elif self.repair and (damaged := artifact.damaged()):
                    artifact = self._rebuild(task, inputs, artifact, damaged)
        elif self.repair:
            for each in task.reads.values():
                if isinstance(each, Task):
                    self.make(each)
        self._made[task.id] = artifact
        return artifact

    def published(self, task: Task) -> bool:
        """Whether a task's artifact is there."""
        return (self.path(task) / MANIFEST).is_file()

    def work_folder(self, task: Task) -> Path:
        """Return the folder a task's artifact is made in."""
        path = self.path(task)
        return path.with_name(f".{path.name}.partial")

    def planned(self, task: Task) -> bool:
        """Whether a task's units are written down in its work folder."""
        return task.units is not None and Workdir(self.work_folder(task)).plan() is not None

    def work_slice(self, task: Task, part: Slice) -> int:
        """Make what is missing of one slice of a task's units, and publish nothing; return how many units that was.

        The work folder was planned by another process, and others may be working in it: nothing is locked, and nothing
        of theirs is touched. An artifact that is there, or not planned yet, asks for nothing.
        """
        work = Workdir(self.work_folder(task))
        if task.units is None or self.published(task) or not self.planned(task):
            return 0
        inputs = {name: i if isinstance(i, Artifact) else Artifact.open(self.path(i)) for name, i in task.reads.items()}
        with files.disk_errors(work.path):
            return work_slice(task.units, inputs, work, self.resources, part)

    def make_all(self, tasks: Sequence[Task]) -> list[Artifact]:
        """Return the artifacts of several tasks; what is missing and can be made together is made together."""
        batches: dict[str, dict[str, Task]] = {}
        for task in tasks:
            for each in in_order(task):
                executor = each.units is not None and self.executor is not None
                if each.batch is not None and not executor and not self.published(each):
                    batches.setdefault(each.batch.key, {})[each.id] = each
        for group in batches.values():
            if len(group) > 1:
                self._make_together(list(group.values()))
        return [self.make(task) for task in tasks]

    def _make_together(self, tasks: Sequence[Task]) -> None:
        """Make the artifacts of one batch and publish each; those another process made meanwhile are left out."""
        inputs = {task.id: self._inputs(task) for task in tasks}
        with ExitStack() as held:
            for path in sorted(self.path(task) for task in tasks):  # in one order, so that nobody waits in a circle
                held.enter_context(files.disk_errors(path.parent))
                held.enter_context(_lock(path))
            missing = [task for task in tasks if self._existing(self.path(task)) is None]
            if not missing or missing[0].batch is None:
                return
            run = missing[0].batch.run
            self._build_all(missing, [inputs[task.id] for task in missing], run)

    def _inputs(self, task: Task) -> dict[str, Artifact]:
        return {name: i if isinstance(i, Artifact) else self.make(i) for name, i in task.reads.items()}

    def _existing(self, path: Path) -> Artifact | None:
        if not (path / MANIFEST).is_file():
            return None
        artifact = Artifact.open(path)
        if not self.repair and not artifact.complete():
            raise CorruptError(
                f"{path} is damaged: {', '.join(artifact.damaged())}",
                "Run the same command with --repair to rebuild it alone",
            )
        return artifact

    def _build(self, task: Task, inputs: dict[str, Artifact], path: Path) -> Artifact:
        self._build_all([task], [inputs], lambda jobs, _: [self._work(task, *jobs[0])])
        return Artifact.open(path)

    def _build_all(self, tasks: Sequence[Task], inputs: Sequence[dict[str, Artifact]], run: RunTogether) -> None:
        paths = [self.path(task) for task in tasks]
        works = [Workdir.prepare(self.work_folder(task)) for task in tasks]
        for task in tasks:
            say(f"{task.stage}: {task.slug}")
        started = time.monotonic()
        try:
            counts = run(list(zip(inputs, works, strict=True)), self.resources)
        except InputError:
            for work in works:
                if not work.outputs():
                    shutil.rmtree(work.path)
            raise
        seconds = time.monotonic() - started
        for task, used, work, counted, path in zip(tasks, inputs, works, counts, paths, strict=True):
            _manifest(task, used, work, counted, seconds).write(work.path)
            work.clear_records()
            _publish(work.path, path)

    def _rebuild(self, task: Task, inputs: dict[str, Artifact], artifact: Artifact, damaged: list[str]) -> Artifact:
        say(f"{task.stage}: repairing {', '.join(damaged)} of {artifact.name}")
        partial = artifact.path.with_name(f".{artifact.name}.repair")
        shutil.rmtree(partial, ignore_errors=True)
        for output in artifact.manifest.outputs:
            source = artifact.path / output.path
            if output.path not in damaged:
                (partial / output.path).parent.mkdir(parents=True, exist_ok=True)
                os.link(source, partial / output.path)
        partial.mkdir(exist_ok=True)
        work = Workdir(partial)
        work.adopt(artifact.manifest.outputs)
        work = Workdir.prepare(partial)
        started = time.monotonic()
        counts = self._work(task, inputs, work)
        manifest = _manifest(task, inputs, work, counts, time.monotonic() - started)
        before = {output.path: output.sha256 for output in artifact.manifest.outputs}
        differing = [output.path for output in manifest.outputs if before.get(output.path) != output.sha256]
        repaired = {"repaired": damaged, "rebuilt_with_other_bytes": differing}
        dataclasses.replace(manifest, provenance={**manifest.provenance, **repaired}).write(work.path)
        work.clear_records()
        _publish(work.path, artifact.path)
        return Artifact.open(artifact.path)

    def _work(self, task: Task, inputs: Inputs, work: Workdir) -> Counts:
        if task.units is not None and self.executor is not None:
            return run_units(task.units, inputs, work, self.resources, self.executor)
        return task.run(inputs, work, self.resources)

    def _step(self, task: Task) -> Step:
        path = self.path(task)
        if (path / MANIFEST).is_file():
            return Step(task, path, present=True)
        config = canonical(task.config)
        inputs = {name: i.id for name, i in task.inputs.items()}
        nearest: list[str] | None = None
        for other in published(path.parent):
            if other.manifest.stage == task.stage:
                changed = changed_fields(other.manifest.config, config)
                changed += [f"input {name}" for name in inputs if inputs[name] != other.manifest.inputs.get(name)]
                if other.manifest.stage_version != task.version:
                    changed.append(f"stage version: {other.manifest.stage_version} -> {task.version}")
                if nearest is None or len(changed) < len(nearest):
                    nearest = changed
        return Step(task, path, present=False, changed=tuple(nearest or ()))


def _manifest(task: Task, inputs: dict[str, Artifact], work: Workdir, counts: Counts, seconds: float) -> Manifest:
    derived = {"derived": {name: inputs[name].id for name in task.derived}} if task.derived else {}
    return Manifest(
        id=task.id,
        stage=task.stage,
        stage_version=task.version,
        slug=task.slug,
        config=canonical(task.config),
        inputs={name: inputs[name].id for name in task.inputs},
        outputs=tuple(work.outputs()),
        counts=canonical(counts),
        provenance={**provenance.describe(), **derived, **work.notes, "wall_seconds": round(seconds, 2)},
    )


def in_order(task: Task) -> Iterator[Task]:
    """Yield whatever a task is made from, inputs first, then the task itself; some of it more than once."""
    for each in task.reads.values():
        if isinstance(each, Task):
            yield from in_order(each)
    yield task


def _publish(partial: Path, path: Path) -> None:
    """Move a finished folder to its final name; an older one there is replaced."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    partial.rename(path)
    for abandoned in path.glob(".*.tmp"):  # by a process that was lost, which from now on cannot finish them either
        abandoned.unlink(missing_ok=True)
    files.sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the builder's lock of an artifact; say so when another process has it.

    The system frees the lock when its holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    handle = lock.open("a")
    try:
        while not _acquire(handle, lock):
            handle.close()
            handle = lock.open("a")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        handle.close()


def _acquire(handle: IO[str], lock: Path) -> bool:
    """Lock an open file; False when its holder removed it meanwhile, so that a new one must be opened."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another process is building {lock.stem.removeprefix('.')}: waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        say(f"no locks on {lock.parent} ({error.strerror}): run one builder at a time there")
        return True
    return lock.exists() and os.fstat(handle.fileno()).st_ino == lock.stat().st_ino
