"""Compiled kernels: canonical scores.

They do what :mod:`pipeline.retrieve.reference` states, bit for bit; nothing here may be compiled with fast-math, which
would let the compiler choose the order of a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from pipeline.core.compiled import compiled
from pipeline.retrieve.dense.lanes import STRIDE, ask_for, folded, for_each, row_of

LANES = STRIDE
"""As in :mod:`pipeline.retrieve.reference`."""

L2, INNER_PRODUCT, COSINE = 0, 1, 2

_AHEAD = 6
"""How many pairs before it is scored a candidate is asked for."""


def _summed(term: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Return what generates sums of the terms of some rows of a matrix with one row of another, in the canonical order.

    The lanes are one vector of the processor's registers, or of several; a compiler left to itself keeps them in
    memory. Two sums at once take less than each by itself: the other row is converted once.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        doubles = ir.VectorType(ir.DoubleType(), LANES)
        a, b = (context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2))
        several = cgutils.unpack_tuple(builder, arguments[1])
        rows = [row_of(builder, a, row) for row in several] + [row_of(builder, b, arguments[3])]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(doubles, [0.0] * LANES)) for _ in several]

        def add(loaded: list[Any]) -> None:
            *some, other = (builder.fpext(values, doubles) for values in loaded)
            for lanes, values in zip(sums, some, strict=True):
                builder.store(builder.fadd(builder.load(lanes), term(builder, values, other)), lanes)

        for_each(context, builder, rows, builder.extract_value(a.shape, 1), add)
        found = [folded(builder, builder.load(lanes)) for lanes in sums]
        return context.make_tuple(builder, signature.return_type, found)

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def inner_products(_typing: Any, a: Any, rows: Any, b: Any, _row: Any) -> Any:
    """Return inner products of some rows of a float32 matrix with a row of one as wide, in float64, canonically."""
    return _of_rows(a, rows, b), _summed(lambda builder, x, y: builder.fmul(x, y))


@intrinsic  # type: ignore[untyped-decorator]
def squared_distances(_typing: Any, a: Any, rows: Any, b: Any, _row: Any) -> Any:
    """Return squared distances of some rows of a float32 matrix from a row of one as wide, in float64, canonically."""

    def term(builder: Any, x: Any, y: Any) -> Any:
        difference = builder.fsub(x, y)
        return builder.fmul(difference, difference)

    return _of_rows(a, rows, b), _summed(term)


def _of_rows(a: Any, rows: Any, b: Any) -> Any:
    for matrix in (a, b):
        if (matrix.dtype, matrix.ndim, matrix.layout) != (types.float32, 2, "C"):
            raise TypingError(f"rows of {matrix}: of float32 matrices without gaps alone")
    whole = types.UniTuple(types.int64, len(rows))
    return types.UniTuple(types.float64, len(rows))(a, whole, b, types.int64)


@compiled
def _cosine(product: Any, norms: Any) -> Any:
    return product / norms if norms > 0.0 else 0.0


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
        visits: :class:`pipeline.retrieve.dense.pairs.Visits` of the pairs.
        canonical: float64 ``[n]``, written where the pairs' numbers say: the scores before they are rounded.
    """
    packed, query_bits, index_bits = visits
    count, of_query, of_index = len(packed), (np.int64(1) << query_bits) - 1, (np.int64(1) << index_bits) - 1
    first, asked = 0, np.int64(-1)
    while first < count:
        ahead = packed[min(first + _AHEAD, count - 1)] >> (index_bits + query_bits)
        if ahead != asked:
            ask_for(matrix, ahead)
            asked = ahead
        pair, other = packed[first] >> index_bits, packed[min(first + 1, count - 1)] >> index_bits
        q, r, position = pair & of_query, other & of_query, pair >> query_bits
        both = first + 1 < count and other >> query_bits == position
        if both and metric == L2:
            one, two = squared_distances(queries, (q, r), matrix, position)
        elif both:
            one, two = inner_products(queries, (q, r), matrix, position)
        elif metric == L2:
            one, two = squared_distances(queries, (q,), matrix, position)[0], 0.0
        else:
            one, two = inner_products(queries, (q,), matrix, position)[0], 0.0
        if metric == L2:
            one, two = -one, -two
        elif metric == COSINE:
            one = _cosine(one, query_norms[q] * matrix_norms[position])
            two = _cosine(two, query_norms[r] * matrix_norms[position])
        canonical[packed[first] & of_index] = one
        if both:
            canonical[packed[first + 1] & of_index] = two
        first += 1 + both


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
    for visit in packed:
        pair, best = visit >> index_bits, -np.inf
        group, place = pair & ((np.int64(1) << query_bits) - 1), pair >> query_bits
        for q in range(query_offsets[group], query_offsets[group + 1]):
            for position in range(offsets[place], offsets[place + 1]):
                if metric == L2:
                    value = -squared_distances(queries, (q,), matrix, position)[0]
                else:
                    value = inner_products(queries, (q,), matrix, position)[0]
                if metric == COSINE:
                    value = _cosine(value, query_norms[q] * matrix_norms[position])
                best = max(best, value)
        canonical[visit & ((np.int64(1) << index_bits) - 1)] = best
