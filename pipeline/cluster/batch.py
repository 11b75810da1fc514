"""A batch: one command's work, submitted to Slurm in rounds until all of it is published.

A round is an array job for each stage that has units missing, and a dependent job (``afterany``) that verifies,
publishes and submits the next round: the same stage again where slices were lost, up to a limit, or the next stage.
Slurm does the scheduling, the requeuing and the dependencies; what is done and what is missing is read from the work
folders.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.cluster import slurm
from pipeline.cluster.advance import Advance, Pending, advance, settle
from pipeline.cluster.script import job_script, log_of
from pipeline.cluster.settings import SlurmSettings
from pipeline.cluster.states import TaskState
from pipeline.core import files
from pipeline.core.config import digest
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import MANIFEST
from pipeline.core.resources import Resources
from pipeline.core.task import Task
from pipeline.core.units import Slice
from pipeline.core.workspace import JOBS

_RECORD = "jobs.json"
_LAST_LINES = 6
_SHOWN = 5
"""Failures of a round that are shown: they mostly are one and the same."""

_LOOK_EVERY = 2.0


@dataclass(frozen=True)
class Round:
    """What was submitted at one time.

    Attributes:
        at: seconds since 1970.
        attempt: times, with this one, that these tasks were submitted in a row.
        slices: into how many the units were divided.
        arrays: array job of each stage.
        collect: the dependent job; 0 where submitting broke off before it.
        work: units with their sizes, by work folder below the workspace.
        stages: stage of each work folder.
    """

    at: float
    attempt: int
    slices: int
    arrays: Mapping[str, int]
    collect: int
    work: Mapping[str, Mapping[str, int]]
    stages: Mapping[str, str]

    @property
    def jobs(self) -> list[int]:
        """All jobs of the round."""
        return [*self.arrays.values(), *([self.collect] if self.collect else [])]


@dataclass
class Batch:
    """The folder of a batch, ``runs/jobs/NAME``: job scripts, logs and the record of its rounds.

    Attributes:
        folder: where it is.
        root: the workspace.
        command: as the user typed it.
        rounds: what was submitted, oldest first.
        finished: whether all was published.
    """

    folder: Path
    root: Path
    command: Sequence[str]
    rounds: list[Round] = field(default_factory=list)
    finished: bool = False

    @classmethod
    def of(cls, root: Path, stage: str, command: Sequence[str]) -> Batch:
        """Return the batch of a command; the same command means the same batch."""
        folder = root.resolve() / JOBS / f"{stage}-{digest([stage, *command])[:8]}"
        return cls.read(root, folder) if (folder / _RECORD).is_file() else cls(folder, root, command)

    @classmethod
    def read(cls, root: Path, folder: Path) -> Batch:
        """Read the record of a batch."""
        values = json.loads((folder / _RECORD).read_text())
        rounds = [Round(**each) for each in values["rounds"]]
        return cls(folder, root, values["command"], rounds, values["finished"])

    @classmethod
    def all(cls, root: Path) -> list[Batch]:
        """Return the batches of a workspace, by name."""
        return [cls.read(root, path.parent) for path in sorted((root.resolve() / JOBS).glob(f"*/{_RECORD}"))]

    @property
    def logs(self) -> Path:
        """Folder of the jobs' logs."""
        return self.folder / "logs"

    def write(self) -> None:
        """Write the record."""
        self.logs.mkdir(parents=True, exist_ok=True)
        values = {"command": list(self.command), "rounds": list(map(asdict, self.rounds)), "finished": self.finished}
        files.write_text(self.folder / _RECORD, json.dumps(values, indent=1) + "\n")

    def alive(self) -> list[int]:
        """Return the jobs of this batch that have not ended, but for the one this process belongs to."""
        own = int(os.environ.get("SLURM_JOB_ID", 0))
        jobs = [job for each in self.rounds[-2:] for job in each.jobs if job != own]
        return sorted({state.job for state in slurm.status(jobs) if not state.finished})

    def failures(self, lines: int = _LAST_LINES) -> list[str]:
        """Return, for each task of the last round that failed, what Slurm says and the last lines of its log."""
        states = slurm.status(self.rounds[-1].jobs) if self.rounds else []
        failed = [state for state in states if state.finished and state.state != "COMPLETED"]
        found = []
        for state in failed[:_SHOWN]:
            log = log_of(self.logs, state.job, state.task)
            text = log.read_text(errors="replace").splitlines()[-lines:] if log.is_file() else ["(no log)"]
            found.append("\n".join([_words(state), *(f"    {line}" for line in text)]))
        return found + ([f"and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else [])


@dataclass(frozen=True)
class Commands:
    """What the jobs of a batch run.

    Attributes:
        stages: command of a slice, by stage, without ``--slice``.
        collect: command of the dependent job.
    """

    stages: Mapping[str, Sequence[str]]
    collect: Sequence[str]


def start(
    batch: Batch, commands: Commands, settings: SlurmSettings, targets: Sequence[Task], resources: Resources
) -> Round | None:
    """Submit what is missing; None where nothing is.

    Raises:
        InputError: jobs of this batch are waiting or running.
    """
    _refuse_alive(batch)
    state = advance(batch.root, resources, targets, light=True)
    if state.finished:
        _finish(batch)
        return None
    return _submit(batch, commands, settings, state, attempt=1)


def collect(
    batch: Batch, commands: Commands, settings: SlurmSettings, targets: Sequence[Task], resources: Resources
) -> Round | None:
    """Verify and publish what the last round made, and submit what is missing; None where nothing is.

    Raises:
        InputError: other jobs of this batch are waiting or running.
        StageError: the same tasks miss units after as many rounds as ``settings.attempts`` allows.
    """
    deadline = time.monotonic() + settings.patience
    while batch.alive() and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)  # a task that ended may be cleaned up for a while
    _refuse_alive(batch)
    settle(batch.root, _made(batch), settings.patience)
    state = advance(batch.root, resources, targets, light=False)
    _keep_scripts(batch)
    if state.finished:
        _finish(batch)
        return None
    last = batch.rounds[-1] if batch.rounds else None
    same = last is not None and set(last.work) == {_below(batch, each) for each in state.pending}
    attempt = last.attempt + 1 if last is not None and same else 1
    if attempt > settings.attempts:
        left = sum(len(each.left) for each in state.pending)
        shown = "\n".join(batch.failures())
        raise StageError(
            f"{left} units are missing after {settings.attempts} attempts"
            + (f"; the last failures:\n{shown}\n" if shown else ""),
            "Mend what the logs say, and run the same mdcr submit again: it goes on with what is missing",
        )
    return _submit(batch, commands, settings, state, attempt)


def _submit(batch: Batch, commands: Commands, settings: SlurmSettings, state: Advance, attempt: int) -> Round:
    """Submit arrays and the dependent job. The record is written after each, so that a job is never forgotten."""
    batch.logs.mkdir(parents=True, exist_ok=True)
    work = {_below(batch, each): each.units for each in state.pending}
    stages = {_below(batch, each): each.task.stage for each in state.pending}
    arrays: dict[str, int] = {}
    batch.finished = False
    batch.rounds.append(Round(time.time(), attempt, settings.nodes, arrays, 0, work, stages))
    for stage in dict.fromkeys(stages.values()):
        script = batch.folder / f"{stage}.sh"
        name = f"{stage} {batch.folder.name}"
        text = job_script(settings, commands.stages[stage], name=name, logs=batch.logs, slices=settings.nodes)
        files.write_text(script, text)
        numbers = _slices([each for each in state.pending if each.task.stage == stage], settings.nodes)
        arrays[stage] = slurm.submit(script, array=numbers, at_once=settings.at_once)
        batch.write()
    script = batch.folder / "collect.sh"
    text = job_script(settings.collector(), commands.collect, name=f"collect {batch.folder.name}", logs=batch.logs)
    files.write_text(script, text)
    job = slurm.submit(script, after=list(arrays.values()))
    batch.rounds[-1] = Round(batch.rounds[-1].at, attempt, settings.nodes, arrays, job, work, stages)
    batch.write()
    return batch.rounds[-1]


def _slices(pending: Sequence[Pending], count: int) -> list[int]:
    """Return the slices that have units missing."""
    return [
        number
        for number in range(count)
        if any(set(Slice(number, count).units(each.units)) & set(each.left) for each in pending)
    ]


def _made(batch: Batch) -> dict[str, list[str]]:
    """Return the units of those slices of the last round that Slurm says ended well, by work folder."""
    if not batch.rounds:
        return {}
    last = batch.rounds[-1]
    ended = [s for s in slurm.status(last.arrays.values()) if s.state == "COMPLETED" and s.task is not None]
    stages = {job: stage for stage, job in last.arrays.items()}
    found: dict[str, list[str]] = {}
    for state in ended:
        for folder, units in last.work.items():
            if last.stages[folder] == stages[state.job]:
                found.setdefault(folder, []).extend(Slice(state.task or 0, last.slices).units(units))
    return found


def _finish(batch: Batch) -> None:
    if batch.rounds:
        batch.finished = True
        batch.write()


def _refuse_alive(batch: Batch) -> None:
    if alive := batch.alive():
        named = ", ".join(map(str, alive))
        raise InputError(f"jobs of {batch.folder.name} are not done yet: {named}", f"See mdcr jobs, or scancel {named}")


def _keep_scripts(batch: Batch) -> None:
    """Lay the job script beside every artifact whose units it made."""
    for each in batch.rounds:
        for work, stage in each.stages.items():
            partial = batch.root / work
            folder = partial.with_name(partial.name.removeprefix(".").removesuffix(".partial"))
            if (folder / MANIFEST).is_file() and not (folder / "job.sh").exists():
                files.write_text(folder / "job.sh", (batch.folder / f"{stage}.sh").read_text())


def _below(batch: Batch, pending: Pending) -> str:
    return pending.work.resolve().relative_to(batch.root.resolve()).as_posix()


def _words(state: TaskState) -> str:
    name = f"{state.job}_{state.task}" if state.task is not None else str(state.job)
    how = f"signal {state.signal}" if state.signal else f"exit code {state.exit_code}"
    return f"{name} {state.state} ({how})" + (f" on {state.node}" if state.node else "")
