"""A batch: the work of one command, submitted to Slurm in rounds until all of it is published.

A round is an array job for each stage with missing units, a job for each subcommand with missing whole artifacts
(BM25's index, then its search; a training), and a dependent job (``afterany``). That job verifies, publishes and
submits the next round: what was lost, up to a limit, or the next stage. Slurm schedules, requeues and keeps
dependencies; the work folders say what is finished.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cluster import slurm
from pipeline.cluster.resume import TRAIN, ChainState, Pending, resume, wait_until_visible, whole_job
from pipeline.cluster.script import SlurmSettings, job_script, log_of
from pipeline.core import files
from pipeline.core.config import digest
from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.runner import with_inputs
from pipeline.core.task import Slice, Task
from pipeline.core.workspace import JOBS

_RECORD = "jobs.json"
_LAST_LINES = 6
_SHOWN = 5
"""Failures of a round that are shown: most are alike."""

_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Round:
    """What was submitted at one time.

    Attributes:
        at: seconds since 1970.
        attempt: number of rounds in a row, with this one, that make the same artifacts.
        slices: into how many the units were divided.
        arrays: array job of each stage.
        collect: the dependent job; 0 where submitting broke off before it.
        work: units with their sizes, by work folder below the workspace.
        stages: stage of each work folder.
        whole_jobs: jobs that make whole artifacts, by subcommand.
        whole: subcommand of each artifact that such a job makes, by its folder below the workspace.
    """

    at: float
    attempt: int
    slices: int
    arrays: Mapping[str, int]
    collect: int
    work: Mapping[str, Mapping[str, int]]
    stages: Mapping[str, str]
    whole_jobs: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)

    @property
    def jobs(self) -> list[int]:
        """All jobs of the round."""
        return [*self.arrays.values(), *self.whole_jobs.values(), *([self.collect] if self.collect else [])]

    @property
    def artifacts(self) -> set[str]:
        """Folders of all artifacts the round makes, below the workspace."""
        return {*map(artifact_of, self.work), *self.whole}


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
        rounds = [Round(**recorded) for recorded in values["rounds"]]
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
        """Return the jobs of this batch that have not ended, without the one this process belongs to."""
        here = int(os.environ.get("SLURM_JOB_ID", 0))
        jobs = [job for submitted in self.rounds[-2:] for job in submitted.jobs if job != here]
        return sorted({state.job for state in slurm.status(jobs) if not state.finished})

    def failures(self, lines: int = _LAST_LINES) -> list[str]:
        """Return, for each task of the last round that failed, what Slurm says and the last lines of its log."""
        states = slurm.status(self.rounds[-1].jobs) if self.rounds else []
        failed = [state for state in states if state.finished and state.state != "COMPLETED"]
        shown = []
        for state in failed[:_SHOWN]:
            log = log_of(self.logs, state.job, state.task)
            text = log.read_text(errors="replace").splitlines()[-lines:] if log.is_file() else ["(no log)"]
            shown.append("\n".join([str(state), *(f"    {line}" for line in text)]))
        return shown + ([f"and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else [])


class Commands(NamedTuple):
    """The command lines of a batch's jobs.

    Attributes:
        program: words that start ``mdcr``.
        stage_words: returns the options of a stage's subcommand.
        collect_words: options of ``mdcr collect``.
    """

    program: Sequence[str]
    stage_words: Callable[[str], Sequence[str]]
    collect_words: Sequence[str]

    def stage(self, name: str, *words: str) -> list[str]:
        """Return the command of a stage."""
        return [*self.program, name, *self.stage_words(name), *words]

    def collect(self) -> list[str]:
        """Return the command of the dependent job."""
        return [*self.program, "collect", *self.collect_words]


def start(
    batch: Batch, commands: Commands, settings: SlurmSettings, targets: Sequence[Task], resources: Resources
) -> Round | None:
    """Submit what is missing; None: nothing is.

    Raises:
        InputError: jobs of this batch are waiting or running.
    """
    _check_ended(batch)
    state = resume(batch.root, resources, targets, light=True, whole=True)
    if state.finished:
        _finish(batch)
        return None
    return _submit(batch, commands, settings, state, _planned(batch, settings, state))


def collect(
    batch: Batch, commands: Commands, settings: SlurmSettings, targets: Sequence[Task], resources: Resources
) -> Round | None:
    """Verify and publish what the last round made, and submit what is missing; None: nothing is.

    Raises:
        InputError: other jobs of this batch are waiting or running.
        StageError: the same tasks miss units after ``settings.attempts`` rounds.
    """
    deadline = time.monotonic() + settings.patience
    while batch.alive() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)  # Slurm may take a while to clean up a task that ended
    _check_ended(batch)
    wait_until_visible(batch.root, _made(batch), settings.patience, _made_whole(batch))
    state = resume(batch.root, resources, targets, light=False, whole=True)
    _keep_scripts(batch)
    if state.finished:
        _finish(batch)
        return None
    this = _planned(batch, settings, state)
    if batch.rounds and batch.rounds[-1].artifacts == this.artifacts:
        this = dataclasses.replace(this, attempt=batch.rounds[-1].attempt + 1)
    if this.attempt > settings.attempts:
        left = sum(len(pending.left) for pending in state.pending)
        whole = f" and {len(state.whole)} whole artifacts" if state.whole else ""
        for line in "\n".join(batch.failures()).splitlines():
            say(line)
        raise StageError(
            f"{left} units{whole} are missing after {settings.attempts} attempts",
            "Fix what the logs say and run the same mdcr submit again: it makes only what is missing",
        )
    return _submit(batch, commands, settings, state, this)


def check_not_running(root: Path, targets: Iterable[Task], besides: Batch | None = None) -> None:
    """Check that no running or waiting jobs are making what is to be made here.

    Slices take no lock, so a run that opens their work folder would delete what they are writing. Slurm is asked only
    about batches that share an artifact with the targets.

    Inputs of the ``targets`` count too; the batch ``besides`` does not, nor the one whose job this process is.

    Raises:
        InputError: jobs are making one of the artifacts.
    """
    batches = [batch for batch in Batch.all(root) if batch.rounds and not batch.finished]
    here = int(os.environ.get("SLURM_JOB_ID", 0))
    batches = [batch for batch in batches if here not in batch.rounds[-1].jobs]
    batches = [batch for batch in batches if besides is None or batch.folder != besides.folder]
    folders = (f"{task.folder}/{task.name}" for task in with_inputs(targets if batches else ()))
    missing = {folder for folder in folders if not (root / folder / MANIFEST).is_file()}
    for batch in batches:
        shared = sorted(missing & batch.rounds[-1].artifacts)
        if shared and (jobs := _alive_or_warn(batch)):
            named = ", ".join(map(str, jobs))
            raise InputError(
                f"jobs of {batch.folder.name} are making {shared[0]}: {named}",
                f"Wait for them (mdcr jobs), or scancel {named.replace(',', '')}",
            )


def _alive_or_warn(batch: Batch) -> list[int]:
    """Return the jobs of a batch that have not ended; without Slurm, warn and return none."""
    try:
        return batch.alive()
    except MdcrError as error:
        say(f"{batch.folder.name} was submitted for the same, and whether its jobs have ended cannot be seen ({error})")
        return []


def _planned(batch: Batch, settings: SlurmSettings, state: ChainState) -> Round:
    """Return the round that makes what is missing, without its jobs."""
    root = batch.root.resolve()
    by_folder = {pending.work.resolve().relative_to(root).as_posix(): pending for pending in state.pending}
    return Round(
        at=time.time(),
        attempt=1,
        slices=settings.nodes,
        arrays={},
        collect=0,
        work={folder: pending.units for folder, pending in by_folder.items()},
        stages={folder: pending.task.stage for folder, pending in by_folder.items()},
        whole={f"{task.folder}/{task.name}": whole_job(task) or "" for task in state.whole},
    )


def _submit(batch: Batch, commands: Commands, settings: SlurmSettings, state: ChainState, this: Round) -> Round:
    """Submit a round's jobs. The record is written after each, so that no job is forgotten."""
    batch.logs.mkdir(parents=True, exist_ok=True)
    batch.finished = False
    batch.rounds.append(this)

    def add(**jobs: Any) -> None:
        batch.rounds[-1] = dataclasses.replace(batch.rounds[-1], **jobs)
        batch.write()

    arrays: dict[str, int] = {}
    for stage in dict.fromkeys(this.stages.values()):
        script = batch.folder / f"{stage}.sh"
        name = f"{stage} {batch.folder.name}"
        text = job_script(settings, commands.stage(stage), name=name, logs=batch.logs, slices=settings.nodes)
        files.write_text(script, text)
        numbers = _slices([pending for pending in state.pending if pending.task.stage == stage], settings.nodes)
        arrays[stage] = slurm.submit(script, array=numbers, at_once=settings.at_once)
        add(arrays=arrays)
    whole: dict[str, int] = {}
    for subcommand in dict.fromkeys(this.whole.values()):
        before = [whole[needed] for needed in _needed(state.whole, subcommand) if needed in whole]
        words, asked = ((), settings) if subcommand == TRAIN else (("--slice", "whole"), settings.collector())
        command = commands.stage(subcommand, *words)
        whole[subcommand] = _submit_one(batch, asked, command, f"{subcommand}-whole", before)
        add(whole_jobs=whole)
    jobs = [*arrays.values(), *whole.values()]
    add(collect=_submit_one(batch, settings.collector(), commands.collect(), "collect", jobs))
    return batch.rounds[-1]


