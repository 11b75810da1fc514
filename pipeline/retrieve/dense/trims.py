"""Compiled kernels of the exact pass: what stays in a reservoir, and what of it is scored.

Loading this loads Numba. :mod:`pipeline.retrieve.dense.sieves` calls it: after an edit remove ``__pycache__/*.nb*``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import bits_set, compiled, lowest_bit
from pipeline.retrieve.dense.lanes import STRIDE, marked, reaching


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
def trim(
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
            least = np.float64(_reached(lower, chosen[:words], low, high, wanted[p], wanted[p] // 16))
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
def scratch_of(size: int) -> Any:
    """Return what :func:`trim` writes to, for reservoirs of a size (a multiple of 64)."""
    words = size // STRIDE
    return (
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(words, np.uint64),
        np.empty(words, np.uint64),
    )


@compiled
def tidy(wanted: Any, slack: Any, offset: Any, thresholds: Any, records: Any, masks: Any, counts: Any) -> None:
    """Trim the reservoirs of some queries; arguments as of :func:`pipeline.retrieve.dense.sieves.sieve`."""
    scratch = scratch_of(records.shape[1])
    for q in range(len(counts)):
        counts[q] = trim(records[q], masks[q], counts[q], wanted[q], slack[q], offset[q], thresholds[q], scratch)


@compiled
def _likely(records: Any, masks: Any, count: int, wanted: Any, thresholds: Any, scratch: Any) -> None:
    """Set a bit in the last of ``scratch`` for the best entries of each pool: about as many as are wanted, or all."""
    lower, upper, chosen, likely = scratch
    words = _padded(count) // STRIDE
    low, high = _span(records, count, lower, upper)
    likely[:words] = 0
    for p in range(len(wanted)):
        inside = _inside(upper, masks, p, thresholds[p], chosen[:words])
        least = np.float32(-np.inf)
        if inside > wanted[p]:
            least = _reached(lower, chosen[:words], low, high, wanted[p], wanted[p] // 8)
        for word in range(words):
            likely[word] |= chosen[word] & reaching(lower, word * STRIDE, least)


@compiled
def negate(thresholds: Any, negated: Any) -> None:
    """Write thresholds so that one comparison tells which of them a number reaches (:func:`reached_of`)."""
    negated[:] = -np.inf
    for p in range(len(thresholds)):
        negated[p] = -thresholds[p]


@compiled
def reached_of(upper: Any, pools: Any, negated: Any) -> Any:
    """Return which of some pools have a threshold that a number reaches, a bit each."""
    return reaching(negated, 0, -upper) & pools


@compiled
def settle(
    first: int,
    last: int,
    numbers: Any,
    scale: float,
    shift: Any,
    bound: Any,
    wanted: Any,
    thresholds: Any,
    records: Any,
    masks: Any,
    counts: Any,
    pairs: Any,
) -> Any:
    """Write what the reservoirs of some queries hold as pairs that may have to be scored.

    They come in two parts, about as many of each pool as are wanted first: most others turn out to be worse than these.
    Each is for those pools alone whose threshold it reaches.

    Args:
        first: the first of the queries.
        last: the one behind the last.
        numbers: int64 ``[q]``, the queries' numbers.
        scale: of estimates, as scores are measured.
        shift: float64 ``[q]``, added to them.
        bound: float64 ``[q]``, how far off they are beside their margins.
        wanted: this and the others as of :func:`pipeline.retrieve.dense.sieves.sieve`.
        thresholds: float32 ``[q, p]``.
        records: float32 ``[q, r, 3]``.
        masks: unsigned ``[q, r]`` or ``[q, 0]``.
        counts: int64 ``[q]``.
        pairs: :class:`pipeline.retrieve.dense.pairs.Pairs` with room for twice as many, written: the first part from
            their start on, the second one from their middle.

    Returns:
        How many pairs are in either part.
    """
    scratch = scratch_of(records.shape[1])
    likely = scratch[3]
    queries, positions, estimates, bounds, pools = pairs
    negated = np.empty(STRIDE, np.float32)
    middle = len(queries) // 2
    ahead: Any = 0
    behind: Any = middle
    for q in range(first, last):
        _likely(records[q], masks[q], counts[q], wanted[q], thresholds[q], scratch)
        negate(thresholds[q], negated)
        for i in range(counts[q]):
            here = np.int64((likely[i // STRIDE] >> np.uint64(i % STRIDE)) & np.uint64(1))
            at = ahead if here else behind
            ahead += here
            behind += 1 - here
            queries[at], positions[at] = numbers[q], np.int64(records[q, i, 2])
            estimates[at] = scale * np.float64(records[q, i, 0]) + shift[q]
            bounds[at] = bound[q] + scale * np.float64(records[q, i, 1])
            pools[at] = np.uint64(1)
            if masks.shape[1]:
                pools[at] = reached_of(records[q, i, 0] + records[q, i, 1], np.uint64(masks[q, i]), negated)
    return ahead, behind - middle


@compiled
def _among(values: Any, first: int, last: int, value: int) -> Any:
    """Whether a value is among some, which rise."""
    if first == last:
        return False
    at = first + np.searchsorted(values[first:last], value)
    return at < last and values[at] == value


@compiled
def drop(pairs: Any, first: int, floors: Any, starts: Any, removed: Any) -> Any:
    """Keep the pairs that could be among the best of a pool, for these pools; return how many.

    Args:
        pairs: :class:`pipeline.retrieve.dense.pairs.Pairs`, changed.
        first: the least query.
        floors: float64 ``[pools, q]``, what a score must reach, from that query on.
        starts: int64 ``[pools, q + 1]``, where what is removed from each pool's ranking of a query starts.
        removed: int64, by position, rising for each.
    """
    queries, positions, estimates, bounds, pools = pairs
    kept = 0
    for i in range(len(queries)):
        query, position, upper = queries[i] - first, positions[i], estimates[i] + bounds[i]
        bits, some = pools[i], np.uint64(0)
        while bits:
            p = lowest_bit(bits)
            rest = bits & (bits - np.uint64(1))
            if upper >= floors[p, query] and not _among(removed, starts[p, query], starts[p, query + 1], position):
                some |= bits ^ rest
            bits = rest
        queries[kept], positions[kept], pools[kept] = queries[i], position, some
        estimates[kept], bounds[kept] = estimates[i], bounds[i]
        kept += some != 0
    return kept


@compiled
def tally(positions: Any, first: int, counts: Any) -> None:
    """Add how many of some positions are ``first``, ``first + 1`` and so on to int64 ``counts``."""
    for i in range(len(positions)):
        place = positions[i] - first
        if 0 <= place < len(counts):
            counts[place] += 1


@compiled
def visit(
    queries: Any, positions: Any, first: int, number: int, query_bits: int, index_bits: int, places: Any, packed: Any
) -> None:
    """Write the pairs whose candidates are at some positions as :class:`pipeline.retrieve.dense.pairs.Visits`.

    Args:
        queries: whole numbers ``[n]``.
        positions: whole numbers ``[n]``.
        first: the first position.
        number: of the first pair.
        query_bits: how many bits a query has.
        index_bits: how many a number has.
        places: int64, where to write the next pair of each position; changed.
        packed: int64, written.
    """
    for i in range(len(queries)):
        place = positions[i] - first
        if 0 <= place < len(places):
            key = (np.int64(positions[i]) << query_bits | np.int64(queries[i])) << index_bits | (number + i)
            packed[places[place]] = key
            places[place] += 1
