"""One training by several processes, one for each GPU, as ``torchrun`` starts them."""

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

Fit = Callable[..., dict[str, Any]]


def count(resources: Resources) -> int:
    """Return how many processes train: one for each visible GPU, or one on a CPU.

    Raises:
        InputError: one GPU of several is named.
    """
    if resources.device.startswith("cuda:"):
        number = resources.device.partition(":")[2]
        raise InputError(f"--device={resources.device} cannot train", f"Set CUDA_VISIBLE_DEVICES={number}")
    return 1 if resources.device == "cpu" else max(torch.cuda.device_count(), 1)


def together(fit: Fit, processes: int) -> dict[str, Any]:
    """Return ``fit()``; of several processes, what ``fit(rank=0)`` returns. ``fit`` must be importable."""
    if processes == 1:
        return fit()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return dict(unordered(partial(_ranked, fit, processes, port, quiet()), range(processes), processes))[0]


def _ranked(fit: Fit, processes: int, port: int, silent: bool, rank: int) -> dict[str, Any]:
    """Train as one process of ``torchrun``; the others end where this one fails, since its connections close."""
    set_quiet(silent or rank > 0)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    try:
        return fit(rank=rank)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
