"""Run units on Slurm: jobs share them, the process that submitted the jobs waits, and takes up what lost jobs left."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cluster.jobs import Jobs, State, cancel, states
from pipeline.cluster.settings import SlurmSettings
from pipeline.core.config import digest
from pipeline.core.errors import MdcrError, StageError
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.task import Assignment, Facts, divide, run_here
from pipeline.core.workspace import JOBS

ROUNDS = 3
"""Maximum number of times that units of lost jobs are submitted."""

PATIENCE = 60.0
"""Seconds to wait for files of finished jobs, which a shared file system may show late."""

_LOST = ("CANCELLED", "OUT_OF_MEMORY", "TIMEOUT")
_RESULT_SECONDS = 10.0
_POLL_SECONDS = 1.0
_MOST_SECONDS = 30.0
"""Maximum seconds between two questions to Slurm."""


@dataclass(frozen=True)
class OnSlurm:
    """An executor of units on Slurm.

    Attributes:
        root: the workspace, an absolute path that all nodes see.
        settings: what each job asks for.
        limits: memory, workers and device that the user gave; a worker plans the others by what its job has.
    """

    root: Path
    settings: SlurmSettings
    limits: Mapping[str, Any]

    def __call__(self, assignment: Assignment) -> list[Facts]:
        """Make the units of an assignment.

        Raises:
            MdcrError: a job raised it; the others are cancelled.
            StageError: a unit was lost in every round.
        """
        folders = [job.out.path.resolve().relative_to(self.root).as_posix() for job in assignment.jobs]
        name = f"{type(assignment.stage).__name__.lower()}-{digest(folders)[:8]}"
        jobs = Jobs(self.root / JOBS / name)
        jobs.clear()
        facts: list[Facts] = []
        lost: list[str] = []
        with Progress(sum(assignment.sizes.values()), "on Slurm", "docs") as progress:
            for _ in range(ROUNDS):
                missing = assignment.unfinished()
                if not missing.jobs:
                    break
                made, lost = self._round(jobs, {"work": folders}, missing, progress)
                facts += made
        for job in assignment.unfinished().jobs:
            where = f"units of {job.out.path.name} were lost {ROUNDS} times, first {min(job.units)}"
            raise StageError(
                f"{len(job.units)} {where}: {lost[-1] if lost else 'their files are not seen here'}",
                "Mend what the log says, or ask for more memory or time (docs/clusters.md), and run it again",
            )
        jobs.clear()
        return facts

    def _round(
        self, jobs: Jobs, record: Mapping[str, Any], missing: Assignment, progress: Progress
    ) -> tuple[list[Facts], list[str]]:
        """Submit jobs for missing units and wait for them; return their facts, and a line for each that was lost."""
        parts = [missing.only(units) for units in divide(missing.sizes, self.settings.nodes) if units]
        limits = {**self.limits, "device": "cuda"} if self._needs_gpu(missing) else self.limits
        submitted = jobs.submit(self.settings.worker, record, make_part, parts, [limits] * len(parts))
        say(f"{len(submitted)} jobs, {submitted[0].job_id} to {submitted[-1].job_id}; logs in {jobs.folder}")
        waiting = {job.job_id: (job, part) for job, part in zip(submitted, parts, strict=True)}
        facts: list[Facts] = []
        lost: list[str] = []
        ended: dict[str, float] = {}
        total, made = sum(missing.sizes.values()), 0
        started = asked = time.monotonic()
        found: dict[str, State] = {}
        try:
            while waiting:
                time.sleep(_POLL_SECONDS)
                now = time.monotonic()
                os.listdir(jobs.folder)  # makes NFS refresh its cache
                for name, (job, part) in list(waiting.items()):
                    if job.paths.result_pickle.exists():
                        del waiting[name]
                        facts += _result(job, jobs.log(name))
                        wait_until_visible(part)
                if now - asked >= min(_MOST_SECONDS, max(2.0, (now - started) / 10)):
                    asked, found = now, _states_or_warn(waiting)
                    done = total - sum(missing.unfinished().sizes.values())
                    progress.add(done - made)
                    made = done
                for name in [name for name in waiting if name in found and _lost(found[name], now, name, ended)]:
                    del waiting[name]
                    lost.append(f"job {name}: {found[name]}, log {jobs.log(name)}")
                    say(f"lost: {lost[-1]}")
                    if found[name].stuck:
                        cancel([name])
        finally:
            cancel(waiting)
        progress.add(total - sum(missing.unfinished().sizes.values()) - made)
        return facts, lost

    def _needs_gpu(self, assignment: Assignment) -> bool:
        """Whether a job that finds no GPU must not go on without one."""
        return self.settings.gpus and assignment.stage.accelerated and self.limits.get("device", "auto") == "auto"


def make_part(assignment: Assignment, limits: Mapping[str, Any]) -> list[Facts] | MdcrError:
    """Make the units of one job, by the memory and the processors that it has; an error is returned."""
    try:
        return run_here(dataclasses.replace(assignment, resources=Resources.of(**limits)))
    except MdcrError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201  # into the log of the job
        return error
    except Exception as error:  # noqa: BLE001  # of any library: the driver ends with it
        traceback.print_exc()
        return StageError(f"a job failed: {type(error).__name__}: {error}", "Its log has more: runs/jobs")


def drive(words: Sequence[str]) -> None:
    """Run ``mdcr`` in place of this process, so that signals of Slurm reach it and its exit code is the job's."""
    os.execv(sys.executable, [sys.executable, "-m", "pipeline", *words])  # noqa: S606


def _result(job: Any, log: Path) -> list[Facts]:
    result: list[Facts] | MdcrError = job.result()
    if isinstance(result, MdcrError):
        say(f"job {job.job_id} failed; its log: {log}")
        raise result
    return result


def _states_or_warn(jobs: Mapping[str, Any]) -> dict[str, State]:
    try:
        return states(jobs)
    except MdcrError as error:
        say(str(error))
        return {}


def _lost(state: State, now: float, name: str, ended: dict[str, float]) -> bool:
    """Whether a job without a result is lost: its result may be seen late, and Slurm may requeue it."""
    if state.state in _LOST or state.stuck:
        return True
    since = ended.setdefault(name, now) if state.finished else ended.pop(name, now)
    return state.finished and now - since >= _RESULT_SECONDS


def wait_until_visible(assignment: Assignment, patience: float = PATIENCE) -> bool:
    """Wait until this machine sees the units that a job made; return whether it did in time."""
    deadline = time.monotonic() + patience
    while assignment.unfinished().jobs:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
        for job in assignment.jobs:
            os.listdir(job.out.path)  # makes NFS refresh its cache
    return True
