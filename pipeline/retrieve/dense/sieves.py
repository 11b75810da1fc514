"""Compiled kernels of the exact pass: what comes near enough to be scored.

After an edit of what they call elsewhere remove this module's ``__pycache__/*.nb*``: numba notices changes of one file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled, lowest_bit
from pipeline.retrieve.dense.framing import RESTS
from pipeline.retrieve.dense.lanes import STRIDE, marked, near, whole_products, widened
from pipeline.retrieve.dense.trims import negate, reached_of, scratch_of, trim

_ZERO = np.uint8(128)
"""Stands for zero where a whole number is unsigned."""


@compiled
def mark(rows: Any, candidates: Any, starts: Any, found: Any) -> None:
    """Set bit ``p`` of uint64 ``found`` for each of ``rows`` that is in ``candidates[starts[p]:starts[p + 1]]``.

    Rows rise, and so do those of each pool.
    """
    if not len(rows):
        return
    places, lasts = np.empty(len(starts) - 1, np.int64), np.empty(len(starts) - 1, np.int64)
    for p in range(len(places)):
        pool = candidates[starts[p] : starts[p + 1]]
        places[p] = starts[p] + np.searchsorted(pool, rows[0])
        lasts[p] = starts[p] + np.searchsorted(pool, rows[-1], "right")
    for i in range(len(rows)):
        for p in range(len(places)):
            while places[p] < lasts[p] and candidates[places[p]] < rows[i]:
                places[p] += 1
            here = places[p] < lasts[p] and candidates[places[p]] == rows[i]
            found[i] |= np.uint64(here) << np.uint64(p)
            places[p] += here


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
def _near(tile: Any, start: int, known: Any, members: Any, units: Any, thresholds: Any) -> Any:
    """Return which pairs of a tile could be among the best of a pool, uint64 ``[q, words]``, a bit a pair.

    Args:
        tile: as of :func:`sieve`, as all others.
        start: of it.
        known: bias, spread and grains.
        members: of the candidates.
        units: query grains, lengths and rounding.
        thresholds: of the reservoirs.
    """
    bias, spread, grains = known
    query_grains, lengths, rounding = units
    pools, width = thresholds.shape[1], tile.shape[1]
    whole = width // STRIDE
    marks = np.empty((pools, whole), np.uint64)
    for p in range(pools):
        for word in range(whole):
            marks[p, word] = marked(members, start + word * STRIDE, p)
    found = np.zeros((len(tile), -(-width // STRIDE)), np.uint64)
    negated = np.empty(STRIDE, np.float32)
    for q in range(len(tile)):
        length, unit = lengths[q], query_grains[q]
        for word in range(whole):
            found[q, word] = near(tile, q, word, known, start, unit, length, rounding, thresholds, marks)
        if whole * STRIDE < width:
            negate(thresholds[q], negated)
        for place in range(whole * STRIDE, width):
            at = start + place
            estimate, margin = _estimated(tile[q, place], unit * grains[at], bias[at], length * spread[at], rounding)
            here = np.uint64(_reaches(estimate + margin, members[at], negated))
            found[q, whole] |= here << np.uint64(place - whole * STRIDE)
    return found


@compiled
def _reaches(upper: Any, pools: Any, negated: Any) -> Any:
    """Whether a number reaches the threshold of any of some pools, as :func:`reached_of` tells."""
    return reached_of(upper, pools, negated) != 0


@compiled
def _put(kept: Any, q: int, estimate: Any, margin: Any, position: int, pools: Any, stays: Any) -> None:
    """Write an entry behind those of a query's reservoir, and count it if it stays."""
    records, masks, counts = kept
    held = counts[q]
    records[q, held, 0], records[q, held, 1], records[q, held, 2] = estimate, margin, np.float32(position)
    if masks.shape[1]:
        masks[q, held] = pools
    counts[q] = held + stays


@compiled
def _keep(tile: Any, start: int, base: int, known: Any, members: Any, units: Any, kept: Any, found: Any) -> None:
    """Add the pairs that are near to the reservoirs, query by query.

    Args:
        tile: this and the next ones as of :func:`_near`.
        start: of it.
        base: as of :func:`sieve`.
        known: of the candidates.
        members: of them.
        units: of the queries.
        kept: records, masks and counts of the reservoirs, changed.
        found: which pairs, of :func:`_near`.
    """
    bias, spread, grains = known
    query_grains, lengths, rounding = units
    for q in range(len(tile)):
        length, unit = lengths[q], query_grains[q]
        for word in range(found.shape[1]):
            bits = found[q, word]
            while bits:
                place = word * STRIDE + lowest_bit(bits)
                bits &= bits - np.uint64(1)
                at = start + place
                estimate, margin = _estimated(
                    tile[q, place], unit * grains[at], bias[at], length * spread[at], rounding
                )
                _put(kept, q, estimate, margin, base + at, members[at], True)


