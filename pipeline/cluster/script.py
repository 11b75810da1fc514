"""The job script: readable, and the same for the same settings and command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pipeline.cluster.settings import SlurmSettings

_HELLO = (
    'echo "$(date -u +%FT%TZ) $(hostname): job ${SLURM_JOB_ID} task ${SLURM_ARRAY_TASK_ID:-none}'
    " start $((${SLURM_RESTART_COUNT:-0} + 1)), ${SLURM_CPUS_ON_NODE:-?} cores,"
    ' GPUs ${CUDA_VISIBLE_DEVICES:-none}"'
)


def job_script(
    settings: SlurmSettings, command: Sequence[str], *, name: str, logs: Path, slices: int | None = None
) -> str:
    """Return the text of a job script that runs ``command``.

    The command replaces the shell (``exec``) without ``srun``, since a slice is one process: signals reach it directly
    and its exit code is the task's. Array and dependency are options of ``sbatch``, so one script serves all attempts.

    Args:
        settings: what the job asks for.
        command: words of the command; they are quoted.
        name: the job's name; special characters become ``-``.
        logs: folder of the logs, which must exist: ``JOB_TASK.log`` for an array, else ``JOB.log``. A restarted task
            appends.
        slices: number of slices of an array: adds ``--slice TASK/SLICES`` to the command.
    """
    log = "%A_%a.log" if slices else "%j.log"
    options = [
        f"--job-name={re.sub(r'[^A-Za-z0-9_.+-]', '-', name)}",
        f"--output={str(logs).replace('%', '%%')}/{log}",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        "--requeue" if settings.requeue else "--no-requeue",
        *_requests(settings),
        *settings.extra,
    ]
    strict = ["set -euo pipefail", _HELLO]
    foreign = [*(f"module load {shlex.quote(module)}" for module in settings.modules), *settings.setup]
    if foreign:  # module files often read unset variables
        strict += ["set +u", *foreign, "set -u"]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {_directive(option)}" for option in options),
            "",
            *strict,
            "",
            "exec "
            + _lines(_container(settings), command, f'--slice "${{SLURM_ARRAY_TASK_ID}}/{slices}"' if slices else ""),
            "",
        ]
    )


def log_of(logs: Path, job: int, task: int | None) -> Path:
    """Return the log of a job, or of one task of an array."""
    return logs / (f"{job}.log" if task is None else f"{job}_{task}.log")


def _requests(settings: SlurmSettings) -> list[str]:
    gpus = f"gpu:{settings.gpu_type}:{settings.gpus}" if settings.gpu_type else f"gpu:{settings.gpus}"
    asked = {
        "partition": settings.partition,
        "time": settings.time,
        "gres": gpus if settings.gpus else "",
        "cpus-per-task": settings.cpus,
        "mem": settings.memory,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "reservation": settings.reservation,
    }
    return [f"--{option}={value}" for option, value in asked.items() if value]


def _directive(option: str) -> str:
    """Quote as sbatch reads its lines: spaces outside double quotes split words, ``#`` begins a comment."""
    if re.fullmatch(r"[\w./%:=,+@*-]+", option):
        return option
    name, equals, value = option.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'


def _container(settings: SlurmSettings) -> list[str]:
    if not settings.image:
        return []
    return [word.replace("{image}", settings.image) for word in shlex.split(settings.launch)]


def _lines(container: Sequence[str], command: Sequence[str], last: str) -> str:
    """Join quoted words, each option of the command on its own line."""
    text = shlex.join([*container, command[0]])
    for word in command[1:]:
        text += (" \\\n  " if word.startswith("--") else " ") + shlex.quote(word)
    return f"{text} \\\n  {last}" if last else text
