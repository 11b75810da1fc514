"""Limits of memory, workers and devices of a run, which are not part of any identity."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.core.config import parse_bytes
from pipeline.core.errors import InputError

LEAST_MEMORY = 512 * 2**20
"""Minimum bytes with which all stages keep their limit; building a corpus needs lines and blocks of this order."""


def available_memory(system: Path = Path("/"), env: Mapping[str, str] = os.environ) -> int:
    """Return the bytes of memory of this process: the least of the machine's, its control groups' and its job's.

    ``system`` is the root of the file system with ``proc`` and ``sys``; ``env`` says what a job of Slurm has, in MiB.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in _control_groups(system):
        limits += _numbers(group / "memory.max")
    limits.append(_of_job(env, "SLURM_MEM_PER_NODE") * 2**20)
    limits.append(_of_job(env, "SLURM_MEM_PER_CPU") * (_job_cores(env) or 1) * 2**20)
    return min(limit for limit in limits if limit > 0)


def available_cores(system: Path = Path("/"), env: Mapping[str, str] = os.environ) -> int:
    """Return the processor cores of this process: the least of its affinity, its groups' quotas and its job's cores.

    Part of a core counts as one. The arguments are those of :func:`available_memory`.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1, _job_cores(env)]
    quotas = (_numbers(group / "cpu.max") for group in _control_groups(system))
    limits += [-(-quota[0] // quota[1]) for quota in quotas if quota]
    return min(limit for limit in limits if limit > 0)


def _control_groups(system: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group (version 2) and of all that it lies in."""
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in (line.removeprefix("0::") for line in lines if line.startswith("0::")):
        inside = Path(os.path.normpath(f"/{group}").lstrip("/"))  # a container may see only part of the path, or "/.."
        yield from (system / "sys/fs/cgroup" / folder for folder in (inside, *inside.parents))


def _numbers(file: Path) -> list[int]:
    """Return the whole numbers in a file of a control group; none if it is not there or says ``max``."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    return [int(word) for word in words] if all(re.fullmatch("-?[0-9]+", word) for word in words) else []


def _job_cores(env: Mapping[str, str]) -> int:
    return _of_job(env, "SLURM_CPUS_PER_TASK") or _of_job(env, "SLURM_CPUS_ON_NODE")


def _of_job(env: Mapping[str, str], name: str) -> int:
    """Return a number that Slurm gives a job; 0 outside of jobs, and without a limit."""
    text = env.get(name, "") if "SLURM_JOB_ID" in env else ""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else 0


def gpu_number(name: str, count: int, library: str, remedy: str) -> int | None:
    """Return the GPU index of a device name, None for the CPU; raise InputError if ``library`` cannot use that GPU."""
    if name == "cpu" or (name == "auto" and not count):
        return None
    index = int(name.partition(":")[2] or 0)
    if index >= count:
        raise InputError(f"{library} cannot use {name}: it sees {count} GPUs", remedy)
    return index


@dataclass(frozen=True)
class Resources:
    """Limits of a run: bytes that a stage may hold, beside the constants in its documentation; workers; and a device.

    Devices are ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; workers are processes or threads.
    """

    memory: int = field(default_factory=lambda: available_memory() // 2)
    workers: int = field(default_factory=lambda: available_cores())
    device: str = "auto"

    def __post_init__(self) -> None:
        """Check the name of the device, not whether it is there."""
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InputError(f"there is no device {self.device!r}", "Choose auto, cpu, cuda or cuda:N")

    @classmethod
    def of(cls, memory: str | None = None, workers: int | None = None, device: str = "auto") -> Resources:
        """Return the limits that users give; None: the default.

        Raises:
            InputError: memory is below :data:`LEAST_MEMORY`, workers below 1, or the device has another name.
        """
        limits: dict[str, int] = {}
        if memory is not None:
            limits["memory"] = parse_bytes(memory)
            if limits["memory"] < LEAST_MEMORY:
                raise InputError(f"--memory={memory} is too little", f"Give {LEAST_MEMORY // 2**20}M or more")
        if workers is not None:
            limits["workers"] = workers
            if workers < 1:
                raise InputError(f"--workers must be at least 1, got {workers}", "Leave it out for all cores")
        return cls(**limits, device=device)
