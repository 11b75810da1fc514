"""Compiled kernels: canonical scores, the frame of a block, and the sieve of the exact pass.

They do what :mod:`pipeline.retrieve.reference` states, bit for bit; nothing here may be compiled with fast-math, which
would let the compiler choose the order of a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipeline.core.compiled import compiled

LANES = 64
"""As in :mod:`pipeline.retrieve.reference`; stated again because numba's cache notices changes of this file alone."""

L2, INNER_PRODUCT, COSINE = 0, 1, 2

_STRIDE = 32
_SMALLEST_NORMAL = np.float32(2.0**-126)


@intrinsic  # type: ignore[untyped-decorator]
def widened(_typing: Any, value: Any) -> Any:
    """Return a product as float32: it is one, or it is the 16 bits of a bfloat16, the upper half of one."""

    def as_it_is(_context: Any, _builder: Any, _signature: Any, arguments: Any) -> Any:
        return arguments[0]

    def from_half(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.shl(builder.zext(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(word, ir.FloatType())

    return types.float32(value), as_it_is if value == types.float32 else from_half


@intrinsic  # type: ignore[untyped-decorator]
def _bits(_typing: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(value), generate


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
        order: int64 ``[n]``, in which order to go through the pairs (rising positions read memory in a row); a pair
            that follows its like is not computed again.
        canonical: float64 ``[n]``, written: the scores before they are rounded.
        keys: uint64 ``[n]``, written: :func:`pipeline.retrieve.toplists.pack` of the scores, rounded, and the rows.
    """
    lanes = np.empty(LANES)
    rounded = np.empty(1, np.float32)
    bits = rounded.view(np.uint32)
    last = -1
    for pair in order:
        q, position = pair_query[pair], pair_position[pair]
        if last >= 0 and pair_query[last] == q and pair_position[last] == position:
            canonical[pair], keys[pair] = canonical[last], keys[last]
            continue
        last = pair
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
def score_groups(
    metric: int,
    queries: Any,
    query_norms: Any,
    query_offsets: Any,
    matrix: Any,
    matrix_norms: Any,
    offsets: Any,
    rows: Any,
    pair_query: Any,
    pair_position: Any,
    order: Any,
    canonical: Any,
    keys: Any,
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
        rows: uint32 ``[m]``, one a group.
        pair_query: query groups.
        pair_position: candidate groups.
        order: in which order to go through the pairs.
        canonical: written.
        keys: written.
    """
    one, best = np.zeros(1, np.int64), np.empty(1)
    vector, key = np.empty(1, np.int64), np.empty(1, np.uint64)
    for pair in order:
        group, position = pair_query[pair], pair_position[pair]
        found, found_key = -np.inf, np.uint64(0)
        for q in range(query_offsets[group], query_offsets[group + 1]):
            for place in range(offsets[position], offsets[position + 1]):
                vector[0] = 0
                score(
                    metric,
                    queries[q : q + 1],
                    query_norms[q : q + 1],
                    matrix[place : place + 1],
                    matrix_norms[place : place + 1],
                    rows[position : position + 1],
                    one,
                    vector,
                    one,
                    best,
                    key,
                )
                if key[0] > found_key:
                    found, found_key = best[0], key[0]
        canonical[pair], keys[pair] = found, found_key


@compiled
def best_pairs(tile: Any, bias: Any, shift: Any, query_offsets: Any, offsets: Any, out: Any) -> None:
    """Write the greatest estimate of any pair of vectors of two groups, float32 ``[query groups, groups]``.

    Args:
        tile: float32, or uint16 for bfloat16, ``[q, w]``, products of vectors.
        bias: float32 ``[w]``, added to them.
        shift: float32 ``[q]``, added to them.
        query_offsets: int64, where each group of queries starts.
        offsets: int64, where each group of candidates starts.
        out: float32, written.
    """
    greatest = np.empty(tile.shape[1], np.float32)
    for group in range(len(query_offsets) - 1):
        greatest[:] = -np.inf
        for q in range(query_offsets[group], query_offsets[group + 1]):
            products, away = tile[q], shift[q]
            for i in range(len(products)):
                greatest[i] = max(greatest[i], widened(products[i]) + (bias[i] + away))
        for place in range(len(offsets) - 1):
            out[group, place] = greatest[offsets[place] : offsets[place + 1]].max()


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
def frame_rows(
    cosine: bool,
    vectors: Any,
    origin: Any,
    points: Any,
    low: Any,
    norms: Any,
    point_norms: Any,
    residuals: Any,
) -> None:
    """Move vectors into the frame, and round them to bfloat16 where that is asked for.

    Args:
        cosine: whether they are scaled to length 1 first (zero stays zero).
        vectors: float32 ``[m, d]``.
        origin: float32 ``[d]``, taken from each.
        points: float32 ``[m, d]``, written: what results, rounded once; ``[0, d]``: it is not wanted.
        low: uint16 ``[m, d]``, written: the points as bfloat16, to the nearest, those below the normal range as zero;
            ``[0, d]``: it is not wanted.
        norms: float64 ``[m]``, written: squared lengths of the vectors, in the canonical order.
        point_norms: float64 ``[m]``, written: squared lengths of the points.
        residuals: float64 ``[m]``, written: squared lengths of what the points lose to bfloat16.
    """
    lanes = np.empty(LANES)
    point, lost = np.empty(vectors.shape[1], np.float32), np.zeros(vectors.shape[1], np.float32)
    for i in range(len(vectors)):
        vector = vectors[i]
        norms[i] = _dot(vector, vector, lanes)
        if cosine:
            inverse = 1.0 / np.sqrt(norms[i]) if norms[i] > 0.0 else 0.0
            for j in range(len(vector)):
                point[j] = np.float32(np.float64(vector[j]) * inverse - np.float64(origin[j]))
        else:
            for j in range(len(vector)):
                point[j] = vector[j] - origin[j]
        point_norms[i] = _dot(point, point, lanes)
        if len(points):
            points[i] = point
        if len(low):
            for j in range(len(point)):
                word = _bits(point[j])
                half = np.uint16((word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
                if abs(widened(half)) < _SMALLEST_NORMAL:
                    half = np.uint16(0)
                low[i, j] = half
                lost[j] = point[j] - widened(half)
        residuals[i] = _dot(lost, lost, lanes)


@compiled
def _trim(
    records: Any,
    count: int,
    wanted: int,
    slack: float,
    offset: float,
    threshold: Any,
) -> Any:
    """Drop from a reservoir what cannot be among the best; return what is left and the new threshold."""
    lowest = np.empty(count, np.float32)
    for i in range(count):
        lowest[i] = records[i, 0] - records[i, 1]
    least = np.float64(_smallest(lowest, count - wanted))
    away = (abs(least) + abs(offset)) * 2.0**-22
    threshold = max(threshold, np.float32(least - slack - away))
    kept = 0
    for i in range(count):
        if records[i, 0] + records[i, 1] >= threshold:
            records[kept, 0], records[kept, 1], records[kept, 2] = records[i, 0], records[i, 1], records[i, 2]
            kept += 1
    return kept, threshold


@compiled
def sieve(
    tile: Any,
    start: int,
    keep: int,
    bias: Any,
    spread: Any,
    members: Any,
    lengths: Any,
    rounding: Any,
    wanted: Any,
    slack: Any,
    offset: Any,
    thresholds: Any,
    records: Any,
    counts: Any,
) -> None:
    """Add to each list's reservoir the candidates of a tile that could be among its best.

    A list is one query in one of ``p`` pools. What is known of a pair is its estimate, the product and the bias, and
    that it is off by at most its margin, ``length * spread + rounding * |product|``, and half the slack.

    A reservoir that holds more than ``keep`` times what is wanted after a tile is trimmed: as many candidates as are
    wanted, each of them surely ``x`` or better, leave no place for one that is surely below ``x`` by the slack. More
    may stay, where the bound separates too little.

    Args:
        tile: float32, or uint16 for bfloat16, ``[q, w]``, products.
        start: position of the tile in the block.
        keep: from how many times ``wanted`` a reservoir is trimmed.
        bias: float32 ``[m]``, of the block, added to the products.
        spread: float32 ``[m]``, what the candidates lost to low precision.
        members: uint64 ``[m]``, bit ``i`` for the candidates of pool ``i``.
        lengths: float32 ``[q]``, lengths of the queries' points.
        rounding: float32, what a product can have lost when it was stored, relative to it.
        wanted: int64 ``[p, q]``.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``, what lies between an estimate and its score; its size decides how scores are rounded.
        thresholds: float32 ``[p, q]``, finite; raised.
        records: float32 ``[p, q, r, 3]``, the reservoirs, with room for ``w`` more entries: estimates, margins and
            positions in the block (beside each other, for they are met together, and in float32, which is exact below
            2**24); changed.
        counts: int64 ``[p, q]``, entries of each reservoir; changed.
    """
    pools = len(thresholds)
    uppers = np.empty(_STRIDE, np.float32)
    for q in range(len(tile)):
        lowest, length = thresholds[:, q].min(), lengths[q]
        for first in range(0, tile.shape[1], _STRIDE):
            products = tile[q, first : first + _STRIDE]
            addends = bias[start + first : start + first + _STRIDE]
            spreads = spread[start + first : start + first + _STRIDE]
            near = 0
            for i in range(len(products)):
                product = widened(products[i])
                upper = (product + addends[i]) + (length * spreads[i] + rounding * abs(product))
                uppers[i] = upper
                near += upper >= lowest
            if near == 0:
                continue
            for i in range(len(products)):
                if uppers[i] >= lowest:
                    product = widened(products[i])
                    estimate, margin = product + addends[i], length * spreads[i] + rounding * abs(product)
                    belongs = members[start + first + i]
                    for p in range(pools):
                        if (belongs >> np.uint64(p)) & np.uint64(1) and uppers[i] >= thresholds[p, q]:
                            record = records[p, q, counts[p, q]]
                            record[0], record[1], record[2] = estimate, margin, np.float32(start + first + i)
                            counts[p, q] += 1
        for p in range(pools):
            if counts[p, q] > keep * wanted[p, q]:
                counts[p, q], thresholds[p, q] = _trim(
                    records[p, q],
                    counts[p, q],
                    wanted[p, q],
                    slack[q],
                    offset[q],
                    thresholds[p, q],
                )


@compiled
def settle(
    wanted: Any,
    slack: Any,
    offset: Any,
    thresholds: Any,
    records: Any,
    counts: Any,
) -> Any:
    """Trim every reservoir that holds more than is wanted and return what is left in them all.

    Its arguments are those of :func:`sieve`. Returned are pools and queries, int64 ``[n]``, both rising, positions in
    the block, int64 ``[n]``, estimates and margins, float32 ``[n]``.
    """
    for p in range(len(counts)):
        for q in range(len(counts[p])):
            if counts[p, q] > wanted[p, q]:
                counts[p, q], thresholds[p, q] = _trim(
                    records[p, q],
                    counts[p, q],
                    wanted[p, q],
                    slack[q],
                    offset[q],
                    thresholds[p, q],
                )
    total = counts.sum()
    pools, queries, positions = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    estimates, margins = np.empty(total, np.float32), np.empty(total, np.float32)
    at = 0
    for p in range(len(counts)):
        for q in range(len(counts[p])):
            for i in range(counts[p, q]):
                record = records[p, q, i]
                pools[at], queries[at], positions[at] = p, q, np.int64(record[2])
                estimates[at], margins[at] = record[0], record[1]
                at += 1
    return pools, queries, positions, estimates, margins
