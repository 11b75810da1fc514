"""Compiled kernels: canonical scores.

They do what :mod:`pipeline.retrieve.reference` states, bit for bit; nothing here may be compiled with fast-math, which
would let the compiler choose the order of a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipeline.core.compiled import compiled

LANES = 64
"""As in :mod:`pipeline.retrieve.reference`; stated again because numba's cache notices changes of this file alone."""

L2, INNER_PRODUCT, COSINE = 0, 1, 2

_LINE = 64
"""Bytes of a line of the cache."""

_AHEAD = 6
"""How many pairs before it is scored a candidate is asked for."""


@intrinsic  # type: ignore[untyped-decorator]
def widened(_typing: Any, value: Any) -> Any:
    """Return a product as float32: it is one, or the 16 bits of a bfloat16, the upper half of one, or an int32."""

    def from_whole(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], ir.FloatType())

    def as_it_is(_context: Any, _builder: Any, _signature: Any, arguments: Any) -> Any:
        return arguments[0]

    def from_half(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.shl(builder.zext(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(word, ir.FloatType())

    kinds = {types.float32: as_it_is, types.uint16: from_half, types.int32: from_whole}
    return types.float32(value), kinds[value]


@intrinsic  # type: ignore[untyped-decorator]
def ask_for(_typing: Any, matrix: Any, _row: Any) -> Any:
    """Have a row of a float32 matrix brought into the cache while something else is computed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        start = builder.mul(arguments[1], builder.extract_value(array.strides, 0))
        row = builder.gep(builder.bitcast(array.data, byte), [start])
        size = builder.mul(builder.extract_value(array.shape, 1), ir.Constant(ir.IntType(64), 4))
        with cgutils.for_range_slice(builder, size.type(0), size, size.type(_LINE)) as (place, _):
            builder.call(ask, [builder.gep(row, [place]), word(0), word(2), word(1)])
        return context.get_dummy_value()

    return types.void(matrix, types.int64), generate


@compiled
def _fold(lanes: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
    return lanes[0]


@compiled
def dot(a: Any, b: Any, lanes: Any) -> Any:
    """Return the inner product of two float32 vectors in float64, in the canonical order."""
    whole = len(a) // LANES * LANES
    lanes[:] = 0.0
    for start in range(0, whole, LANES):
        x, y = a[start : start + LANES], b[start : start + LANES]
        for lane in range(LANES):
            lanes[lane] += np.float64(x[lane]) * np.float64(y[lane])
    for lane in range(len(a) - whole):
        lanes[lane] += np.float64(a[whole + lane]) * np.float64(b[whole + lane])
    return _fold(lanes)


@compiled
def _squared_distance(a: Any, b: Any, lanes: Any) -> Any:
    whole = len(a) // LANES * LANES
    lanes[:] = 0.0
    for start in range(0, whole, LANES):
        x, y = a[start : start + LANES], b[start : start + LANES]
        for lane in range(LANES):
            difference = np.float64(x[lane]) - np.float64(y[lane])
            lanes[lane] += difference * difference
    for lane in range(len(a) - whole):
        difference = np.float64(a[whole + lane]) - np.float64(b[whole + lane])
        lanes[lane] += difference * difference
    return _fold(lanes)


@compiled
def squared_norms(matrix: Any, out: Any) -> None:
    """Write the squared length of each row of float32 ``[m, d]`` to float64 ``[m]``."""
    lanes = np.empty(LANES)
    for i in range(len(matrix)):
        out[i] = dot(matrix[i], matrix[i], lanes)


@compiled
def score(
    metric: int,
    queries: Any,
    query_norms: Any,
    matrix: Any,
    matrix_norms: Any,
    visits: Any,
    canonical: Any,
) -> None:
    """Score pairs canonically.

    Args:
        metric: one of the codes above.
        queries: float32 ``[q, d]``.
        query_norms: float64 ``[q]``, lengths; read for cosine only.
        matrix: float32 ``[m, d]``.
        matrix_norms: float64 ``[m]``, lengths; read for cosine only.
        visits: :class:`pipeline.retrieve.frame.Visits` of the pairs; one that follows its like is not computed again.
        canonical: float64 ``[n]``, written: the scores before they are rounded.
    """
    packed, query_bits, index_bits = visits
    lanes = np.empty(LANES)
    last, value = np.int64(-1), 0.0
    for at, visit in enumerate(packed):
        pair = visit >> index_bits
        if at + _AHEAD < len(packed):
            ask_for(matrix, packed[at + _AHEAD] >> (index_bits + query_bits))
        if pair != last:
            last = pair
            q, position = pair & ((np.int64(1) << query_bits) - 1), pair >> query_bits
            value = _score(metric, queries, query_norms, matrix, matrix_norms, q, position, lanes)
        canonical[visit & ((np.int64(1) << index_bits) - 1)] = value


@compiled
def _score(
    metric: int, queries: Any, query_norms: Any, matrix: Any, matrix_norms: Any, q: Any, position: Any, lanes: Any
) -> Any:
    if metric == L2:
        return -_squared_distance(queries[q], matrix[position], lanes)
    value = dot(queries[q], matrix[position], lanes)
    if metric == COSINE:
        norms = query_norms[q] * matrix_norms[position]
        value = value / norms if norms > 0.0 else 0.0
    return value


@compiled
def score_groups(
    metric: int,
    queries: Any,
    query_norms: Any,
    query_offsets: Any,
    matrix: Any,
    matrix_norms: Any,
    offsets: Any,
    visits: Any,
    canonical: Any,
) -> None:
    """Score pairs of groups canonically: the best pair of their vectors; arguments as of :func:`score`.

    Args:
        metric: one of the codes above.
        queries: vectors of the query groups.
        query_norms: their lengths.
        query_offsets: int64 ``[q + 1]``, where each group starts.
        matrix: vectors of the candidate groups.
        matrix_norms: their lengths.
        offsets: int64 ``[m + 1]``, where each group starts.
        visits: of the pairs of groups.
        canonical: written.
    """
    packed, query_bits, index_bits = visits
    lanes = np.empty(LANES)
    last, best = np.int64(-1), 0.0
    for visit in packed:
        pair = visit >> index_bits
        if pair != last:
            last, best = pair, -np.inf
            group, place = pair & ((np.int64(1) << query_bits) - 1), pair >> query_bits
            for q in range(query_offsets[group], query_offsets[group + 1]):
                for position in range(offsets[place], offsets[place + 1]):
                    value = _score(metric, queries, query_norms, matrix, matrix_norms, q, position, lanes)
                    best = max(best, value)
        canonical[visit & ((np.int64(1) << index_bits) - 1)] = best
