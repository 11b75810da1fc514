"""Compiled kernels of the exact pass: what comes near enough to be scored.

After an edit of what they call elsewhere remove this module's ``__pycache__/*.nb*``: numba notices changes of one file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled, lowest_bit
from pipeline.retrieve.lanes import STRIDE, ask_for, marked, moved_product, near, reaching, widened
from pipeline.retrieve.trims import scratch_of, trim

_AHEAD = 3
"""How many candidates before it is multiplied again one is asked for."""


@compiled
def mark(rows: Any, candidates: Any, starts: Any, found: Any) -> None:
    """Set bit ``p`` of uint64 ``found`` for each of ``rows`` that is in ``candidates[starts[p]:starts[p + 1]]``.

    Rows rise, and so do those of each pool.
    """
    if not len(rows):
        return
    for p in range(len(starts) - 1):
        pool, bit = candidates[starts[p] : starts[p + 1]], np.uint64(1) << np.uint64(p)
        at, last = np.searchsorted(pool, rows[0]), np.searchsorted(pool, rows[-1], "right")
        for i in range(len(rows)):
            while at < last and pool[at] < rows[i]:
                at += 1
            if at == last:
                break
            here = pool[at] == rows[i]
            found[i] |= bit * np.uint64(here)
            at += here


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
def _estimated(product: Any, grain: Any, bias: Any, away: Any, rounding: Any) -> Any:
    """Return the estimate of a pair, and how far off its product can be."""
    exact = widened(product) * grain
    return exact + bias, away + rounding * abs(exact)


@compiled
def sieve(
    tile: Any,
    start: int,
    base: int,
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
    masks: Any,
    counts: Any,
    limits: Any,
    most: Any,
) -> int:
    """Add to each query's reservoir the candidates of a tile that could be among its best in any of ``p`` pools.

    What is known of a pair is its estimate, the product in units of both grains and the bias, and that it is off by at
    most its margin, ``length * spread + rounding * |product|``, and half the slack. Where points are given, whatever
    comes near is multiplied again in float32, and its margin is small.

    A reservoir that holds more than its limit after a tile is trimmed: as many candidates of a pool as are wanted, each
    of them surely ``x`` or better, leave no place in its list for one that is surely below ``x`` by the slack. The
    next limit is about twice what is left. Where the bound separates too little, that is more than ``most``.

    Args:
        tile: float32, uint16 (bfloat16) or int32 ``[q, w]``, products.
        start: position of the tile in the block.
        base: position of the block among the candidates that are kept.
        bias: float32 ``[m]``, of the block, added to the products.
        spread: float32 ``[m]``, what the candidates lost by rounding.
        grains: float32 ``[m]``, units of the candidates' points.
        members: uint64 ``[m]``, bit ``i`` for the candidates of pool ``i``.
        query_grains: float32 ``[q]``, units of the queries' points.
        lengths: float32 ``[q]``, lengths of the queries' points.
        rounding: float32, what a product can have lost when it was stored, relative to it: 0 but for bfloat16.
        points: float32 ``[q, d]``, the queries' points, where what comes near is multiplied again in float32; else
            ``[0, d]``.
        closer: :class:`pipeline.retrieve.frame.Closer` of the block, for that.
        wanted: int64 ``[q, p]``, entries of each list.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``, what lies between an estimate and its score; its size decides how scores are rounded.
        thresholds: float32 ``[q, p]``, finite: what candidates of each pool have to reach; raised.
        records: float32 ``[q, r, 3]``, the reservoirs, with room for ``w`` more entries than ``most``: estimates,
            margins and positions (beside each other, for they are met together, and in float32, which is exact below
            2**24); changed. ``r`` is a multiple of 64.
        masks: unsigned ``[q, r]``, the pools of each entry's candidate, or ``[q, 0]`` where there is one pool; changed.
        counts: int64 ``[q]``, entries of each reservoir; changed.
        limits: int64 ``[q]``, from how many entries each is trimmed; changed.
        most: int64 ``[q]``, the largest limits.

    Returns:
        How many pairs were multiplied again; -1 where the two products of a pair are further apart than their margins
        and the slack allow, so that one of them is wrong.
    """
    pools, reached, known = thresholds.shape[1], 0, (bias, spread, grains)
    vectors, scales, origin, away = closer
    width = tile.shape[1]
    whole = width // STRIDE
    marks = np.empty((pools, whole), np.uint64)
    for p in range(pools):
        for word in range(whole):
            marks[p, word] = marked(members, start + word * STRIDE, p)
    places = np.empty(width + _AHEAD + 1, np.int64)
    negated = np.full(STRIDE, -np.inf, np.float32)
    scratch = scratch_of(records.shape[1])
    for q in range(len(tile)):
        length, unit, count, held = lengths[q], query_grains[q], 0, counts[q]
        for p in range(pools):
            negated[p] = -thresholds[q, p]
        for word in range(whole):
            bits = near(tile, q, word, known, start, unit, length, rounding, thresholds, marks)
            while bits:
                places[count] = word * STRIDE + lowest_bit(bits)
                bits &= bits - np.uint64(1)
                count += 1
        for place in range(whole * STRIDE, width):
            at = start + place
            estimate, margin = _estimated(tile[q, place], unit * grains[at], bias[at], length * spread[at], rounding)
            places[count] = place
            count += (reaching(negated, 0, -(estimate + margin)) & members[at]) != 0
        if len(points):
            reached += count
            places[count : count + _AHEAD] = places[count - 1]
        for n in range(count):
            place = places[n]
            at = start + place
            estimate, margin = _estimated(tile[q, place], unit * grains[at], bias[at], length * spread[at], rounding)
            stays = True
            if len(points):
                ask_for(vectors, start + places[n + _AHEAD])
                rough, apart = np.float64(estimate), np.float64(margin) + slack[q]
                estimate = moved_product(points, q, vectors, at, scales[at], origin) + bias[at]
                margin = length * away
                if not abs(estimate - rough) <= apart + margin:
                    return -1
                stays = (reaching(negated, 0, -(estimate + margin)) & members[at]) != 0
            records[q, held, 0], records[q, held, 1] = estimate, margin
            records[q, held, 2] = np.float32(base + at)
            if pools > 1:
                masks[q, held] = members[at]
            held += stays
        if held > limits[q]:
            held = trim(records[q], masks[q], held, wanted[q], slack[q], offset[q], thresholds[q], scratch)
            limits[q] = min(most[q], max(2 * held, held + 2 * wanted[q].max()))
        counts[q] = held
    return reached