def _submit_one(batch: Batch, settings: SlurmSettings, command: Sequence[str], name: str, after: Sequence[int]) -> int:
    """Submit a job that is not an array."""
    script = batch.folder / f"{name}.sh"
    text = job_script(settings, command, name=f"{name} {batch.folder.name}", logs=batch.logs)
    files.write_text(script, text)
    return slurm.submit(script, after=after)


def _needed(tasks: Sequence[Task], subcommand: str) -> set[str]:
    """Return the other subcommands whose jobs make inputs of this one's."""
    inputs = {source.id for task in tasks if whole_job(task) == subcommand for source in task.reads.values()}
    return {str(whole_job(task)) for task in tasks if task.id in inputs} - {subcommand}


def _slices(pending: Sequence[Pending], count: int) -> list[int]:
    """Return the slices that have units missing."""
    return [
        number
        for number in range(count)
        if any(set(Slice(number, count).units(work.units)) & set(work.left) for work in pending)
    ]


def _made(batch: Batch) -> dict[str, list[str]]:
    """Return the units of the last round's slices that Slurm says ended well, by work folder."""
    made: dict[str, list[str]] = {}
    for last in batch.rounds[-1:]:
        for state in slurm.status(last.arrays.values()):
            for folder, units in last.work.items():
                if state.state == "COMPLETED" and state.job == last.arrays[last.stages[folder]]:
                    made.setdefault(folder, []).extend(Slice(state.task or 0, last.slices).units(units))
    return made


