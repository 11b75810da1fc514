"""Compiled kernels, and the operations they are made of that Python does not have.

Loading Numba takes half a second: import this module, and modules of kernels, where a kernel is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

BLOCK = 64
"""Bytes looked at or copied together: arrays read or written by such kernels have as many to spare at their end."""

signed = cast("Callable[[Any], int]", np.int64)
"""Turns an unsigned number into a signed one in kernels: Numba makes a float of a sum of the two."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LANES = ir.VectorType(ir.IntType(8), BLOCK)
_MASK = ir.IntType(BLOCK)


def compiled(function: _Function) -> _Function:
    """Compile a kernel at its first call and keep the machine code on disk; divisions follow NumPy, not Python.

    Numba takes kept code for current as long as the file of the kernel itself is unchanged: who edits a kernel that
    other modules call removes their ``__pycache__/*.nb*``.
    """
    kernel: _Function = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return kernel


def relaxed(function: _Function) -> _Function:
    """Compile a kernel whose sums may be taken in any order, so that the compiler can split them into lanes.

    NaN and infinity stay what they are.
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


def _load(context: Any, builder: Any, array: Any, at: Any, kind: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.load(builder.bitcast(builder.gep(data, [at]), _LANES.as_pointer()), align=1)


@intrinsic  # type: ignore[untyped-decorator]
def text_masks(_typing: Any, data: Any, at: Any) -> Any:
    """Look at 64 bytes of JSON: masks, bit ``i`` for byte ``at + i``, of ends, oddities and spaces.

    An end is a quotation mark; an oddity is a backslash, a control character or a byte over 127.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _load(context, builder, arguments[0], arguments[1], signature.args[0])

        def same(character: str) -> Any:
            return builder.icmp_unsigned("==", lanes, ir.Constant(_LANES, [ord(character)] * BLOCK))

        # As signed numbers, bytes over 127 are below 32 too.
        low = builder.icmp_signed("<", lanes, ir.Constant(_LANES, [32] * BLOCK))
        masks = [builder.bitcast(m, _MASK) for m in (same('"'), builder.or_(same("\\"), low), same(" "))]
        return context.make_tuple(builder, signature.return_type, masks)

    return numba.types.UniTuple(numba.types.uint64, 3)(data, at), generate


@intrinsic  # type: ignore[untyped-decorator]
def newline_mask(_typing: Any, data: Any, at: Any) -> Any:
    """Look at 64 bytes: the mask of newlines, bit ``i`` for byte ``at + i``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _load(context, builder, arguments[0], arguments[1], signature.args[0])
        found = builder.icmp_unsigned("==", lanes, ir.Constant(_LANES, [10] * BLOCK))
        return builder.bitcast(found, _MASK)

    return numba.types.uint64(data, at), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_block(_typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """Copy 64 bytes from ``source[at:]`` to ``target[to:]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _load(context, builder, arguments[0], arguments[1], signature.args[0])
        data = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        place = builder.bitcast(builder.gep(data, [arguments[3]]), _LANES.as_pointer())
        builder.store(lanes, place, align=1)
        return context.get_dummy_value()

    return numba.types.void(source, at, target, to), generate


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
