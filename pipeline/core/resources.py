"""Limits of memory, workers and devices of a run, which are not part of any identity."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.core.config import parse_bytes
from pipeline.core.errors import InputError

LEAST_MEMORY = 512 * 2**20
"""Minimum bytes with which all stages keep their limit; building a corpus needs lines and blocks of this order."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER, _LARGE = 2**31 - 1, 1 << 30


def available_memory() -> int:
    """Return the bytes of memory of this process: the machine's, or the limit of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        return min(total, int(text))
    return total


def available_cores() -> int:
    """Return the number of processor cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later arrays, since new memory costs a page fault every 4 KiB."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _NEVER)


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
    """Limits of a run.

    Attributes:
        memory: bytes that a stage may hold, beside the constants in its documentation. Default: half the machine.
        workers: processes or threads.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
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
