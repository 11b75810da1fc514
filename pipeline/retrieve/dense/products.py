"""Matrix products on the CPU: float32 by NumPy or torch, bfloat16 and whole numbers by torch.

Of all others in ``retrieve`` only :mod:`pipeline.retrieve.torch_engine` knows torch. NumPy has no such products,
and torch is there in any case (the encoders need it). Loading it takes seconds, so a search that is done in less goes
without.

On one core of an Intel Xeon with AMX (points of 768 dimensions, 380 on one side and 2,048 on the other) NumPy's
OpenBLAS multiplies float32 at 134 GFLOP/s and torch's MKL at 153; bfloat16 runs at 980 and int8 at 1,160 (from memory
that is :func:`aligned`), which did not pay for what then comes near. On an AMD EPYC (Zen 4), without AMX,
int8 does pay (docs/results.md).
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[Any]
"""Vectors that are multiplied: float32, bfloat16 by its bits (uint16), or whole numbers (int8)."""

ROUNDING = 2.0**-8 * (1 + 2.0**-7)
"""What a product stored in bfloat16 can have lost, relative to what is stored."""

STORED = {np.dtype(one): np.dtype(other) for one, other in (("f4", "f4"), ("u2", "u2"), ("i1", "i4"))}
"""What products of points are stored as."""

MOST_WHOLES = (2**31 - 1) // (2 * 127**2)
"""Dimensions up to which two products of whole numbers up to 127 fit int32 together."""

_LINE = 64
"""Bytes of a line of the cache."""

_LARGE, _HUGE = 1 << 20, 4 << 20
"""From so many bytes on memory is worth large pages, and from so many on NumPy asks the system for them."""

_WORTH_LOADING = 4e11
"""Operations of a search from which what torch's products save is more than what loading torch takes."""

_WORTH_ROUNDING = 4e9

_WORTH_COUNTING = {True: 1.6e10, False: 1e10}
"""The same for whole numbers, beside bfloat16 and without: its best have to be known well enough, most of the time."""

_HALVES = frozenset({"avx512_bf16", "amx_bf16"})
_WHOLES = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Older instructions for int8 add pairs of products in 16 bits, which can overflow."""


@functools.cache
def _processor() -> dict[str, str]:
    """Return what Linux says of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def instructions() -> frozenset[str]:
    """Return the names of this processor's instructions for such products, as Linux gives them."""
    return (_HALVES | _WHOLES).intersection(_processor().get("flags", "").split())


def halves() -> bool:
    """Whether this processor multiplies bfloat16."""
    return bool(_HALVES & instructions())


@functools.cache
def wholes() -> bool:
    """Whether this processor multiplies int8 and adds in int32, and torch does so without an error (tried once)."""
    if not _WHOLES & instructions():
        return False
    random = np.random.default_rng(0)
    try:
        for m, n, d in itertools.product((1, 2, 17), (1, 3, 130), (2, 63, 1_000)):
            a, b = (random.integers(-127, 128, (count, d)).astype(np.int8) for count in (m, n))
            a[0], b[-1] = 127, -127
            if (_by_torch(a, b, np.zeros((m, n), np.int32)) != _by_numpy(a, b, np.zeros((m, n), np.int32))).any():
                return False
    except (AttributeError, RuntimeError):  # torch makes no promise of this product
        return False
    return True


def has_tiles() -> bool:
    """Whether this processor multiplies bfloat16 by tiles (AMX), so fast that whole numbers are hardly faster."""
    return "amx_bf16" in instructions()


def halves_pay(operations: float) -> bool:
    """Whether products of bfloat16 are there, and a search of that many operations is long enough for them."""
    return torch_pays(operations) and halves()


def wholes_pay(operations: float) -> bool:
    """Whether products of whole numbers are there, and a search of that many operations is long enough for them."""
    return operations >= _WORTH_COUNTING[halves()] and torch_pays(operations) and not has_tiles() and wholes()


def torch_pays(operations: float) -> bool:
    """Whether a search of that many operations is long enough for torch's products."""
    return operations >= (_WORTH_ROUNDING if "torch" in sys.modules else _WORTH_LOADING)


def aligned(shape: int | tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return memory for an array that starts where a line of the cache does.

    Products read and write such memory faster: bfloat16 in tiles by 1.6 times where the fewer points lie so, whole
    numbers by 1.2 times where the products do. What is large comes in large pages, where the system has them.
    """
    kind = np.dtype(kind)
    size = int(np.prod(shape)) * kind.itemsize
    found = np.empty(max(size + _LINE, _HUGE if size >= _LARGE else 0), np.uint8)
    start = -found.ctypes.data % _LINE
    return found[start : start + size].view(kind).reshape(shape)


def product(a: Points, b: Points, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Return ``a @ b.T`` of ``[m, d]`` and ``[n, d]``, in ``out`` if given: float32, uint16 or int32 ``[m, n]``.

    bfloat16 is summed in float32 and stored in bfloat16; whole numbers are summed in int32, exactly on any processor
    (slowly where :func:`wholes` is false) up to :data:`MOST_WHOLES` dimensions.
    """
    if out is None:
        out = aligned((len(a), len(b)), STORED[a.dtype])
    if a.dtype == np.float32 and not _floats_by_torch():
        np.matmul(a, b.T, out=out)
        return out
    if a.dtype == np.int8 and (a.shape[1] == 1 or not wholes()):  # of one dimension torch 2.13 takes the wrong numbers
        return _by_numpy(a, b, out)
    return _by_torch(a, b, out)


def _floats_by_torch() -> bool:
    """Whether torch is loaded and multiplies float32 faster than NumPy: its library is Intel's."""
    return "torch" in sys.modules and _processor().get("vendor_id") == "GenuineIntel"


def _by_torch(a: Points, b: Points, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import torch

    views = (a, b, out)
    if a.dtype == np.uint16:
        one, other, found = (torch.from_numpy(half.view(np.int16)).view(torch.bfloat16) for half in views)
    else:
        one, other, found = (torch.from_numpy(points) for points in views)
    (torch._int_mm if a.dtype == np.int8 else torch.mm)(one, other.T, out=found)
    return out


def _by_numpy(a: Points, b: Points, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Multiply whole numbers in float64, which is exact: no sum of an int32 is too long for it."""
    out[:] = a.astype(np.float64) @ b.T.astype(np.float64)
    return out


@contextmanager
def single_threaded(rounded: bool) -> Iterator[Callable[[], None] | None]:
    """Let each product be made by the thread that asks for it; yield what a new thread has to call first.

    Args:
        rounded: whether there are products of other points than float32.
    """
    if not rounded and not _floats_by_torch():
        yield None
        return
    import torch

    threads = torch.get_num_threads()
    try:
        yield functools.partial(torch.set_num_threads, 1)
    finally:
        torch.set_num_threads(threads)
