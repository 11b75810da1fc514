"""Training by several processes, one for each GPU, started as ``torchrun`` does."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import quiet, set_quiet
from pipeline.core.resources import Resources
from pipeline.encode.network import torch_devices

Fit = Callable[..., dict[str, Any]]

_FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of ``torchrun``, which a job may hold; with ``ACCELERATE_*`` they would decide batches and precision."""


def process_count(resources: Resources) -> int:
    """Return the number of training processes: one for each visible GPU, or one on a CPU.

    Raises:
        InputError: the device names a single GPU, or does not exist.
    """
    if resources.device.startswith("cuda:"):
        index = resources.device.partition(":")[2]
        raise InputError(f"--device={resources.device} cannot train", f"Set CUDA_VISIBLE_DEVICES={index}")
    return len(torch_devices(resources.device))


def run_processes(fit: Fit, processes: int) -> dict[str, Any]:
    """Return ``fit()``, or ``fit(rank=0)`` of several processes; ``fit`` must be importable."""
    for name in [name for name in os.environ if name in _FOREIGN or name.startswith("ACCELERATE_")]:
        del os.environ[name]
    if processes == 1:
        return fit()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    return dict(unordered(partial(_run_rank, fit, processes, port, quiet()), range(processes), processes))[0]


def _run_rank(fit: Fit, processes: int, port: int, is_quiet: bool, rank: int) -> dict[str, Any]:
    """Train as one process of ``torchrun``; if it fails, its connections close and the others end."""
    set_quiet(is_quiet or rank > 0)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    try:
        return fit(rank=rank)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
