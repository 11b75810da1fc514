"""Compiled kernels: vectors moved into the frame, and rounded to bfloat16 or to whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import as_bits, as_float, compiled, relaxed
from pipeline.retrieve.dense.kernels import inner_products
from pipeline.retrieve.dense.lanes import ask_for, widened

LARGEST = 127
"""The largest whole number: that an int8 can be -128 is not used."""

RESTS = 254
"""In so many parts of a grain is counted what whole numbers lose, which is half a grain at most."""

_AHEAD = 2
"""How many vectors before it is moved one is asked for."""

_QUOTIENTS = 2.0**-22
"""More than what a point in units of its grain loses by rounding of the quotients, as a share of its length."""

IN_UNITS = 2.0**-19
"""More than what a product of whole numbers loses where it is scaled in float32, as a share of the lengths' product."""

_UP = 1 + 2.0**-18
"""More than what is lost by rounding a bound to float32."""

_SMALLEST_NORMAL = np.float32(2.0**-126)
_SMALLEST_GRAIN = np.float32(2.0**-100)


@compiled
def _halve(point: Any, half: Any, lost: Any) -> None:
    for j in range(len(point)):
        word = np.uint32(as_bits(point[j]))
        near = np.uint16((word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
        if abs(widened(near)) < _SMALLEST_NORMAL:
            near = np.uint16(0)
        half[j] = near
        lost[j] = point[j] - widened(near)


@relaxed
def _squared_length(values: Any) -> Any:
    """Return the squared length of a float32 vector in float64, added in any order."""
    total = 0.0
    for j in range(len(values)):
        total += np.float64(values[j]) * np.float64(values[j])
    return total


@compiled
def _grain(point: Any) -> Any:
    largest = np.uint32(0)  # the bits of floats above zero order as they do
    for j in range(len(point)):
        largest = max(largest, np.uint32(as_bits(point[j])) & np.uint32(0x7FFFFFFF))
    size = as_float(np.uint32(largest))
    return size / np.float32(LARGEST) if size > _SMALLEST_GRAIN else np.float32(0.0)


@compiled
def _count(point: Any, grain: Any, whole: Any, rest: Any, lost: Any) -> Any:
    """Write a point in grains, to the nearest, and what it loses, in parts of one; return that one's squared length."""
    inverse = np.float32(1.0) / grain
    for j in range(len(point)):
        exact = point[j] * inverse
        near = np.rint(exact)
        whole[j] = np.int8(near)
        lost[j] = exact - near
        rest[j] = np.int8(np.rint(lost[j] * np.float32(RESTS)))
    return _squared_length(lost) * np.float64(grain) * np.float64(grain)


@compiled
def move(
    cosine: bool,
    vectors: Any,
    origin: Any,
    points: Any,
    halves: Any,
    wholes: Any,
    rests: Any,
    grains: Any,
    norms: Any,
    point_norms: Any,
    residuals: Any,
) -> None:
    """Move vectors into the frame, and round them where that is asked for.

    Args:
        cosine: whether they are scaled to length 1 first (zero stays zero).
        vectors: float32 ``[m, d]``.
        origin: float32 ``[d]``, taken from each.
        points: float32 ``[m, d]``, written: what results, rounded once; ``[0, d]``: it is not wanted.
        halves: uint16 ``[m, d]``, written: the points as bfloat16, to the nearest, those below the normal range as
            zero; ``[0, d]``: it is not wanted.
        wholes: int8 ``[m, d]``, written: the points in units of their grains, to the nearest; ``[0, d]``: it is not
            wanted.
        rests: int8 ``[m, d]``, written with ``wholes``: what those lose, in parts of a grain (:data:`RESTS`).
        grains: float32 ``[m]``, written with ``wholes``: 1/127 of the largest coordinate; 0 where that is tiny.
        norms: float64 ``[m]``, written: squared lengths of the vectors, in the canonical order, where they are scaled;
            else those of the points.
        point_norms: float64 ``[m]``, written: squared lengths of the points.
        residuals: float64 ``[m]``, written: squared lengths of what the points lose by rounding; for ``wholes`` the
            lengths may be short by ``2**-22`` times those of the points.
    """
    row, lost = np.empty((1, vectors.shape[1]), np.float32), np.empty(vectors.shape[1], np.float32)
    for i in range(len(vectors)):
        vector, point = vectors[i], points[i] if len(points) else row[0]
        ask_for(vectors, min(i + _AHEAD, len(vectors) - 1))
        if cosine:
            norms[i] = inner_products(vectors, (i,), vectors, i)[0]
            inverse = 1.0 / np.sqrt(norms[i]) if norms[i] > 0.0 else 0.0
            for j in range(len(vector)):
                point[j] = np.float32(np.float64(vector[j]) * inverse - np.float64(origin[j]))
        else:
            for j in range(len(vector)):
                point[j] = vector[j] - origin[j]
        point_norms[i] = _squared_length(point)
        residuals[i] = 0.0
        if not cosine:
            norms[i] = point_norms[i]
        if len(halves):
            _halve(point, halves[i], lost)
            residuals[i] = _squared_length(lost)
        if len(wholes):
            grains[i] = _grain(point)
            if grains[i] > 0.0:
                residuals[i] = _count(point, grains[i], wholes[i], rests[i], lost)
            else:
                wholes[i], rests[i], residuals[i] = 0, 0, point_norms[i]


@compiled
def _more(value: float) -> Any:
    """Return a float32 that is more; nothing stays nothing (tiny numbers are slow)."""
    return np.float32(value * _UP) + _SMALLEST_NORMAL if value > 0.0 else np.float32(0.0)


@compiled
def above(values: Any) -> Any:
    """Return float32 that are more than values float64 ``[n]``; nothing stays nothing."""
    found = np.empty(len(values), np.float32)
    for i in range(len(values)):
        found[i] = _more(values[i])
    return found


@compiled
def left(grain: Any, norm: float, dimension: int) -> Any:
    """Return the length of what a point loses, at most, when what its whole numbers lose is counted, too.

    A coordinate loses half a part of a grain and what its quotient lost by rounding; without a grain it is not counted.
    """
    if grain > 0.0:
        return np.float64(grain) * np.sqrt(dimension) * (0.5 + 2.0**-10) / RESTS + _QUOTIENTS * norm
    return norm


@compiled
def spreads(
    norms: Any, residuals: Any, grains: Any, dimension: int, query_lost: float, query_left: float, rough: Any, fine: Any
) -> float:
    """Write what rounding can change of products, at most, as a share of the query's length.

    :mod:`pipeline.retrieve.dense.frame` says why it cannot change more.

    Args:
        norms: float64 ``[m]``, lengths of the candidates' points.
        residuals: float64 ``[m]``, lengths of what these lost.
        grains: float32 ``[m]``.
        dimension: of the points.
        query_lost: the largest share of its length that a query lost.
        query_left: the largest share that it loses when what whole numbers lose is counted.
        rough: float32 ``[m]``, written.
        fine: float32 ``[m]``, written likewise for products in which what whole numbers lose is counted; ``[0]``: the
            points are none.

    Returns:
        The largest share of its length that a candidate lost.
    """
    most = 0.0
    for i in range(len(norms)):
        norm, lost = norms[i], residuals[i]
        if norm > 0.0:
            most = max(most, lost / norm)
        change = lost + query_lost * (norm + lost)
        if len(fine):
            change += IN_UNITS * norm
            rest = left(grains[i], norm, dimension)
            both = (query_lost + query_left + _QUOTIENTS) * (lost + rest + _QUOTIENTS * norm)
            fine[i] = _more(both + query_left * (norm + rest) + rest + IN_UNITS * norm)
        rough[i] = _more(change)
    return most
