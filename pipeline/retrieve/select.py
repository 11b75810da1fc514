"""The best of many values, in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import as_bits, as_float, compiled, lowest_bit


@compiled
def best_first(values: Any, count: int) -> Any:
    """Bring the greatest ``count`` values to the front (Hoare's selection) and return the least of them.

    Numba can compile ``np.partition`` as well, in ten times the time.
    """
    low, high, place = 0, len(values) - 1, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
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
def merge(lists: Any, queries: Any, keys: Any, pools: Any) -> None:
    """Keep in some lists the greatest of what is there and of further keys, the least of them first.

    Args:
        lists: uint64 ``[pools, queries, depth]``, changed.
        queries: int64 ``[n]``, rising.
        keys: uint64 ``[n]``.
        pools: uint64 ``[n]``, a bit for each pool in whose list a key may be; ``[0]``: there is one pool.
    """
    several, depth, first = len(lists), lists.shape[2], 0
    room, counts, least = np.empty((several, depth + 1), np.uint64), np.empty(several, np.int64), lists[:, 0, 0].copy()
    while first < len(keys):
        last = first + 1
        while last < len(keys) and queries[last] == queries[first]:
            last += 1
        if room.shape[1] < depth + last - first:
            room = np.empty((several, depth + 2 * (last - first)), np.uint64)
        for p in range(several):
            counts[p], least[p] = depth, lists[p, queries[first], 0]
        for i in range(first, last):
            bits = pools[i] if len(pools) else np.uint64(1)
            while bits:
                p = lowest_bit(bits)
                bits &= bits - np.uint64(1)
                room[p, counts[p]] = keys[i]
                counts[p] += keys[i] > least[p]
        for p in range(several):
            if counts[p] > depth:
                own = lists[p, queries[first]]
                room[p, :depth] = own
                best_first(room[p, : counts[p]], depth)
                own[:] = room[p, :depth]
                own[0], own[depth - 1] = own[depth - 1], own[0]
        first = last


@compiled
def key_of(score: Any, row: Any) -> Any:
    """Return the key of a score, float32, neither NaN nor negative zero, and a row: keys order as they do."""
    bits = np.uint32(as_bits(score))
    sortable = bits ^ (np.uint32(0x80000000) | (np.uint32(0) - (bits >> np.uint32(31))))
    return np.uint64(sortable) << np.uint64(32) | np.uint64(row)


@compiled
def pack(scores: Any, rows: Any) -> Any:
    """Return the keys of float32 scores and rows, uint64."""
    keys = np.empty(len(scores), np.uint64)
    for i in range(len(scores)):
        keys[i] = key_of(scores[i], rows[i])
    return keys


@compiled
def unpack(keys: Any) -> Any:
    """Return the scores and rows of keys, float32 and uint32."""
    scores, rows = np.empty(len(keys), np.float32), np.empty(len(keys), np.uint32)
    for i in range(len(keys)):
        sortable = np.uint32(keys[i] >> np.uint64(32))
        flipped = np.uint32(0x80000000) | np.uint32((sortable >> np.uint32(31)) - np.uint32(1))
        scores[i], rows[i] = as_float(np.int32(sortable ^ flipped)), np.uint32(keys[i])
    return scores, rows


@compiled
def keys_of(canonical: Any, rows: Any, positions: Any) -> Any:
    """Return the keys of scores before their rounding and of ``rows[positions]``, uint64 ``[n]``."""
    keys = np.empty(len(positions), np.uint64)
    for i in range(len(positions)):
        keys[i] = key_of(np.float32(canonical[i]) + np.float32(0.0), rows[positions[i]])
    return keys


@compiled
def furthest(estimates: Any, canonical: Any, bounds: Any) -> Any:
    """Return how far the worst estimate is from its score, as a share of its bound, and the largest size of a score."""
    worst = largest = 0.0
    for i in range(len(canonical)):
        worst = max(worst, abs(estimates[i] - canonical[i]) / bounds[i])
        largest = max(largest, abs(canonical[i]))
    return worst, largest
