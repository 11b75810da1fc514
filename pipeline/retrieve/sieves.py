"""Compiled kernels of the exact pass: what comes near enough to be scored.

After an edit of what they call elsewhere remove this module's ``__pycache__/*.nb*``: numba notices changes of one file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import bits_set, compiled, lowest_bit
from pipeline.retrieve.lanes import STRIDE, ask_for, marked, moved_product, near, reaching, widened

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
def _reached(values: Any, chosen: Any, low: Any, high: Any, wanted: int, spare: int) -> Any:
    """Return a float32 that at least ``wanted`` of some values reach, and at most ``spare`` more unless they are equal.

    What lies between the least and the greatest is halved until few enough reach the middle, or nothing is left: to
    count takes less than a tenth of a nanosecond a value, to select several.

    Args:
        values: float32, 64 times as many as ``chosen``.
        chosen: uint64, a bit for each of those that count; there are ``wanted`` or more.
        low: float32, what all of these reach.
        high: float32, what none of them exceeds.
        wanted: how many.
        spare: how many more will do.
    """
    while low < high:
        middle = np.float32((np.float64(low) + np.float64(high)) / 2)
        if not middle > low:
            middle = high
        reached = 0
        for word in range(len(chosen)):
            reached += bits_set(reaching(values, word * STRIDE, middle) & chosen[word])
        if reached >= wanted:
            low = middle
            if reached <= wanted + spare:
                break
        elif middle == high:
            break
        else:
            high = middle
    return low


@compiled
def _span(records: Any, count: int, lower: Any, upper: Any) -> Any:
    """Write between what and what the scores of some entries lie; return the least and the greatest of the former."""
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for i in range(count):
        lower[i] = records[i, 0] - records[i, 1]
        upper[i] = records[i, 0] + records[i, 1]
    for i in range(count):
        low, high = min(low, lower[i]), max(high, lower[i])
    lower[count : _padded(count)] = -np.inf
    upper[count : _padded(count)] = -np.inf
    return low, high


@compiled
def _padded(count: int) -> int:
    return -(-count // STRIDE) * STRIDE


@compiled
def _inside(upper: Any, masks: Any, pool: int, threshold: Any, chosen: Any) -> Any:
    """Set a bit for each entry that could be among the best of a pool; return how many there are."""
    count: Any = 0
    for word in range(len(chosen)):
        chosen[word] = reaching(upper, word * STRIDE, threshold)
        if len(masks):
            chosen[word] &= marked(masks, word * STRIDE, pool)
        count += bits_set(chosen[word])
    return count


@compiled
def _trim(
    records: Any,
    masks: Any,
    count: int,
    wanted: Any,
    slack: float,
    offset: float,
    thresholds: Any,
    scratch: Any,
) -> Any:
    """Drop from a reservoir what cannot be among the best of any pool, raise the thresholds; return what is left."""
    lower, upper, chosen, stays = scratch
    words = _padded(count) // STRIDE
    low, high = _span(records, count, lower, upper)
    stays[:words] = 0
    for p in range(len(wanted)):
        if _inside(upper, masks, p, thresholds[p], chosen[:words]) > wanted[p]:
            least = np.float64(_reached(lower, chosen[:words], low, high, wanted[p], wanted[p] // 4))
            away = (abs(least) + abs(offset)) * 2.0**-22
            thresholds[p] = max(thresholds[p], np.float32(least - slack - away))
            _inside(upper, masks, p, thresholds[p], chosen[:words])
        for word in range(words):
            stays[word] |= chosen[word]
    kept: Any = 0
    for i in range(count):
        records[kept, 0], records[kept, 1], records[kept, 2] = records[i, 0], records[i, 1], records[i, 2]
        if len(masks):
            masks[kept] = masks[i]
        kept += np.int64((stays[i // STRIDE] >> np.uint64(i % STRIDE)) & np.uint64(1))
    return kept


@compiled
def _scratch(size: int) -> Any:
    """Return what :func:`_trim` writes to, for reservoirs of a size (a multiple of 64)."""
    words = size // STRIDE
    return (
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(words, np.uint64),
        np.empty(words, np.uint64),
    )


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
    scratch = _scratch(records.shape[1])
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
            held = _trim(records[q], masks[q], held, wanted[q], slack[q], offset[q], thresholds[q], scratch)
            limits[q] = min(most[q], max(2 * held, held + 2 * wanted[q].max()))
        counts[q] = held
    return reached


@compiled
def settle(
    first: int,
    last: int,
    lists: Any,
    scale: float,
    shift: Any,
    bound: Any,
    wanted: Any,
    slack: Any,
    offset: Any,
    thresholds: Any,
    records: Any,
    masks: Any,
    counts: Any,
) -> Any:
    """Trim the reservoirs of some queries and return what is left in them.

    It comes in two parts, as many of each list as are wanted first: most of the others turn out to be worse than these.

    Args:
        first: the first of the queries.
        last: the one behind the last.
        lists: int64 ``[q, p]``, their numbers.
        scale: of estimates, as scores are measured.
        shift: float64 ``[q]``, added to them.
        bound: float64 ``[q]``, how far off they are beside their margins.
        wanted: this and the others as of :func:`sieve`.
        slack: float64 ``[q]``.
        offset: float64 ``[q]``.
        thresholds: float32 ``[q, p]``; raised.
        records: float32 ``[q, r, 3]``; changed.
        masks: unsigned ``[q, r]`` or ``[q, 0]``; changed.
        counts: int64 ``[q]``; changed.

    Returns:
        How many entries are in the first part; of all entries the lists, int64 ``[n]``, those of one list together in
        either part, positions, int64 ``[n]``, scores as estimated and how far off they can be, float64 ``[n]``.
    """
    pools, scratch = thresholds.shape[1], _scratch(records.shape[1])
    lower, upper, chosen, _ = scratch
    least, ahead, total = np.full((last - first, pools), -np.inf, np.float32), 0, 0
    for q in range(first, last):
        counts[q] = _trim(records[q], masks[q], counts[q], wanted[q], slack[q], offset[q], thresholds[q], scratch)
        words = _padded(counts[q]) // STRIDE
        low, high = _span(records[q], counts[q], lower, upper)
        for p in range(pools):
            count = _inside(upper, masks[q], p, thresholds[q, p], chosen[:words])
            total += count
            if count > wanted[q, p]:
                least[q - first, p] = _reached(lower, chosen[:words], low, high, wanted[q, p], 0)
                count = 0
                for word in range(words):
                    count += bits_set(reaching(lower, word * STRIDE, least[q - first, p]) & chosen[word])
            ahead += count
    owners, positions = np.empty(total, np.int64), np.empty(total, np.int64)
    scores, bounds = np.empty(total), np.empty(total)
    in_front, behind = 0, ahead
    for q in range(first, last):
        words = _padded(counts[q]) // STRIDE
        _span(records[q], counts[q], lower, upper)
        for p in range(pools):
            _inside(upper, masks[q], p, thresholds[q, p], chosen[:words])
            for word in range(words):
                while chosen[word]:
                    i = word * STRIDE + lowest_bit(chosen[word])
                    chosen[word] &= chosen[word] - np.uint64(1)
                    if lower[i] >= least[q - first, p]:
                        at = in_front
                        in_front += 1
                    else:
                        at = behind
                        behind += 1
                    owners[at], positions[at] = lists[q, p], np.int64(records[q, i, 2])
                    scores[at] = scale * np.float64(records[q, i, 0]) + shift[q]
                    bounds[at] = bound[q] + scale * np.float64(records[q, i, 1])
    return ahead, owners, positions, scores, bounds
