"""A batch: the work of one command, submitted to Slurm in rounds until all of it is published.

A round has an array job for each stage with missing units, a job for each subcommand with missing whole artifacts
(BM25's index, then its search; a training), and a dependent job (``afterany``). The dependent job verifies, publishes
and submits the next round: lost units, up to a limit, or the next stage. Slurm schedules, requeues and manages
dependencies; the work folders record what is finished.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cluster import slurm
from pipeline.cluster.resume import TRAIN, ChainState, Pending, resume, wait_until_visible, whole_job
from pipeline.cluster.script import SlurmSettings, job_script, log_of
from pipeline.core import files
from pipeline.core.artifact import readable
from pipeline.core.config import digest
from pipeline.core.errors import CorruptError, InputError, MdcrError, StageError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.runner import with_inputs
from pipeline.core.task import Slice, Task
from pipeline.core.workspace import JOBS

_RECORD = "jobs.json"
_LOG_LINES = 6
_MAX_FAILURES = 5
"""Maximum number of shown failures of a round; most are alike."""

_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Round:
    """The jobs submitted at one time.

    Attributes:
        at: submission time, in seconds since 1970.
        attempt: number of consecutive rounds, up to this one, that make the same artifacts.
        slices: number of slices that the units are divided into.
        arrays: array job of each stage.
        collect: the dependent job; 0 if submitting failed before it.
        work: units with their sizes, by work folder below the workspace.
        stages: stage of each work folder.
        whole_jobs: jobs that make whole artifacts, by subcommand.
        whole: subcommand of the job that makes each whole artifact, by artifact folder below the workspace.
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
        """Ids of all jobs of the round."""
        return [*self.arrays.values(), *self.whole_jobs.values(), *([self.collect] if self.collect else [])]

    @property
    def artifacts(self) -> set[str]:
        """Folders of the round's artifacts, below the workspace."""
        return {*map(artifact_of, self.work), *self.whole}


