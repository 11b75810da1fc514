"""Lists in CSR form (offsets, and the concatenated entries of all lists), and look-ups in sorted keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Owners = npt.NDArray[np.integer]


class Groups(NamedTuple):
    """Vectors, floats ``[m, dimension]``; paper or query ``i`` has ``vectors[offsets[i] : offsets[i + 1]]``."""

    offsets: Ints
    vectors: npt.NDArray[np.floating[Any]]


def pack(high: Owners, low: Owners) -> Keys:
    """Return keys that sort like pairs of numbers below 2**32, such as (query, row): uint64 ``[n]``."""
    return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)


def offsets_of(owners: Owners, count: int) -> Ints:
    """Return the CSR offsets of owners 0 to ``count - 1``, int64 ``[count + 1]``; ``owners``, ``[entries]``, rise."""
    offsets: Ints = np.searchsorted(owners, np.arange(count + 1))
    return offsets


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return the concatenated ranges of ``counts[i]`` numbers from ``starts[i]``, int64 ``[counts.sum()]``."""
    positions: Ints = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return positions


def slices(sizes: npt.NDArray[np.integer], length: int, limit: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``length`` items whose sizes sum to at most ``limit``, or of one item."""
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + limit, "right"))
        yield slice(start, start := min(max(stop, start + 1), start + length))


def find_sorted(rising: Owners, keys: Owners) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the positions of keys in an array of distinct, rising keys, int64, and whether they are there."""
    if not len(rising):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    position = np.minimum(np.searchsorted(rising, keys), len(rising) - 1)
    return position, rising[position] == keys


def distinct_pairs(owner: Owners, keys: Keys) -> tuple[Owners, Keys]:
    """Return the distinct pairs of owner and key, sorted by owner, then key."""
    order = np.argsort(keys)
    order = order[np.argsort(owner[order], kind="stable")]
    owner, keys = owner[order], keys[order]
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = (owner[1:] != owner[:-1]) | (keys[1:] != keys[:-1])
    return owner[is_new], keys[is_new]
