"""What jobs ask of Slurm: the tables ``[slurm]`` and ``[driver]`` of a TOML file, in the names of submitit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import setting, settings_of

_SHARED = ("account", "partition", "python", "qos", "setup", "time")
"""Settings of the workers that the driver has too, unless ``[driver]`` gives others."""


@dataclass(frozen=True)
class Requests:
    """What a user asks of Slurm on the command line; it changes no result."""

    on: Literal["slurm"] | None = setting(None, "slurm: jobs of Slurm make the units of work (default: this machine)")
    nodes: int | None = setting(None, "jobs that share the units (default: 1)", goes_with="on=slurm")
    gpus: int | None = setting(None, "GPUs of a job (default: 0)", goes_with="on=slurm")
    partition: str | None = setting(None, "Slurm's partition", goes_with="on=slurm")
    time: str | None = setting(None, "time limit of a job, such as 04:00:00", goes_with="on=slurm")
    slurm: Path | None = setting(
        None,
        "TOML file with tables [slurm] and [driver] (docs/clusters.md)",
        metavar="FILE",
        goes_with="on=slurm",
    )


REQUESTS = settings_of(Requests)
REQUESTED = ("nodes", "gpus", "partition", "time")
"""Requests that the file has too, in its own words; those of the command line take precedence."""


@dataclass(frozen=True)
class SlurmSettings:
    """Requests of ``nodes`` workers, which share the units, and of the job that runs the command; no part of ids."""

    nodes: int
    worker: Mapping[str, Any]
    driver: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path | None = None, **typed: Any) -> SlurmSettings:
        """Read a TOML file (None: an empty one); ``typed`` nodes, gpus, partition and time take precedence.

        Raises:
            InputError: the file cannot be read, or has another table.
        """
        from pipeline.core import files  # here, because every start of the command loads this module

        tables = files.given_toml(path, "the settings of Slurm", "Give the path of a TOML file") if path else {}
        for name, table in tables.items():
            require_known(name, ("slurm", "driver"), f"{path} has a table {name!r}, which is unknown")
            if not isinstance(table, dict):
                raise InputError(f"{name} in {path} is not a table", f"Begin it with a line [{name}]")
        given = {
            "gpus_per_node" if name == "gpus" else name: value for name, value in typed.items() if value is not None
        }
        worker = {"nodes": 1, **tables.get("slurm", {}), **given}
        nodes = worker.pop("nodes")
        if type(nodes) is not int or nodes < 1:
            raise InputError(f"--nodes must be a whole number of at least 1, got {nodes!r}", "Leave it out for 1")
        shared = {name: worker[name] for name in _SHARED if name in worker}
        return cls(nodes, worker, {"cpus_per_task": 1, **shared, **tables.get("driver", {})})

    @property
    def gpus(self) -> bool:
        """Whether a worker asks for GPUs."""
        asked = [value for name, value in self.worker.items() if name.startswith("gpus_per") or name == "num_gpus"]
        return any(asked) or "gpu" in str(self.worker.get("gres", ""))
