"""Average precision of many rankings, given the ranks of their relevant papers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.measure.hits import Hits, Relevant
from pipeline.measure.inputs import query_of
from pipeline.measure.measures import MEASURES


def average_precision(ranks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the average precision of every query in every ranking, float64 ``[queries, rankings]``.

    Args:
        ranks: int64 ``[relevant, rankings]``, from 1; 0 where a relevant paper was not retrieved; in any order within a
            query.
        offsets: int64 ``[queries + 1]``, where each query's relevant papers start; a query without any has NaN.
    """
    query, positives = query_of(offsets), np.diff(offsets)
    values = np.empty((len(positives), ranks.shape[1]))
    for number, column in enumerate(ranks.T):
        order = np.lexsort((column, query))
        order = order[column[order] > 0]
        relevant = Relevant(query[order], column[order], np.ones(len(order), np.int64))
        with np.errstate(invalid="ignore"):
            values[:, number] = MEASURES["map"].compute(Hits(relevant, relevant, positives, positives))
    return values
