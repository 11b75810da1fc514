"""The best of many values, in kernels."""

from __future__ import annotations

from typing import Any

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
