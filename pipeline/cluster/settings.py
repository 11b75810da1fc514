"""The ``[slurm]`` table of a recipe."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.config import from_mapping
from pipeline.core.errors import InputError, nearest

_PATTERNS = {
    "time": (r"\d+|(\d+-)?\d+(:\d\d){1,2}|\d+-\d+", "Write it like 04:00:00, 2-12:00:00 or minutes"),
    "memory": (r"\d+[KMGT]?", "Write it like 64G"),
    "gpu_type": (r"\w*", "Write it as sinfo -o %G shows it, such as a100"),
}


@dataclass(frozen=True)
class SlurmSettings:
    """How Slurm runs a stage's slices; not part of any identity. Empty strings and zeros mean the cluster's default.

    Attributes:
        partition: of the slices.
        collect_partition: of the job that verifies and publishes, which needs no GPU.
        time: limit of one slice, in Slurm's notation.
        nodes: number of slices, each one task on one node.
        at_once: slices that may run at the same time; 0: no limit.
        attempts: times that missing slices are submitted.
        patience: seconds to wait for files of finished slices: a shared file system may show them late.
        gpus: GPUs of one slice.
        gpu_type: type of GPU.
        cpus: processor cores of one slice.
        memory: memory of one slice, such as ``64G``.
        account: the account charged.
        qos: quality of service.
        constraint: features a node must have.
        reservation: reserved nodes to use.
        requeue: let Slurm restart a slice after preemption or loss of its node.
        modules: environment modules to load.
        setup: lines of shell to run first, such as the activation of an environment.
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
            _check(field.name, getattr(self, field.name), field.default)
        for name, (pattern, remedy) in _PATTERNS.items():
            value = getattr(self, name)
            if value and not re.fullmatch(pattern, value):
                raise InputError(f"[slurm] {name} = {value!r} is not understood", remedy)
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
        """Read the ``[slurm]`` table of a TOML file, which holds nothing else; an empty file gives the defaults."""
        try:
            tables = tomllib.loads(recipe.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"there is no recipe {recipe}", "Give the path of a TOML file") from error
        except OSError as error:
            raise InputError(f"{recipe} cannot be read ({error.strerror})", "Give the path of a TOML file") from error
        except (ValueError, RecursionError) as error:  # also of its encoding, of huge numbers and of deep nesting
            raise InputError(f"{recipe} is not TOML ({error})", "Correct the line it names") from error
        for name in tables:
            if name != "slurm":
                raise InputError(f"{recipe} has a table {name!r}, which is unknown", nearest(name, ["slurm"]))
        table = tables.get("slurm", {})
        if not isinstance(table, dict):
            raise InputError(f"slurm in {recipe} is not a table", "Begin it with a line [slurm]")
        return from_mapping(cls, table)

    def collector(self) -> SlurmSettings:
        """Return the settings of jobs that are no slices: one node, no GPU."""
        partition = self.collect_partition or self.partition
        return dataclasses.replace(self, partition=partition, nodes=1, at_once=0, gpus=0, gpu_type="")


def _check(name: str, value: object, default: object) -> None:
    """Refuse a value of the wrong type, and text that would break out of its line of the job script."""
    if type(value) is not type(default):
        kind = {"tuple": "list of strings", "str": "string", "int": "whole number", "bool": "true or false"}
        raise InputError(f"[slurm] {name} = {value!r} is no {kind[type(default).__name__]}", "Correct the recipe")
    if isinstance(value, int) and value < 0:
        raise InputError(f"[slurm] {name} = {value} is negative", "Leave it out for the default")
    texts = value if isinstance(value, tuple) else (value,)
    for text in texts:
        if isinstance(value, tuple) and not isinstance(text, str):
            raise InputError(f"[slurm] {name} holds {text!r}, which is not a string", "Put it in quotes")
        if isinstance(text, str) and any(ord(letter) < 32 for letter in text):
            raise InputError(f"[slurm] {name} = {text!r} has more than one line", "Give one list item a line")
