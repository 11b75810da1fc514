"""Jobs of submitit in a workspace: ``runs/jobs/NAME`` has their pickles, scripts, logs and a record of what they do."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core import files
from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.install import optional
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JOBS

_RECORD = "record.json"
_TIMEOUT = 120.0
"""Time limit of a command of Slurm in seconds; a busy controller answers late."""

_POLL_SECONDS = 5.0
_FINAL = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "ENDED",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
_STUCK = re.compile(
    r"launch.failed|HoldMaxRequeue|NeverSatisfied|Invalid|Not(Allowed|Avail)|BadConstraints|Partition\w*(Config|Limit)"
)
"""Reasons for waiting that do not go away."""

_OURS = {"job_name": "mdcr", "time": None, "wckey": None, "use_srun": False, "stderr_to_stdout": True}
"""Parameters in place of submitit's defaults; None leaves it to Slurm."""

_KEPT = ("SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS")


class State(NamedTuple):
    """Slurm's state of a job, and its reason for waiting (empty: none); ``ENDED`` is one that Slurm has forgotten."""

    state: str
    reason: str

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state

    @property
    def finished(self) -> bool:
        """Whether Slurm will not run it again."""
        return self.state in _FINAL

    @property
    def stuck(self) -> bool:
        """Whether it waits for a reason that does not go away."""
        return not self.finished and bool(_STUCK.search(self.reason.replace(" ", "_")))


@dataclass(frozen=True)
class Jobs:
    """The jobs of one purpose.

    Attributes:
        folder: their folder; submitit names the files in it by job.
    """

    folder: Path

    @classmethod
    def all(cls, root: Path) -> list[Jobs]:
        """Return the jobs of a workspace, by folder."""
        return [cls(record.parent) for record in sorted((root.resolve() / JOBS).glob(f"*/{_RECORD}"))]

    @property
    def record(self) -> Mapping[str, Any]:
        """What they do: ``command`` of a driver, or ``work`` folders of workers; empty if it cannot be read."""
        record = files.read_json(self.folder / _RECORD)
        return record if isinstance(record, dict) else {}

    @property
    def ids(self) -> list[str]:
        """Their ids, such as ``12`` or ``12_3``, in order."""
        names = [path.name.removesuffix("_submitted.pkl") for path in self.folder.glob("*_submitted.pkl")]
        return sorted(names, key=lambda name: [int(part) for part in name.split("_")])

    @property
    def works(self) -> list[Workdir]:
        """The work folders in which they make units."""
        root = self.folder.parents[len(Path(JOBS).parts)]
        return [Workdir(root / folder) for folder in self.record.get("work", ())]

    def log(self, job: str) -> Path:
        """Return the log of a job."""
        return self.folder / f"{job}_0_log.out"

    def alive(self) -> list[str]:
        """Return the jobs that wait or run, without the job of this process."""
        own = os.environ.get("SLURM_JOB_ID")
        return [job for job, state in states(self.ids).items() if not state.finished and job != own]

    def submit(
        self,
        parameters: Mapping[str, Any],
        record: Mapping[str, Any],
        function: Callable[..., Any],
        *arguments: Iterable[Any],
    ) -> list[Any]:
        """Submit a job for each item of ``arguments``, as one array, and return submitit's jobs.

        Raises:
            InputError: Slurm or submitit refuses the parameters.
        """
        submitit = optional("submitit", "--on=slurm", "slurm")
        self.folder.mkdir(parents=True, exist_ok=True)
        queue = _queue(self.folder, parameters)
        files.write_text(self.folder / _RECORD, json.dumps(record))
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):  # the next job has its own variables
                os.environ.update(kept)
                return list(queue.map_array(function, *arguments))
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            lines = [line for line in str(error).splitlines() if "error:" in line] or str(error).splitlines()[-1:]
            reasons = dict.fromkeys(re.sub("^.*error: ", "", line) for line in lines)
            remedy = "sinfo shows what there is; docs/clusters.md has the settings"
            raise InputError(f"Slurm refuses the job: {'; '.join(reasons)}", remedy) from error

    def script(self, parameters: Mapping[str, Any], count: int) -> str:
        """Return the script of a job, or of an array of ``count`` jobs; nothing is written or submitted."""
        queue = _queue(self.folder, parameters)
        if count > 1:
            queue.parameters["map_count"] = count
        text: str = queue._make_submission_file_text(queue._submitit_command_str, "")
        return text

    def clear(self) -> None:
        """Remove the record and the pickles; scripts and logs stay."""
        for path in (*self.folder.glob("*.pkl"), *self.folder.glob(".submission*"), self.folder / _RECORD):
            path.unlink(missing_ok=True)


def available() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None and shutil.which("srun") is not None


