"""Run Slurm's commands (submit, status) and parse their output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import InputError, StageError, nearest

_TIMEOUT = 120.0
"""Time limit of a command in seconds; a busy controller answers late."""

_SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Reason"

_FINAL_STATES = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    }
)  # fmt: skip
_STUCK_REASONS = frozenset(
    {
        "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
        "JobHeldAdmin", "JobHeldUser", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TaskState:
    """Slurm's state of a job, or of one task of an array job.

    Attributes:
        job: id of the job.
        task: number in the array; None if the job has no array.
        state: Slurm's state, such as ``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``CANCELLED``, ``TIMEOUT``,
            ``NODE_FAIL``, ``OUT_OF_MEMORY``, ``PREEMPTED``.
        reason: Slurm's reason for waiting or ending; empty: none.
        exit_code: exit code of the command.
        signal: signal that ended the command; 0: none.
        node: node of the last run; empty: none yet.
        restarts: number of times it was requeued; 0 if only the accounting has the job.
    """

    job: int
    task: int | None
    state: str
    reason: str
    exit_code: int
    signal: int
    node: str
    restarts: int

    def __str__(self) -> str:
        name = f"{self.job}_{self.task}" if self.task is not None else str(self.job)
        end = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return f"{name} {self.state} ({end})" + (f" on {self.node}" if self.node else "")

    @property
    def finished(self) -> bool:
        """Whether Slurm will not run it again."""
        return self.state in _FINAL_STATES

    @property
    def stuck(self) -> bool:
        """Whether it waits for a reason that only the user can change."""
        return self.state == "PENDING" and self.reason in _STUCK_REASONS


def available() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def submit(script: Path, *, array: Sequence[int] = (), at_once: int = 0, after: Sequence[int] = ()) -> int:
    """Submit a job script and return the job's id.

    Args:
        script: file with the ``#SBATCH`` lines; Slurm keeps a copy.
        array: numbers of the array's tasks; empty: a single job.
        at_once: maximum number of the array's tasks that run at the same time; 0: no limit.
        after: jobs that must have ended, with or without success (``afterany``).

    Raises:
        InputError: Slurm refuses the request.
        StageError: Slurm does not answer.
    """
    options = ["--parsable"]
    if array:
        options.append(f"--array={format_numbers(array)}" + (f"%{at_once}" if at_once else ""))
    if after:
        options.append("--dependency=afterany:" + ":".join(map(str, after)))
    result = _run("sbatch", *options, str(script))
    if result.returncode:
        raise _submit_error(result.stderr, script)
    return int(result.stdout.strip().split(";")[0])


def status(jobs: Iterable[int]) -> list[TaskState]:
    """Return the states of the tasks of ``jobs``, in order of job and task.

    The controller forgets a job minutes after its end; the accounting, if the cluster has one, does not. Tasks that are
    unknown to both are left out.
    """
    job_ids = list(jobs)
    if not job_ids:
        return []
    states = {(state.job, state.task): state for state in [*_from_accounting(job_ids), *_from_controller(job_ids)]}
    return sorted(states.values(), key=lambda state: (state.job, -1 if state.task is None else state.task))


def partitions() -> list[str]:
    """Return the names of the cluster's partitions."""
    return sorted(set(_run("sinfo", "--noheader", "--format=%R").stdout.split()))


def _from_controller(jobs: Iterable[int]) -> Iterator[TaskState]:
    for job in jobs:
        result = _run("scontrol", "show", "job", "--oneliner", str(job))
        if result.returncode == 0:
            yield from from_scontrol(result.stdout)
        elif "Invalid job id" not in result.stderr:
            raise StageError(f"scontrol show job {job} failed: {_message(result.stderr)}", "Try again")


def _from_accounting(jobs: Iterable[int]) -> Iterator[TaskState]:
    if shutil.which("sacct") is None:
        return
    ids = ",".join(map(str, jobs))
    result = _run("sacct", "--noheader", "--parsable2", "--allocations", f"--format={_SACCT_FORMAT}", f"--jobs={ids}")
    if result.returncode == 0:
        yield from (state for state in from_sacct(result.stdout) if state.finished)
    elif "accounting storage is disabled" not in result.stderr:
        raise StageError(f"sacct failed: {_message(result.stderr)}", "Try again")


def _submit_error(stderr: str, script: Path) -> InputError | StageError:
    message = _message(stderr)
    if "Unable to contact" in message or "timed out" in message:
        return StageError(f"Slurm does not answer: {message}", "Try again, or ask the administrators of the cluster")
    if "nvalid partition" in message:
        match = re.search(r"invalid partition specified: (\S+)", stderr)
        return InputError(
            f"Slurm has no partition {match[1] if match else 'of that name'!r}",
            f"{nearest(match[1] if match else '', partitions())} (partitions: {', '.join(partitions())})",
        )
    return InputError(f"Slurm refuses {script}: {message}", "Correct the [slurm] settings; sinfo shows what there is")


def _message(stderr: str) -> str:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in stderr.strip().splitlines()]
    return "; ".join(dict.fromkeys(lines)).rstrip(".") or "no reason given"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command without the variables of the surrounding job, and with complete lists of tasks."""
    in_job = "SLURM_JOB_ID" in os.environ
    keep = {"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"}
    removed = {name for name in os.environ if in_job and name.startswith("SLURM_")} - keep
    env = {name: value for name, value in os.environ.items() if name not in removed}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, env=env | {"SLURM_BITSTR_LEN": "0"}
        )
    except FileNotFoundError as error:
        raise InputError(
            f"{command[0]} is not on this machine",
            "Run this on a login node of the cluster; Debian's package slurm-client has Slurm's commands",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StageError(f"{command[0]} gave no answer in {_TIMEOUT:.0f} s", "Try again") from error


def from_scontrol(text: str) -> Iterator[TaskState]:
    """Parse ``scontrol show job --oneliner``: one line for a task, or for several that have not started."""
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        tasks = fields.get("ArrayTaskId", "")
        name = f"{fields['ArrayJobId']}_{tasks}" if tasks else fields["JobId"]
        values = (fields["JobState"], fields["ExitCode"], fields["NodeList"], fields["Reason"])
        yield from _states(name, values, int(fields["Restarts"]))


def from_sacct(text: str) -> Iterator[TaskState]:
    """Parse ``sacct --noheader --parsable2 --allocations --format=JobID,State,ExitCode,NodeList,Reason``."""
    for line in text.splitlines():
        name, *values = line.split("|")
        yield from _states(name, values, 0)


def format_numbers(numbers: Iterable[int]) -> str:
    """Return task numbers in Slurm's notation, such as ``0-3,7``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def parse_numbers(text: str) -> Iterator[int]:
    """Parse task numbers in Slurm's notation: ``0-3,7``, ``0-10:2``, ``2-5%1``."""
    for item in text.partition("%")[0].split(","):
        span, _, step = item.partition(":")
        start, _, stop = span.partition("-")
        yield from range(int(start), int(stop or start) + 1, int(step or 1))


def _states(name: str, values: Sequence[str], restarts: int) -> Iterator[TaskState]:
    """Parse one record; ``JOB_[2-5%1]`` stands for several tasks that have not started."""
    state, code, node, reason = values
    job, _, tasks = name.partition("_")
    exit_code, _, signal = code.partition(":")
    for task in parse_numbers(tasks.strip("[]")) if tasks else (None,):
        yield TaskState(
            int(job),
            task,
            state.split()[0],
            "" if reason == "None" else reason,
            int(exit_code),
            int(signal or 0),
            "" if node in ("None assigned", "(null)") else node,
            restarts,
        )