@compiled
def _keep_closer(
    tile: Any,
    start: int,
    base: int,
    known: Any,
    members: Any,
    units: Any,
    kept: Any,
    found: Any,
    thresholds: Any,
    parts: Any,
    closer: Any,
) -> Any:
    """Make the products of pairs that are near closer and add those that still are, by candidate: each is read once.

    Args:
        tile: this and the next ones as of :func:`_keep`.
        start: of it.
        base: of the block.
        known: of the candidates.
        members: of them.
        units: of the queries.
        kept: the reservoirs.
        found: which pairs.
        thresholds: this and the next ones as of :func:`sieve`.
        parts: of the queries.
        closer: of the candidates.

    Returns:
        As :func:`sieve`.
    """
    bias, _, grains = known
    query_grains, _, _ = units
    wholes, rests, spread = closer
    points, totals, lengths = parts
    middle, reached = points.shape[1] // 2, 0
    other = np.full(points.shape[1], _ZERO, np.uint8)
    negated = np.empty((len(tile), STRIDE), np.float32)
    for q in range(len(tile)):
        negate(thresholds[q], negated[q])
    waiting, owners = np.zeros(STRIDE, np.int64), np.empty((STRIDE, len(tile)), np.int64)
    for word in range(found.shape[1]):
        first, some = start + word * STRIDE, np.uint64(0)
        for q in range(len(tile)):
            bits = found[q, word]
            some |= bits
            while bits:
                lane = lowest_bit(bits)
                bits &= bits - np.uint64(1)
                owners[lane, waiting[lane]] = q
                waiting[lane] += 1
        while some:
            lane = lowest_bit(some)
            some &= some - np.uint64(1)
            at, count = first + lane, waiting[lane]
            for i in range(wholes.shape[1]):
                other[i] = np.uint8(wholes[at, i]) ^ _ZERO
                other[middle + i] = np.uint8(rests[at, i]) ^ _ZERO
            q = owners[lane, 0]
            again = np.int32(whole_products(points, (q,), middle, other[:middle])[0] - totals[q, 1])
            if again != tile[q, at - start]:
                return -1
            for n in range(0, count, 2):
                both = whole_products(points, (owners[lane, n], owners[lane, min(n + 1, count - 1)]), 0, other)
                for i in range(min(2, count - n)):
                    q = owners[lane, n + i]
                    rest = np.float32(np.int32(both[i] - totals[q, 0])) / np.float32(RESTS)
                    estimate = (np.float32(tile[q, at - start]) + rest) * (query_grains[q] * grains[at]) + bias[at]
                    margin = lengths[q] * spread[at]
                    stays = _reaches(estimate + margin, members[at], negated[q])
                    _put(kept, q, estimate, margin, base + at, members[at], stays)
            reached += count
            waiting[lane] = 0
    return reached


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
    parts: Any,
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
    most its margin, ``length * spread + rounding * |product|``, and half the slack. Where parts are given, the products
    of whatever comes near are made closer, and their margins are small.

    A reservoir that holds more than its limit after a tile is trimmed: as many candidates of a pool as are wanted, each
    of them surely ``x`` or better, leave no place in its list for one that is surely below ``x`` by the slack. The
    next limit is twice what is left. Where the bound separates too little, that is more than ``most``.

    Args:
        tile: float32, uint16 (bfloat16) or int32 ``[q, w]``, products.
        start: position of the tile in the block.
        base: position of the block among the candidates that are kept.
        bias: float32 ``[m]``, of the block, added to the products.
        spread: float32 ``[m]``, what the candidates lost by rounding.
        grains: float32 ``[m]``, units of the candidates' points.
        members: uint64 ``[m]``, bit ``i`` for the candidates of pool ``i``.
        query_grains: float32 ``[q]``, units of the queries' points.
        lengths: float32 ``[q]``, what the candidates' spread is a share of.
        rounding: float32, what a product can have lost when it was stored, relative to it: 0 but for bfloat16.
        parts: :class:`pipeline.retrieve.dense.rounded.Parts` of the queries, where products of what comes near are made
            closer; else of none.
        closer: :class:`pipeline.retrieve.dense.rounded.Closer` of the block, for that.
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
        How many products were made closer; -1 where one is wrong: one of each candidate's is made again.
    """
    known, units, kept = (bias, spread, grains), (query_grains, lengths, rounding), (records, masks, counts)
    found = _near(tile, start, known, members, units, thresholds)
    reached = 0
    if len(parts[0]):
        reached = _keep_closer(tile, start, base, known, members, units, kept, found, thresholds, parts, closer)
    else:
        _keep(tile, start, base, known, members, units, kept, found)
    scratch = scratch_of(records.shape[1])
    for q in range(len(tile)):
        if counts[q] > limits[q]:
            held = trim(records[q], masks[q], counts[q], wanted[q], slack[q], offset[q], thresholds[q], scratch)
            counts[q], limits[q] = held, min(most[q], held + max(held, wanted[q].max()))
    return reached
