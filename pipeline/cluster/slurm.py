"""Run units on Slurm: jobs share them, the process that submitted the jobs waits, and takes up what lost jobs left."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cluster.jobs import Jobs, cancel, finished, states
from pipeline.cluster.settings import SlurmSettings
from pipeline.core.config import counted, digest
from pipeline.core.errors import MdcrError, StageError
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.task import Assignment, UnitProvenance, divide, run_here
from pipeline.core.workspace import JOBS

ROUNDS = 3
"""Maximum number of times that units of lost jobs are submitted."""

_RESULT_SECONDS, _UNITS_SECONDS = 10.0, 60.0
"""Patience for the result of a job that ended, and for its units: Slurm may requeue it, and folders show files late."""

_MOST_SECONDS = 30.0
"""Maximum seconds between two questions to Slurm."""


@dataclass(frozen=True)
class OnSlurm:
    """An executor of units on Slurm, for a workspace that all nodes see, by an absolute path.

    ``limits`` are memory, workers and device that the user gave; a worker plans the others by what its job has.
    """

    root: Path
    settings: SlurmSettings
    limits: Mapping[str, Any]

    def __call__(self, assignment: Assignment) -> list[UnitProvenance]:
        """Make the units of an assignment.

        Raises:
            MdcrError: a job raised it; the others are cancelled.
            StageError: a unit was lost in every round.
        """
        folder = str(assignment.out.path.resolve())
        jobs = Jobs(self.root / JOBS / f"{type(assignment.stage).__name__.lower()}-{digest(folder)[:8]}")
        jobs.clear()
        facts: list[UnitProvenance] = []
        lost: list[str] = []
        with Progress(sum(assignment.units.values()), "on Slurm", "docs") as progress:
            for _ in range(ROUNDS):
                if (missing := assignment.unfinished()).units:
                    lost = self._round(jobs, folder, missing, facts, progress)
        if lacking := assignment.unfinished().units:
            raise StageError(
                f"lost {ROUNDS} times: {counted(len(lacking), 'unit')} of {assignment.out.path.name}, first "
                f"{min(lacking)}; " + (lost or ["their files are not seen here"])[-1],
                "Mend what the log reports, or ask for more memory or time (docs/clusters.md), and run it again",
            )
        jobs.clear()
        return facts

    def _round(
        self, jobs: Jobs, folder: str, missing: Assignment, facts: list[UnitProvenance], progress: Progress
    ) -> list[str]:
        """Submit jobs for missing units and wait for them; add their facts, and return a line for each lost one."""
        parts = [missing.only(units) for units in divide(missing.units, self.settings.nodes) if units]
        needs_gpu = self.settings.gpus and missing.stage.accelerated and self.limits.get("device", "auto") == "auto"
        limits = {**self.limits, "device": "cuda"} if needs_gpu else self.limits
        submitted = jobs.submit(self.settings.worker, {"work": folder}, make_part, parts, [limits] * len(parts))
        say(f"{counted(len(submitted), 'job')}, {submitted[0].job_id} to {submitted[-1].job_id}; logs in {jobs.folder}")
        waiting = {job.job_id: (job, part) for job, part in zip(submitted, parts, strict=True)}
        lost: list[str] = []
        ended: dict[str, float] = {}
        total, made, started = sum(missing.units.values()), 0, time.monotonic()
        try:
            while waiting:
                time.sleep(min(_MOST_SECONDS, 1 + (time.monotonic() - started) / 30))
                now, found = time.monotonic(), states(waiting)
                for seen in (jobs.folder, folder):
                    os.listdir(seen)  # makes NFS refresh its cache
                for name, (job, part) in list(waiting.items()):
                    state, has_result = found[name], job.paths.result_pickle.exists()
                    result = job.result() if has_result else []
                    if isinstance(result, MdcrError):
                        say(f"job {name} failed; its log: {jobs.log(name)}")
                        raise result
                    ended[name] = min(now, ended.get(name, now)) if has_result or finished(state) else math.inf
                    if has_result and not part.unfinished().units:
                        facts += result
                    elif now - ended[name] > (_UNITS_SECONDS if has_result else _RESULT_SECONDS):
                        lost.append(f"job {name}: {state}, log {jobs.log(name)}")
                        say(f"lost: {lost[-1]}")
                    else:
                        continue
                    del waiting[name]
                done = total - sum(missing.unfinished().units.values())
                progress.add(done - made, next(iter(found.values())))  # a reason for waiting, such as of no partition
                made = done
        finally:
            cancel(waiting)
        return lost


def make_part(assignment: Assignment, limits: Mapping[str, Any]) -> list[UnitProvenance] | MdcrError:
    """Make the units of one job, by the memory and the processors that it has; an error is returned."""
    try:
        return run_here(dataclasses.replace(assignment, resources=Resources.of(**limits)))
    except Exception as error:  # noqa: BLE001  # of any library: the driver ends with it
        if not isinstance(error, MdcrError):
            traceback.print_exc()
            return StageError(f"a job failed: {type(error).__name__}: {error}", "Its log has more: runs/jobs")
        print(error, file=sys.stderr, flush=True)  # noqa: T201  # into its log
        return error


def drive(words: Sequence[str]) -> None:
    """Run ``mdcr`` in place of this process, so that signals of Slurm reach it and its exit code is the job's."""
    os.execv(sys.executable, [sys.executable, "-m", "pipeline", *words])  # noqa: S606