def _made_whole(batch: Batch) -> list[str]:
    """Return the artifacts of the last round's whole jobs, if Slurm says that all of these ended well."""
    jobs = batch.rounds[-1].whole_jobs.values() if batch.rounds else ()
    ended = {state.job for state in slurm.status(jobs) if state.state == "COMPLETED"}
    return list(batch.rounds[-1].whole) if jobs and ended == set(jobs) else []


def artifact_of(work: str) -> str:
    """Return an artifact's folder, given its work folder."""
    folder = Path(work)
    return folder.with_name(folder.name.removeprefix(".").removesuffix(".partial")).as_posix()


def _finish(batch: Batch) -> None:
    if batch.rounds:
        batch.finished = True
        batch.write()


def _check_ended(batch: Batch) -> None:
    if alive := batch.alive():
        named = ", ".join(map(str, alive))
        raise InputError(f"jobs of {batch.folder.name} are not done yet: {named}", f"See mdcr jobs, or scancel {named}")


def _keep_scripts(batch: Batch) -> None:
    """Copy the job script into every published artifact that it helped to make."""
    for submitted in batch.rounds:
        scripts = {artifact_of(work): f"{stage}.sh" for work, stage in submitted.stages.items()}
        scripts |= {folder: f"{subcommand}-whole.sh" for folder, subcommand in submitted.whole.items()}
        for folder, script in scripts.items():
            target = batch.root / folder / "job.sh"
            if (batch.root / folder / MANIFEST).is_file() and not target.exists():
                files.write_text(target, (batch.folder / script).read_text())
