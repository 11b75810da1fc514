"""Lists in CSR form: offsets, and the concatenated entries of all lists."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def offsets_of(owners: npt.NDArray[np.integer], count: int) -> Ints:
    """Return where the entries of each of ``count`` owners start and end, int64 ``[count + 1]``.

    Args:
        owners: ``[entries]``, the owner of each entry, from 0, rising.
        count: number of owners; some may have no entry.
    """
    offsets: Ints = np.searchsorted(owners, np.arange(count + 1))
    return offsets


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return the concatenated ranges of ``counts[i]`` numbers from ``starts[i]``, int64 ``[counts.sum()]``."""
    positions: Ints = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return positions


def slices(sizes: npt.NDArray[np.integer], most: int, total: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``most`` items whose sizes sum to at most ``total``, or of one item."""
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + total, "right"))
        yield slice(start, start := min(max(stop, start + 1), start + most))
