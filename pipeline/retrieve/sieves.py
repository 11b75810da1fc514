"""Compiled kernels of the exact pass: what comes near enough to be scored.

After an edit of what they call elsewhere remove this module's ``__pycache__/*.nb*``: numba notices changes of one file.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipeline.core.compiled import compiled, lowest_bit
from pipeline.retrieve.kernels import ask_for, widened
from pipeline.retrieve.select import best_first

_STRIDE = 64
_BUCKETS = 512
_AHEAD = 3
"""How many candidates before it is multiplied again one is asked for."""


@intrinsic  # type: ignore[untyped-decorator]
def _reaching(_typing: Any, values: Any, _least: Any) -> Any:
    """Return a mask, uint64: bit ``i`` where ``values[i]`` of 64 float32 is at least so much."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.FloatType(), _STRIDE)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        loaded = builder.load(builder.bitcast(data, lanes.as_pointer()), align=4)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), _STRIDE), [0] * _STRIDE)
        found = builder.fcmp_ordered(">=", loaded, builder.shuffle_vector(one, one, zeros))
        return builder.bitcast(found, ir.IntType(_STRIDE))

    return types.uint64(values, types.float32), generate


@compiled
def mark(rows: Any, subset: Any, bit: Any, found: Any) -> None:
    """Set a bit of uint64 ``found`` for each of ``rows`` that is in ``subset``; both rise."""
    at = 0
    for i in range(len(rows)):
        while at < len(subset) and subset[at] < rows[i]:
            at += 1
        if at < len(subset) and subset[at] == rows[i]:
            found[i] |= bit


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
def _reached(values: Any, wanted: int) -> Any:
    """Return a value that at least ``wanted`` of the values reach, and hardly more; the values may be rearranged.

    They are counted into buckets between the least and the greatest; the least of the bucket in which enough are
    together will do. Where one bucket holds too many (values far apart), the exact one is selected.
    """
    low, high = values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    if not high > low:
        return low
    scale = np.float32((_BUCKETS - 1) / (np.float64(high) - np.float64(low)))
    if not scale < np.float32(np.inf):
        return best_first(values, wanted)
    counts, least = np.zeros(_BUCKETS, np.int64), np.full(_BUCKETS, np.float32(np.inf))
    for value in values:
        place: Any = min(max(np.int64((value - low) * scale), 0), _BUCKETS - 1)
        counts[place] += 1
        least[place] = min(least[place], value)
    bucket, reached = _BUCKETS, 0
    while reached < wanted:
        bucket -= 1
        reached += counts[bucket]
    if reached > wanted + wanted // 4 + 1:
        return best_first(values, wanted)
    return least[bucket]


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
    least = np.float64(_reached(lowest, wanted))
    away = (abs(least) + abs(offset)) * 2.0**-22
    threshold = max(threshold, np.float32(least - slack - away))
    kept = 0
    for i in range(count):
        stays = records[i, 0] + records[i, 1] >= threshold
        records[kept, 0], records[kept, 1], records[kept, 2] = records[i, 0], records[i, 1], records[i, 2]
        kept += stays
    return kept, threshold


@compiled
def _moved(value: Any, scale: Any, origin: Any) -> Any:
    return value * scale - origin


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _closer(point: Any, vector: Any, scale: Any, origin: Any) -> Any:
    """Return the product of two points in float32, the second made anew; its bound holds for sums in any order."""
    total = np.float32(0.0)
    for j in range(len(point)):
        total += point[j] * _moved(vector[j], scale, origin[j])
    return total


