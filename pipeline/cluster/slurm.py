"""Slurm's commands (submit, status) and what they print. Slurm schedules, requeues and keeps dependencies."""

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
"""Seconds a command may take: a busy controller answers late."""


_SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Reason"

_ENDED = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    }
)  # fmt: skip
_HOPELESS = frozenset(
    {
        "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
        "JobHeldAdmin", "JobHeldUser", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TaskState:
    """What Slurm knows of one job, or of one task of an array.

    Attributes:
        job: the id sbatch gave.
        task: number in the array; None of a job without one.
        state: Slurm's word, such as ``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``CANCELLED``,
            ``TIMEOUT``, ``NODE_FAIL``, ``OUT_OF_MEMORY``, ``PREEMPTED``.
        reason: why it waits or ended, as Slurm words it; empty: none.
        exit_code: of the command.
        signal: that ended the command; 0: none.
        node: where it ran last; empty: nowhere yet.
        restarts: times it was requeued (0 where only the accounting remembers the job).
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
        how = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return f"{name} {self.state} ({how})" + (f" on {self.node}" if self.node else "")

    @property
    def finished(self) -> bool:
        """Whether it will not run again by itself."""
        return self.state in _ENDED

    @property
    def stuck(self) -> bool:
        """Whether it waits for something that only the user can change."""
        return self.state == "PENDING" and self.reason in _HOPELESS


def available() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def submit(script: Path, *, array: Sequence[int] = (), at_once: int = 0, after: Sequence[int] = ()) -> int:
    """Submit a job script and return the job's id.

    Args:
        script: file with the ``#SBATCH`` lines; Slurm keeps a copy.
        array: numbers of the array's tasks; none: a single job.
        at_once: tasks of the array that may run at the same time; 0: no limit.
        after: jobs that must have ended, well or not (``afterany``).

    Raises:
        InputError: Slurm refuses the request.
        StageError: Slurm does not answer.
    """
    options = ["--parsable"]
    if array:
        options.append(f"--array={spans(array)}" + (f"%{at_once}" if at_once else ""))
    if after:
        options.append("--dependency=afterany:" + ":".join(map(str, after)))
    result = _run("sbatch", *options, str(script))
    if result.returncode:
        raise _refused(result.stderr, script)
    return int(result.stdout.strip().split(";")[0])


def status(jobs: Iterable[int]) -> list[TaskState]:
    """Return the state of each task of ``jobs``, in order of job and task.

    The controller forgets a job minutes after its end; then the accounting, where a cluster has one, still knows it.
    Tasks unknown to both are left out.
    """
    wanted = list(jobs)
    if not wanted:
        return []
    known = {(state.job, state.task): state for state in [*_accounted(wanted), *_controlled(wanted)]}
    return sorted(known.values(), key=lambda state: (state.job, -1 if state.task is None else state.task))


def partitions() -> list[str]:
    """Return the names of the cluster's partitions."""
    return sorted(set(_run("sinfo", "--noheader", "--format=%R").stdout.split()))


def _controlled(jobs: Iterable[int]) -> Iterator[TaskState]:
    for job in jobs:
        result = _run("scontrol", "show", "job", "--oneliner", str(job))
        if result.returncode == 0:
            yield from from_scontrol(result.stdout)
        elif "Invalid job id" not in result.stderr:
            raise StageError(f"scontrol show job {job} failed: {_message(result.stderr)}", "Try again")


def _accounted(jobs: Iterable[int]) -> Iterator[TaskState]:
    if shutil.which("sacct") is None:
        return
    named = ",".join(map(str, jobs))
    result = _run("sacct", "--noheader", "--parsable2", "--allocations", f"--format={_SACCT_FORMAT}", f"--jobs={named}")
    if result.returncode == 0:
        yield from (state for state in from_sacct(result.stdout) if state.finished)
    elif "accounting storage is disabled" not in result.stderr:
        raise StageError(f"sacct failed: {_message(result.stderr)}", "Try again")


def _refused(stderr: str, script: Path) -> InputError | StageError:
    message = _message(stderr)
    if "Unable to contact" in message or "timed out" in message:
        return StageError(f"Slurm does not answer: {message}", "Try again, or ask whoever runs the cluster")
    if "nvalid partition" in message:
        asked = re.search(r"invalid partition specified: (\S+)", stderr)
        return InputError(
            f"Slurm has no partition {asked[1] if asked else 'of that name'!r}",
            f"{nearest(asked[1] if asked else '', partitions())} (partitions: {', '.join(partitions())})",
        )
    return InputError(f"Slurm refuses {script}: {message}", "Correct the [slurm] settings; sinfo shows what there is")


def _message(stderr: str) -> str:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in stderr.strip().splitlines()]
    return "; ".join(dict.fromkeys(lines)).rstrip(".") or "no word of why"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command without the surrounding job's variables, and with lists of tasks in full."""
    inside = "SLURM_JOB_ID" in os.environ
    keep = ("SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS")
    env = {k: v for k, v in os.environ.items() if not (inside and k.startswith("SLURM_")) or k in keep}
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
    """Read ``scontrol show job --oneliner``: one line for a task, or for several that have not started."""
    for line in text.splitlines():
        field = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        tasks = field.get("ArrayTaskId", "")
        name = f"{field['ArrayJobId']}_{tasks}" if tasks else field["JobId"]
        values = (field["JobState"], field["ExitCode"], field["NodeList"], field["Reason"])
        yield from _states(name, values, int(field["Restarts"]))


def from_sacct(text: str) -> Iterator[TaskState]:
    """Read ``sacct --noheader --parsable2 --allocations --format=JobID,State,ExitCode,NodeList,Reason``."""
    for line in text.splitlines():
        name, *values = line.split("|")
        yield from _states(name, values, 0)


def spans(numbers: Iterable[int]) -> str:
    """Write task numbers as Slurm does: ``0-3,7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def numbers(text: str) -> Iterator[int]:
    """Read task numbers as Slurm writes them: ``0-3,7``, ``0-10:2``, ``2-5%1``."""
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _states(name: str, values: Sequence[str], restarts: int) -> Iterator[TaskState]:
    """Read one record; ``JOB_[2-5%1]`` stands for several tasks that have not started."""
    state, code, node, reason = values
    job, _, tasks = name.partition("_")
    exit_code, _, signal = code.partition(":")
    for task in numbers(tasks.strip("[]")) if tasks else (None,):
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
