"""Matrix products in bfloat16 on the CPU, by torch: the one place of this room that knows it.

NumPy has no such product, and torch is there in any case (the encoders need it). Loading it takes seconds, so a search
that is done in less goes without.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pipeline.retrieve.frame import Halves

ROUNDING = 2.0**-8 * (1 + 2.0**-7)
"""What a product stored in bfloat16 can have lost, relative to what is stored."""

_WORTH_LOADING = 4e11
"""Operations of a search from which what bfloat16 saves is more than what loading torch takes."""

_WORTH_ROUNDING = 4e9

_INSTRUCTIONS = {"avx512_bf16", "amx_bf16"}


@functools.cache
def instructions() -> frozenset[str]:
    """Return the names of this processor's bfloat16 instructions, as Linux gives them; empty where it has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return frozenset(_INSTRUCTIONS.intersection(flags))


def low_precision_pays(operations: float) -> bool:
    """Whether a search of that many operations is faster with products in bfloat16."""
    return bool(instructions()) and operations >= (_WORTH_ROUNDING if "torch" in sys.modules else _WORTH_LOADING)


def product(a: Halves, b: Halves) -> Halves:
    """Return ``a @ b.T`` of uint16 ``[m, d]`` and ``[n, d]``: summed in float32, stored in bfloat16, ``[m, n]``."""
    import torch

    one, other = (torch.from_numpy(half.view(np.int16)).view(torch.bfloat16) for half in (a, b))
    found: Halves = (one @ other.T).view(torch.int16).numpy().view(np.uint16)
    return found


@contextmanager
def single_threaded(low: bool) -> Iterator[Callable[[], None] | None]:
    """Let each product be made by the thread that asks for it; yield what a new thread has to call first."""
    if not low:
        yield None
        return
    import torch

    threads = torch.get_num_threads()
    try:
        yield functools.partial(torch.set_num_threads, 1)
    finally:
        torch.set_num_threads(threads)