def states(jobs: Iterable[str]) -> dict[str, State]:
    """Return Slurm's state of each job, from its queue, or from its accounting where the queue has forgotten it.

    Raises:
        InputError: Slurm's commands are not on this machine.
        StageError: Slurm does not answer.
    """
    wanted = list(jobs)
    if not wanted:
        return {}
    known: dict[str, State] = {}
    for line in _ask("squeue", "--me", "--array", "--states=all", "--noheader", "--format=%i|%T|%r").splitlines():
        job, state, reason = line.split("|", 2)
        known[job] = State(state, "" if reason == "None" else reason)
    if forgotten := [job for job in wanted if job not in known and shutil.which("sacct")]:
        try:
            text = _ask(
                "sacct", "--parsable2", "--allocations", "--format=JobID,State", f"--jobs={','.join(forgotten)}"
            )
        except StageError:  # the cluster has no accounting
            text = ""
        accounts = optional("submitit", "mdcr jobs", "slurm").SlurmJob.watcher.read_info(text)
        known |= {job: State(accounts[job]["State"].split()[0], "") for job in forgotten if job in accounts}
    return {job: known.get(job, State("ENDED", "")) for job in wanted}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. The command outlives this process, which may be about to end."""
    if ids := list(jobs):
        subprocess.Popen(
            ["scancel", *ids], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def check_not_running(runner: Runner, targets: Iterable[Task]) -> None:
    """Check that no worker of a driver that was killed makes one of the ``targets`` or of their inputs.

    Workers take no lock, so a process that opens their work folder would delete their files. A driver waits for them;
    then it makes what is left.

    Raises:
        InputError: this process is no driver, and workers make one of these artifacts.
    """
    workers = [jobs for jobs in Jobs.all(runner.root) if jobs.works and jobs.ids]
    if not workers:
        return
    own = {runner.work_folder(task).resolve() for task in with_inputs(targets) if not runner.published(task)}
    for jobs in workers:
        if not own & {work.path for work in jobs.works}:
            continue
        if runner.executor is None and (alive := _alive_or_warn(jobs)):
            raise InputError(
                f"jobs of {jobs.folder.name} are making one of these artifacts: {', '.join(alive)}",
                f"Wait for them (mdcr jobs), or scancel {' '.join(alive)}",
            )
        if runner.executor is not None and (alive := jobs.alive()):
            say(f"waiting for jobs of another driver: {', '.join(alive)}")
            while jobs.alive():
                time.sleep(_POLL_SECONDS)


def describe(jobs: Jobs) -> dict[str, Any]:
    """Return purpose, units and states of jobs, and the last line of each log."""
    work = []
    for folder in jobs.works:
        units = folder.plan() or {}
        name = folder.path.name.removeprefix(".").removesuffix(".partial")
        published = (folder.path.with_name(name) / MANIFEST).is_file()
        work.append({"artifact": name, "units": len(units), "done": sum(map(folder.done, units)), "made": published})
    try:
        found = {job: str(state) for job, state in states(jobs.ids).items()}
    except MdcrError as error:
        found = dict.fromkeys(jobs.ids, f"unknown ({error.what})")
    logs = [{"job": job, "state": state, "last": _last_line(jobs.log(job))} for job, state in found.items()]
    return {"jobs": jobs.folder.name, "command": jobs.record.get("command"), "work": work, "states": logs}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return next((line for line in reversed(lines) if line.strip()), "(no log yet)")


def _alive_or_warn(jobs: Jobs) -> Sequence[str]:
    try:
        return jobs.alive()
    except MdcrError as error:
        say(f"{jobs.folder.name} was submitted for the same artifacts; its jobs may still be running ({error})")
        return ()


def _queue(folder: Path, parameters: Mapping[str, Any]) -> Any:
    """Return submitit's executor with parameters; Slurm's own defaults hold for the others."""
    submitit = optional("submitit", "--on=slurm", "slurm")
    given = dict(parameters)
    python, setup = given.pop("python", None), given.pop("setup", [])
    if not isinstance(setup, list):
        raise InputError(f"setup = {setup!r} must be a list of lines", "Put it in brackets")
    try:
        queue = submitit.SlurmExecutor(folder, python=python)
    except RuntimeError as error:
        raise InputError("srun is not on this machine", "Run this on a login node of a Slurm cluster") from error
    try:
        given["setup"] = ["set -eo pipefail", *setup]
        given["additional_parameters"] = {"requeue": True, **given.get("additional_parameters", {})}
        queue.update_parameters(**{**_OURS, **given})
    except (TypeError, ValueError) as error:
        refusal, _, valid = str(error).partition("\n")
        names = ", ".join(re.findall(r"- (\w+) \(default", valid))
        remedy = f"Those of submitit's SlurmExecutor: {names}" if names else "Correct the file of --slurm"
        raise InputError(f"submitit refuses the settings of a job: {refusal}", remedy) from error
    return queue


def _ask(*command: str) -> str:
    """Return the output of a command of Slurm."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except FileNotFoundError as error:
        raise InputError(f"{command[0]} is not on this machine", "Run this on a login node of the cluster") from error
    except subprocess.TimeoutExpired as error:
        raise StageError(f"{command[0]} gave no answer in {_TIMEOUT:.0f} s", "Try again") from error
    if done.returncode:
        reason = re.sub(r"^.*error: ", "", (done.stderr.strip().splitlines() or ["no reason given"])[-1])
        raise StageError(f"{command[0]} failed: {reason}", "Try again, or ask the administrators of the cluster")
    return done.stdout