@compiled
def sieve(
    tile: Any,
    start: int,
    base: int,
    keep: int,
    bias: Any,
    spread: Any,
    grains: Any,
    members: Any,
    query_grains: Any,
    lengths: Any,
    rounding: Any,
    points: Any,
    closer: Any,
    wanted: Any,
    slack: Any,
    offset: Any,
    thresholds: Any,
    records: Any,
    counts: Any,
) -> int:
    """Add to each list's reservoir the candidates of a tile that could be among its best.

    A list is one query in one of ``p`` pools. What is known of a pair is its estimate, the product in units of both
    grains and the bias, and that it is off by at most its margin, ``length * spread + rounding * |product|``, and half
    the slack. Where points are given, whatever comes near is multiplied again in float32, and its margin is small.

    A reservoir that holds more than ``keep`` times what is wanted after a tile is trimmed: as many candidates as are
    wanted, each of them surely ``x`` or better, leave no place for one that is surely below ``x`` by the slack. More
    may stay, where the bound separates too little.

    Args:
        tile: float32, uint16 (bfloat16) or int32 ``[q, w]``, products.
        start: position of the tile in the block.
        base: position of the block among the candidates that are kept.
        keep: from how many times ``wanted`` a reservoir is trimmed.
        bias: float32 ``[m]``, of the block, added to the products.
        spread: float32 ``[m]``, what the candidates lost by rounding.
        grains: float32 ``[m]``, units of the candidates' points.
        members: uint64 ``[m]``, bit ``i`` for the candidates of pool ``i``.
        query_grains: float32 ``[q]``, units of the queries' points.
        lengths: float32 ``[q]``, lengths of the queries' points.
        rounding: float32, what a product can have lost when it was stored, relative to it.
        points: float32 ``[q, d]``, the queries' points, where what comes near is multiplied again in float32; else
            ``[0, d]``.
        closer: :class:`pipeline.retrieve.frame.Closer` of the block, for that.
        wanted: int64 ``[p, q]``.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``, what lies between an estimate and its score; its size decides how scores are rounded.
        thresholds: float32 ``[p, q]``, finite; raised.
        records: float32 ``[p, q, r, 3]``, the reservoirs, with room for ``w`` more entries: estimates, margins and
            positions (beside each other, for they are met together, and in float32, which is exact below
            2**24); changed.
        counts: int64 ``[p, q]``, entries of each reservoir; changed.

    Returns:
        How many pairs came near the best of a list; -1 where the two products of a pair are further apart than their
        margins and the slack allow, so that one of them is wrong.
    """
    pools, reached = len(thresholds), 0
    vectors, scales, origin, away = closer
    width = tile.shape[1]
    addends, spreads, units = bias[start : start + width], spread[start : start + width], grains[start : start + width]
    uppers, places = np.full(width + _STRIDE, -np.inf, np.float32), np.empty(width + _AHEAD + 1, np.int64)
    negated = np.full(_STRIDE, -np.inf, np.float32)
    for q in range(len(tile)):
        lowest, length, unit, products = thresholds[:, q].min(), lengths[q], query_grains[q], tile[q]
        for i in range(width):
            product = widened(products[i]) * (unit * units[i])
            uppers[i] = (product + addends[i]) + (length * spreads[i] + rounding * abs(product))
        for p in range(pools):
            negated[p] = -thresholds[p, q]
        count = 0
        for first in range(0, width, _STRIDE):
            near = _reaching(uppers[first : first + _STRIDE], lowest)
            while near:
                place: Any = first + lowest_bit(near)
                near &= near - np.uint64(1)
                places[count] = place
                count += (_reaching(negated, -uppers[place]) & members[start + place]) != 0
        reached += count
        places[count : count + _AHEAD] = places[count - 1]
        for n in range(count):
            at = start + places[n]
            product = widened(products[places[n]]) * (unit * grains[at])
            estimate, margin = product + bias[at], length * spread[at] + rounding * abs(product)
            if len(points):
                ask_for(vectors, start + places[n + _AHEAD])
                rough, most = np.float64(estimate), np.float64(margin) + slack[q]
                estimate = _closer(points[q], vectors[at], scales[at], origin) + bias[at]
                margin = length * away
                if not abs(estimate - rough) <= most + margin:
                    return -1
            belongs = _reaching(negated, -(estimate + margin)) & members[at]
            while belongs:
                p = lowest_bit(belongs)
                belongs &= belongs - np.uint64(1)
                record = records[p, q, counts[p, q]]
                record[0], record[1], record[2] = estimate, margin, np.float32(base + at)
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
    return reached


@compiled
def settle(
    first: int,
    last: int,
    wanted: Any,
    slack: Any,
    offset: Any,
    thresholds: Any,
    records: Any,
    counts: Any,
) -> Any:
    """Trim the reservoirs of some queries that hold more than is wanted and return what is left in them.

    Args:
        first: the first of the queries.
        last: the one behind the last.
        wanted: this and the others as of :func:`sieve`.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``.
        thresholds: float32 ``[p, q]``; raised.
        records: float32 ``[p, q, r, 3]``; changed.
        counts: int64 ``[p, q]``; changed.

    Returns:
        Pools and queries, int64 ``[n]``, both rising, positions, int64 ``[n]``, estimates and margins, float32 ``[n]``.
    """
    for p in range(len(counts)):
        for q in range(first, last):
            if counts[p, q] > wanted[p, q]:
                counts[p, q], thresholds[p, q] = _trim(
                    records[p, q],
                    counts[p, q],
                    wanted[p, q],
                    slack[q],
                    offset[q],
                    thresholds[p, q],
                )
    total = counts[:, first:last].sum()
    pools, queries, positions = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    estimates, margins = np.empty(total, np.float32), np.empty(total, np.float32)
    at = 0
    for p in range(len(counts)):
        for q in range(first, last):
            for i in range(counts[p, q]):
                record = records[p, q, i]
                pools[at], queries[at], positions[at] = p, q, np.int64(record[2])
                estimates[at], margins[at] = record[0], record[1]
                at += 1
    return pools, queries, positions, estimates, margins
