"""The ``[slurm]`` table of a recipe, and the job script: the same text for the same settings and command."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.config import from_mapping
from pipeline.core.errors import InputError, nearest

_PATTERNS = {
    "time": (r"\d+|(\d+-)?\d+(:\d\d){1,2}|\d+-\d+", "Write it like 04:00:00, 2-12:00:00 or minutes"),
    "memory": (r"\d+[KMGT]?", "Write it like 64G"),
    "gpu_type": (r"\w*", "Write it as sinfo -o %G shows it, such as a100"),
}

_START_MESSAGE = (
    'echo "$(date -u +%FT%TZ) $(hostname): job ${SLURM_JOB_ID} task ${SLURM_ARRAY_TASK_ID:-none}'
    " start $((${SLURM_RESTART_COUNT:-0} + 1)), ${SLURM_CPUS_ON_NODE:-?} cores,"
    ' GPUs ${CUDA_VISIBLE_DEVICES:-none}"'
)


@dataclass(frozen=True)
class SlurmSettings:
    """How Slurm runs a stage's slices; not part of any identity. Empty strings and zeros mean the cluster's default.

    Attributes:
        partition: partition of the slices.
        collect_partition: partition of the job that verifies and publishes, which needs no GPU.
        time: time limit of one slice, in Slurm's notation.
        nodes: number of slices; a slice is one task on one node.
        at_once: maximum number of slices that run at the same time; 0: no limit.
        attempts: maximum number of times that missing slices are submitted.
        patience: seconds to wait for files of finished slices, which a shared file system may show late.
        gpus: GPUs of one slice.
        gpu_type: type of GPU.
        cpus: processor cores of one slice.
        memory: memory of one slice, such as ``64G``.
        account: the charged account.
        qos: quality of service.
        constraint: required features of the nodes.
        reservation: reservation to use.
        requeue: let Slurm restart a slice after preemption or loss of its node.
        modules: environment modules to load.
        setup: shell commands to run first, such as the activation of an environment.
        image: container image to run in; empty: none.
        launch: command that runs the image, with ``{image}`` in its place.
        extra: further options of sbatch, such as ``--exclude=node7``.
    """

    partition: str = ""
    collect_partition: str = ""
    time: str = ""
    nodes: int = 1
    at_once: int = 0
    attempts: int = 3
    patience: int = 90
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    memory: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    requeue: bool = True
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    image: str = ""
    launch: str = "apptainer exec --nv {image}"
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_value(field.name, getattr(self, field.name), field.default)
        for name, (pattern, remedy) in _PATTERNS.items():
            text = getattr(self, name)
            if text and not re.fullmatch(pattern, text):
                raise InputError(f"[slurm] {name} = {text!r} is not understood", remedy)
        if self.nodes < 1 or self.attempts < 1:
            raise InputError("[slurm] nodes and attempts are at least 1", "Leave them out for the default")
        if self.image and "{image}" not in self.launch:
            raise InputError(f"[slurm] launch = {self.launch!r} does not use the image", "Put {image} where it belongs")
        try:
            shlex.split(self.launch)
        except ValueError as error:
            raise InputError(f"[slurm] launch = {self.launch!r} cannot be split ({error})", "Close quotes") from error

    @classmethod
    def read(cls, recipe: Path) -> SlurmSettings:
        """Read the ``[slurm]`` table of a TOML file, its only table; an empty file gives the defaults."""
        try:
            tables = tomllib.loads(recipe.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"there is no recipe {recipe}", "Give the path of a TOML file") from error
        except OSError as error:
            raise InputError(f"{recipe} cannot be read ({error.strerror})", "Give the path of a TOML file") from error
        except (ValueError, RecursionError) as error:  # bad TOML or encoding, huge numbers, deep nesting
            raise InputError(f"{recipe} is not TOML ({error})", "Correct the line it names") from error
        for name in tables:
            if name != "slurm":
                raise InputError(f"{recipe} has a table {name!r}, which is unknown", nearest(name, ["slurm"]))
        table = tables.get("slurm", {})
        if not isinstance(table, dict):
            raise InputError(f"slurm in {recipe} is not a table", "Begin it with a line [slurm]")
        return from_mapping(cls, table)

    def collector(self) -> SlurmSettings:
        """Return the settings of jobs other than slices: one node, no GPU."""
        partition = self.collect_partition or self.partition
        return dataclasses.replace(self, partition=partition, nodes=1, at_once=0, gpus=0, gpu_type="")


def _check_value(name: str, value: object, default: object) -> None:
    """Raise InputError for a value of the wrong type, and for text with line breaks, which could add script lines."""
    if type(value) is not type(default):
        kind = {"tuple": "list of strings", "str": "string", "int": "whole number", "bool": "true or false"}
        raise InputError(f"[slurm] {name} = {value!r} is no {kind[type(default).__name__]}", "Correct the recipe")
    if isinstance(value, int) and value < 0:
        raise InputError(f"[slurm] {name} = {value} is negative", "Leave it out for the default")
    texts = value if isinstance(value, tuple) else (value,)
    for text in texts:
        if isinstance(value, tuple) and not isinstance(text, str):
            raise InputError(f"[slurm] {name} holds {text!r}, which is not a string", "Put it in quotes")
        if isinstance(text, str) and any(ord(character) < 32 for character in text):
            raise InputError(f"[slurm] {name} = {text!r} has more than one line", "Give one list item a line")


def job_script(
    settings: SlurmSettings, command: Sequence[str], *, name: str, logs: Path, slices: int | None = None
) -> str:
    """Return the text of a job script that runs ``command``.

    The command replaces the shell (``exec``) without ``srun``, since a slice is one process: it receives signals
    directly and its exit code is the task's. Array and dependency are options of ``sbatch``, so all attempts use the
    same script.

    Args:
        settings: resources and options of the job.
        command: words of the command, not quoted.
        name: name of the job; special characters become ``-``.
        logs: folder of the logs, which must exist: ``JOB_TASK.log`` for an array, else ``JOB.log``. A restarted task
            appends.
        slices: number of slices of an array: adds ``--slice TASK/SLICES`` to the command.
    """
    log = "%A_%a.log" if slices else "%j.log"
    slice_option = f'--slice "${{SLURM_ARRAY_TASK_ID}}/{slices}"' if slices else ""
    options = [
        f"--job-name={re.sub(r'[^A-Za-z0-9_.+-]', '-', name)}",
        f"--output={str(logs).replace('%', '%%')}/{log}",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        "--requeue" if settings.requeue else "--no-requeue",
        *_resource_options(settings),
        *settings.extra,
    ]
    body = ["set -euo pipefail", _START_MESSAGE]
    setup_lines = [*(f"module load {shlex.quote(module)}" for module in settings.modules), *settings.setup]
    if setup_lines:  # module files often read unset variables
        body += ["set +u", *setup_lines, "set -u"]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {_directive(option)}" for option in options),
            "",
            *body,
            "",
            f"exec {_command_lines(_container(settings), command, slice_option)}",
            "",
        ]
    )


def log_of(logs: Path, job: int, task: int | None) -> Path:
    """Return the log file of a job, or of one task of an array job."""
    return logs / (f"{job}.log" if task is None else f"{job}_{task}.log")


def _resource_options(settings: SlurmSettings) -> list[str]:
    gpus = f"gpu:{settings.gpu_type}:{settings.gpus}" if settings.gpu_type else f"gpu:{settings.gpus}"
    values = {
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
    return [f"--{option}={value}" for option, value in values.items() if value]


def _directive(option: str) -> str:
    """Quote an option for sbatch: spaces outside double quotes split words, and ``#`` starts a comment."""
    if re.fullmatch(r"[\w./%:=,+@*-]+", option):
        return option
    name, equals, value = option.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'


def _container(settings: SlurmSettings) -> list[str]:
    if not settings.image:
        return []
    return [word.replace("{image}", settings.image) for word in shlex.split(settings.launch)]


def _command_lines(container: Sequence[str], command: Sequence[str], slice_option: str) -> str:
    """Return the quoted words, with each option of the command on its own line."""
    text = shlex.join([*container, command[0]])
    for word in command[1:]:
        text += (" \\\n  " if word.startswith("--") else " ") + shlex.quote(word)
    return f"{text} \\\n  {slice_option}" if slice_option else text
