"""Lists in CSR form: offsets, and the entries of all lists one behind the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return ``counts[i]`` numbers from each ``starts[i]`` on, one behind the other."""
    found: Ints = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return found
