"""Measures from the ranks of relevant papers alone, for many rankings at once."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt


def average_precision(ranks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the average precision of every query in every ranking, float64 ``[queries, rankings]``.

    Args:
        ranks: int64 ``[relevant, rankings]``, from 1; 0 where a relevant paper was not retrieved; in any order within a
            query.
        offsets: int64 ``[queries + 1]``, where each query's relevant papers start; a query without any has NaN.
    """
    values = np.full((len(offsets) - 1, ranks.shape[1]), np.nan)
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        if first == last:
            continue
        mine = np.sort(np.where(ranks[first:last] > 0, ranks[first:last], np.iinfo(np.int64).max), axis=0)
        found = np.arange(1, last - first + 1)[:, None]
        precisions = np.where(mine < np.iinfo(np.int64).max, found / mine, 0.0)
        values[query] = precisions.sum(axis=0) / (last - first)
    return values
