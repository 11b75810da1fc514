"""Compiled kernels: canonical scores, and the sieve of the exact pass.

They do what :mod:`pipeline.retrieve.reference` states, bit for bit; nothing here may be compiled with fast-math, which
would let the compiler choose the order of a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled

LANES = 64
"""As in :mod:`pipeline.retrieve.reference`; stated again because numba's cache notices changes of this file alone."""

L2, INNER_PRODUCT, COSINE = 0, 1, 2

_STRIDE = 32


@compiled
def _fold(lanes: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
    return lanes[0]


@compiled
def _dot(a: Any, b: Any, lanes: Any) -> Any:
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
        out[i] = _dot(matrix[i], matrix[i], lanes)


@compiled
def score(
    metric: int,
    queries: Any,
    query_norms: Any,
    matrix: Any,
    matrix_norms: Any,
    rows: Any,
    pair_query: Any,
    pair_position: Any,
    order: Any,
    canonical: Any,
    keys: Any,
) -> None:
    """Score pairs canonically.

    Args:
        metric: one of the codes above.
        queries: float32 ``[q, d]``.
        query_norms: float64 ``[q]``, lengths; read for cosine only.
        matrix: float32 ``[m, d]``.
        matrix_norms: float64 ``[m]``, lengths; read for cosine only.
        rows: uint32 ``[m]``.
        pair_query: int64 ``[n]``, queries by position.
        pair_position: int64 ``[n]``, candidates by position in ``matrix``.
        order: int64 ``[n]``, in which order to go through the pairs (rising positions read memory in a row).
        canonical: float64 ``[n]``, written: the scores before they are rounded.
        keys: uint64 ``[n]``, written: :func:`pipeline.retrieve.toplists.pack` of the scores, rounded, and the rows.
    """
    lanes = np.empty(LANES)
    rounded = np.empty(1, np.float32)
    bits = rounded.view(np.uint32)
    for pair in order:
        q, position = pair_query[pair], pair_position[pair]
        if metric == L2:
            value = -_squared_distance(queries[q], matrix[position], lanes)
        else:
            value = _dot(queries[q], matrix[position], lanes)
            if metric == COSINE:
                norms = query_norms[q] * matrix_norms[position]
                value = value / norms if norms > 0.0 else 0.0
        canonical[pair] = value
        rounded[0] = np.float32(value) + np.float32(0.0)
        sortable = ~bits[0] if bits[0] >> np.uint32(31) else bits[0] | np.uint32(0x80000000)
        keys[pair] = (np.uint64(sortable) << np.uint64(32)) | np.uint64(rows[position])


@compiled
def _smallest(values: Any, place: int) -> Any:
    """Return what would stand at ``place`` if the values were sorted (Hoare's selection); they are rearranged.

    numba can compile ``np.partition`` as well, in ten times the time.
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@compiled
def _trim(estimates: Any, positions: Any, count: int, depth: int, slack: float, offset: float, threshold: Any) -> Any:
    """Drop from a reservoir what cannot be among the best; return what is left and the new threshold."""
    least = np.float64(_smallest(estimates[:count].copy(), count - depth))
    rounding = (abs(least) + abs(offset)) * 2.0**-22
    threshold = max(threshold, np.float32(least - slack - rounding))
    kept = 0
    for i in range(count):
        if estimates[i] >= threshold:
            estimates[kept], positions[kept] = estimates[i], positions[i]
            kept += 1
    return kept, threshold


@compiled
def sieve(
    tile: Any,
    bias: Any,
    start: int,
    depth: int,
    slack: Any,
    offset: Any,
    thresholds: Any,
    estimates: Any,
    positions: Any,
    counts: Any,
) -> None:
    """Add to each query's reservoir the candidates of a tile that could be among its best ``depth``.

    A reservoir that holds more than twice the depth after a tile is trimmed: ``depth`` candidates estimated at ``x`` or
    more leave no place for one that is estimated ``slack`` lower, twice the bound of an estimate. More than that may
    stay, where the bound separates too little.

    Args:
        tile: float32 ``[q, w]``, products; -inf where a candidate is excluded.
        bias: float32 ``[w]``, added to them.
        start: position of the tile in the block.
        depth: how many are wanted.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``, what lies between an estimate and its score; its size decides how scores are rounded.
        thresholds: float32 ``[q]``, finite; raised.
        estimates: float32 ``[q, r]``, the reservoirs, with room for ``w`` more entries; changed.
        positions: int32 ``[q, r]``, positions in the block; changed.
        counts: int64 ``[q]``, entries of each reservoir; changed.
    """
    for q in range(len(tile)):
        threshold, count = thresholds[q], counts[q]
        for first in range(0, tile.shape[1], _STRIDE):
            products, addends = tile[q, first : first + _STRIDE], bias[first : first + _STRIDE]
            near = 0
            for i in range(len(products)):
                near += products[i] + addends[i] >= threshold
            if near == 0:
                continue
            for i in range(len(products)):
                estimate = products[i] + addends[i]
                if estimate >= threshold:
                    estimates[q, count], positions[q, count] = estimate, start + first + i
                    count += 1
        if count > 2 * depth:
            count, threshold = _trim(estimates[q], positions[q], count, depth, slack[q], offset[q], threshold)
        thresholds[q], counts[q] = threshold, count


@compiled
def settle(depth: int, slack: Any, offset: Any, thresholds: Any, estimates: Any, positions: Any, counts: Any) -> None:
    """Trim every reservoir that holds more than ``depth``; arguments as of :func:`sieve`."""
    for q in range(len(counts)):
        if counts[q] > depth:
            counts[q], thresholds[q] = _trim(
                estimates[q], positions[q], counts[q], depth, slack[q], offset[q], thresholds[q]
            )
