"""The best of many values, in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled


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
def merge(lists: Any, owners: Any, starts: Any, keys: Any) -> None:
    """Keep in some lists the greatest of what is there and of further keys, the least of them first.

    Args:
        lists: uint64 ``[lists, depth]``, changed.
        owners: int64 ``[n]``, which lists.
        starts: int64 ``[n + 1]``, where the keys for each start.
        keys: uint64.
    """
    depth = lists.shape[1]
    room = np.empty(depth + (starts[1:] - starts[:-1]).max(), np.uint64)
    for n, owner in enumerate(owners):
        own = lists[owner]
        count = depth
        room[:depth] = own
        for key in keys[starts[n] : starts[n + 1]]:
            room[count] = key
            count += key > own[0]
        if count > depth:
            best_first(room[:count], depth)
            own[:] = room[:depth]
            own[0], own[depth - 1] = own[depth - 1], own[0]
