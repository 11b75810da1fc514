"""The state of a job's tasks, read from Slurm's output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

SACCT_FORMAT = "JobID,State,ExitCode,Elapsed,NodeList,Reason"
"""Columns of sacct that :func:`from_sacct` reads."""

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
        elapsed: seconds of the last start.
        node: where it ran last; empty: nowhere yet.
        restarts: times it was requeued (0 where only the accounting remembers the job).
    """

    job: int
    task: int | None
    state: str
    reason: str
    exit_code: int
    signal: int
    elapsed: int
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


def from_scontrol(text: str) -> Iterator[TaskState]:
    """Read ``scontrol show job --oneliner``: one line for a task, or for several that have not started."""
    for line in text.splitlines():
        field = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        tasks = field.get("ArrayTaskId", "")
        name = f"{field['ArrayJobId']}_{tasks}" if tasks else field["JobId"]
        values = (field["JobState"], field["ExitCode"], field["RunTime"], field["NodeList"], field["Reason"])
        yield from _states(name, values, int(field["Restarts"]))


def from_sacct(text: str) -> Iterator[TaskState]:
    """Read ``sacct --noheader --parsable2 --allocations`` with :data:`SACCT_FORMAT`."""
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
    state, code, elapsed, node, reason = values
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
            _seconds(elapsed),
            "" if node in ("None assigned", "(null)") else node,
            restarts,
        )


def _seconds(text: str) -> int:
    """Read ``[DAYS-]HH:MM:SS``."""
    days, _, clock = text.rpartition("-")
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return int(days or 0) * 86_400 + total