@dataclass
class Batch:
    """The folder of a batch, ``runs/jobs/NAME``: job scripts, logs and the record of its rounds.

    Attributes:
        folder: folder of the batch.
        root: the workspace.
        command: words that the user typed.
        rounds: submitted rounds, oldest first.
        finished: whether everything is published.
    """

    folder: Path
    root: Path
    command: Sequence[str]
    rounds: list[Round] = field(default_factory=list)
    finished: bool = False

    @classmethod
    def for_command(cls, root: Path, stage: str, command: Sequence[str]) -> Batch:
        """Return the batch of a command; equal commands have the same batch."""
        folder = root.resolve() / JOBS / f"{stage}-{digest([stage, *command])[:8]}"
        return cls.read(root, folder) if (folder / _RECORD).is_file() else cls(folder, root, command)

    @classmethod
    def read(cls, root: Path, folder: Path) -> Batch:
        """Read the record of a batch; raise CorruptError if it is damaged."""
        path = folder / _RECORD
        try:
            values = json.loads(path.read_text())
            rounds = [Round(**recorded) for recorded in values["rounds"]]
            return cls(folder, root, values["command"], rounds, values["finished"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise CorruptError(
                f"{path} is damaged ({type(error).__name__}: {error})",
                "If none of its jobs runs, remove its folder and run mdcr submit again",
            ) from error

    @classmethod
    def all(cls, root: Path) -> list[Batch]:
        """Return the batches of a workspace, by name, for listings."""
        return list(readable(cls.folders(root), partial(cls.read, root)))

    @staticmethod
    def folders(root: Path) -> list[Path]:
        """Return the folders of the batches of a workspace, by name."""
        return sorted(path.parent for path in (root.resolve() / JOBS).glob(f"*/{_RECORD}"))

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
        """Return the unfinished jobs of this batch, without the job of this process."""
        own_job = int(os.environ.get("SLURM_JOB_ID", 0))
        jobs = [job for submitted in self.rounds[-2:] for job in submitted.jobs if job != own_job]
        return sorted({state.job for state in slurm.status(jobs) if not state.finished})

    def failures(self, lines: int = _LOG_LINES) -> list[str]:
        """Return Slurm's state and the last log lines of the failed tasks of the last round."""
        states = slurm.status(self.rounds[-1].jobs) if self.rounds else []
        failed = [state for state in states if state.finished and state.state != "COMPLETED"]
        texts = []
        for state in failed[:_MAX_FAILURES]:
            log = log_of(self.logs, state.job, state.task)
            log_lines = log.read_text(errors="replace").splitlines()[-lines:] if log.is_file() else ["(no log)"]
            texts.append("\n".join([str(state), *(f"    {line}" for line in log_lines)]))
        return texts + ([f"and {len(failed) - _MAX_FAILURES} more"] if len(failed) > _MAX_FAILURES else [])


class Commands(NamedTuple):
    """The command lines of a batch's jobs.

    Attributes:
        program: words that start ``mdcr``.
        stage_words: function that returns the options of a stage's subcommand.
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
    """Submit the missing work and return the round; None if nothing is missing.

    Raises:
        InputError: jobs of this batch are waiting or running.
    """
    _check_ended(batch)
    state = resume(batch.root, resources, targets, light=True, whole=True)
    if state.finished:
        _finish(batch)
        return None
    return _submit(batch, commands, settings, state, _plan_round(batch, settings, state))


def collect(
    batch: Batch, commands: Commands, settings: SlurmSettings, targets: Sequence[Task], resources: Resources
) -> Round | None:
    """Verify and publish the results of the last round, submit the missing work and return that round, or None.

    Raises:
        InputError: other jobs of this batch are waiting or running.
        StageError: the same artifacts are incomplete after ``settings.attempts`` rounds.
    """
    deadline = time.monotonic() + settings.patience
    while batch.alive() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)  # Slurm may need some time to clean up a finished task
    _check_ended(batch)
    wait_until_visible(batch.root, _completed_units(batch), settings.patience, _completed_artifacts(batch))
    state = resume(batch.root, resources, targets, light=False, whole=True)
    _keep_scripts(batch)
    if state.finished:
        _finish(batch)
        return None
    new_round = _plan_round(batch, settings, state)
    if batch.rounds and batch.rounds[-1].artifacts == new_round.artifacts:
        new_round = dataclasses.replace(new_round, attempt=batch.rounds[-1].attempt + 1)
    if new_round.attempt > settings.attempts:
        unit_count = sum(len(pending.missing) for pending in state.pending)
        and_artifacts = f" and {len(state.whole)} whole artifacts" if state.whole else ""
        for line in "\n".join(batch.failures()).splitlines():
            say(line)
        raise StageError(
            f"{unit_count} units{and_artifacts} are missing after {settings.attempts} attempts",
            "Fix the problems in the logs and run the same mdcr submit again: it makes only what is missing",
        )
    return _submit(batch, commands, settings, state, new_round)


def check_not_running(root: Path, targets: Iterable[Task], own_batch: Batch | None = None) -> None:
    """Check that no running or waiting job makes one of the ``targets`` or of their inputs.

    Slices take no lock, so a process that opens their work folder would delete their files. Only batches that share an
    artifact with the targets are looked up in Slurm; ``own_batch`` and the batch of this process are ignored.

    Raises:
        InputError: a job makes one of these artifacts.
    """
    batches = [batch for batch in Batch.all(root) if batch.rounds and not batch.finished]
    own_job = int(os.environ.get("SLURM_JOB_ID", 0))
    batches = [batch for batch in batches if own_job not in batch.rounds[-1].jobs]
    batches = [batch for batch in batches if own_batch is None or batch.folder != own_batch.folder]
    folders = (f"{task.folder}/{task.name}" for task in with_inputs(targets if batches else ()))
    missing = {folder for folder in folders if not (root / folder / MANIFEST).is_file()}
    for batch in batches:
        shared = sorted(missing & batch.rounds[-1].artifacts)
        if shared and (jobs := _alive_or_warn(batch)):
            job_list = ", ".join(map(str, jobs))
            raise InputError(
                f"jobs of {batch.folder.name} are making {shared[0]}: {job_list}",
                f"Wait for them (mdcr jobs), or scancel {job_list.replace(',', '')}",
            )


def _alive_or_warn(batch: Batch) -> list[int]:
    """Return the unfinished jobs of a batch; warn and return none if Slurm is not available."""
    try:
        return batch.alive()
    except MdcrError as error:
        say(f"{batch.folder.name} was submitted for the same artifacts; its jobs may still be running ({error})")
        return []


def _plan_round(batch: Batch, settings: SlurmSettings, state: ChainState) -> Round:
    """Return the round for the missing work, without job ids."""
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


def _submit(batch: Batch, commands: Commands, settings: SlurmSettings, state: ChainState, new_round: Round) -> Round:
    """Submit a round's jobs. The record is written after each, so that no job is forgotten."""
    batch.logs.mkdir(parents=True, exist_ok=True)
    batch.finished = False
    batch.rounds.append(new_round)

    def record(**jobs: Any) -> None:
        batch.rounds[-1] = dataclasses.replace(batch.rounds[-1], **jobs)
        batch.write()

    arrays: dict[str, int] = {}
    for stage in dict.fromkeys(new_round.stages.values()):
        script = batch.folder / f"{stage}.sh"
        name = f"{stage} {batch.folder.name}"
        text = job_script(settings, commands.stage(stage), name=name, logs=batch.logs, slices=settings.nodes)
        files.write_text(script, text)
        of_stage = [pending for pending in state.pending if pending.task.stage == stage]
        slices = _slices_with_missing(of_stage, settings.nodes)
        arrays[stage] = slurm.submit(script, array=slices, at_once=settings.at_once)
        record(arrays=arrays)
    whole_jobs: dict[str, int] = {}
    for subcommand in dict.fromkeys(new_round.whole.values()):
        inputs = _input_subcommands(state.whole, subcommand)
        input_jobs = [job for name, job in whole_jobs.items() if name in inputs]
        words, job_settings = ((), settings) if subcommand == TRAIN else (("--slice", "whole"), settings.collector())
        command = commands.stage(subcommand, *words)
        whole_jobs[subcommand] = _submit_job(batch, job_settings, command, f"{subcommand}-whole", input_jobs)
        record(whole_jobs=whole_jobs)
    jobs = [*arrays.values(), *whole_jobs.values()]
    record(collect=_submit_job(batch, settings.collector(), commands.collect(), "collect", jobs))
    return batch.rounds[-1]


def _submit_job(batch: Batch, settings: SlurmSettings, command: Sequence[str], name: str, after: Sequence[int]) -> int:
    """Submit a single job and return its id."""
    script = batch.folder / f"{name}.sh"
    text = job_script(settings, command, name=f"{name} {batch.folder.name}", logs=batch.logs)
    files.write_text(script, text)
    return slurm.submit(script, after=after)


def _input_subcommands(tasks: Sequence[Task], subcommand: str) -> set[str]:
    """Return the other subcommands whose jobs make inputs of this one."""
    inputs = {source.id for task in tasks if whole_job(task) == subcommand for source in task.reads.values()}
    return {str(whole_job(task)) for task in tasks if task.id in inputs} - {subcommand}


def _slices_with_missing(pending: Sequence[Pending], count: int) -> list[int]:
    """Return the numbers of the slices that have missing units."""
    return [
        number
        for number in range(count)
        if any(set(Slice(number, count).units(work.units)) & set(work.missing) for work in pending)
    ]


def _completed_units(batch: Batch) -> dict[str, list[str]]:
    """Return the units of the last round's slices that Slurm reports as completed, by work folder."""
    completed: dict[str, list[str]] = {}
    for last_round in batch.rounds[-1:]:
        for state in slurm.status(last_round.arrays.values()):
            for folder, units in last_round.work.items():
                if state.state == "COMPLETED" and state.job == last_round.arrays[last_round.stages[folder]]:
                    completed.setdefault(folder, []).extend(Slice(state.task or 0, last_round.slices).units(units))
    return completed


def _completed_artifacts(batch: Batch) -> list[str]:
    """Return the artifacts of the last round's whole jobs if Slurm reports all of these as completed."""
    jobs = batch.rounds[-1].whole_jobs.values() if batch.rounds else ()
    completed = {state.job for state in slurm.status(jobs) if state.state == "COMPLETED"}
    return list(batch.rounds[-1].whole) if jobs and completed == set(jobs) else []


def artifact_of(work: str) -> str:
    """Return the artifact folder of a work folder."""
    folder = Path(work)
    return folder.with_name(folder.name.removeprefix(".").removesuffix(".partial")).as_posix()


def _finish(batch: Batch) -> None:
    if batch.rounds:
        batch.finished = True
        batch.write()


def _check_ended(batch: Batch) -> None:
    if alive := batch.alive():
        jobs = ", ".join(map(str, alive))
        raise InputError(f"jobs of {batch.folder.name} are not done yet: {jobs}", f"See mdcr jobs, or scancel {jobs}")


def _keep_scripts(batch: Batch) -> None:
    """Copy the job scripts into the published artifacts that they helped to make."""
    for submitted in batch.rounds:
        scripts = {artifact_of(work): f"{stage}.sh" for work, stage in submitted.stages.items()}
        scripts |= {folder: f"{subcommand}-whole.sh" for folder, subcommand in submitted.whole.items()}
        for folder, script in scripts.items():
            target = batch.root / folder / "job.sh"
            if (batch.root / folder / MANIFEST).is_file() and not target.exists():
                files.write_text(target, (batch.folder / script).read_text())
