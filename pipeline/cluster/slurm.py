"""Slurm's commands: submit, status, cancel. Slurm schedules, requeues and keeps dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pipeline.cluster.states import SACCT_FORMAT, TaskState, from_sacct, from_scontrol, spans
from pipeline.core.errors import InputError, StageError, nearest

_TIMEOUT = 120.0
"""Seconds a command may take: a busy controller answers late."""


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


def cancel(jobs: Iterable[int]) -> None:
    """Cancel jobs with all their tasks; ended and unknown ones are left as they are."""
    wanted = [str(job) for job in jobs]
    if wanted:
        result = _run("scancel", *wanted)
        if result.returncode and "Invalid job id" not in result.stderr:
            raise StageError(f"scancel {' '.join(wanted)} failed: {_message(result.stderr)}", "Try again")


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
    result = _run("sacct", "--noheader", "--parsable2", "--allocations", f"--format={SACCT_FORMAT}", f"--jobs={named}")
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
