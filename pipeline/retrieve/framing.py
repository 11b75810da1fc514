"""Compiled kernels: vectors moved into the frame, and rounded to bfloat16 or to whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import as_bits, as_float, compiled, relaxed
from pipeline.retrieve.kernels import inner_products
from pipeline.retrieve.lanes import ask_for, widened

LARGEST = 127
"""The largest whole number: that an int8 can be -128 is not used."""

_AHEAD = 2
"""How many vectors before it is moved one is asked for."""

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
def _count(point: Any, grain: Any, whole: Any, lost: Any) -> Any:
    """Write a point in grains, to the nearest; return the squared length of what it loses."""
    inverse = np.float32(1.0) / grain
    for j in range(len(point)):
        exact = point[j] * inverse
        near = np.rint(exact)
        whole[j] = np.int8(near)
        lost[j] = exact - near
    return _squared_length(lost) * np.float64(grain) * np.float64(grain)


@compiled
def move(
    cosine: bool,
    vectors: Any,
    origin: Any,
    points: Any,
    halves: Any,
    wholes: Any,
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
                residuals[i] = _count(point, grains[i], wholes[i], lost)
            else:
                wholes[i], residuals[i] = 0, point_norms[i]
