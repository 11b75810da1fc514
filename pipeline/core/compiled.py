"""Decorators of compiled kernels.

Loading Numba takes half a second: import this module, and modules of kernels, where a kernel is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

signed = cast("Callable[[Any], int]", np.int64)
"""Turns an unsigned number into a signed one in kernels: Numba makes a float of a sum of the two."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a kernel at its first call and keep the machine code on disk; divisions follow NumPy, not Python.

    Numba recompiles when the kernel's own file changes. After editing a kernel that other modules call, remove their
    ``__pycache__/*.nb*``.
    """
    kernel: _Function = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return kernel


def relaxed(function: _Function) -> _Function:
    """Compile a kernel whose sums may be taken in any order, so that the compiler can vectorise them.

    NaN and infinity keep their meaning.
    """
    kernel: _Function = numba.njit(
        cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"}
    )(function)
    return kernel


@intrinsic  # type: ignore[untyped-decorator]
def as_float(_typing: Any, bits: Any) -> Any:
    """Return the float32 of an int32's bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return numba.types.float32(bits), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_bits(_typing: Any, value: Any) -> Any:
    """Return the bits of a float32, as int32."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return numba.types.int32(value), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(_typing: Any, mask: Any) -> Any:
    """Return the position of the lowest bit of a uint64 that is set; 64 where none is."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return numba.types.int64(mask), generate


@intrinsic  # type: ignore[untyped-decorator]
def bits_set(_typing: Any, mask: Any) -> Any:
    """Return how many bits of a uint64 are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.types.int64(mask), generate
