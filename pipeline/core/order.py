"""The one total order of a ranking: score descending, then paper id descending.

A corpus numbers its papers in the order of their ids, so "id descending" is "row descending" everywhere inside
(protocol section 4; trec_eval breaks ties the same way).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float32]
Rows = npt.NDArray[np.uint32]


def best(scores: Scores, rows: Rows, k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the ``k`` best entries, best first; all of them if there are fewer.

    Scores are float32 ``[n]``, higher is better, no NaN; rows are uint32 ``[n]``, all different.
    """
    kept = np.arange(len(scores))
    if 0 < k < len(scores):
        kept = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    order = np.lexsort((rows[kept], scores[kept]))[::-1][:k]
    return kept[order]


def tied_share(queries: npt.NDArray[np.uint32], scores: Scores) -> float:
    """Return the share of ranked entries whose score equals that of a neighbour in the same query's ranking.

    Queries, uint32 ``[n]``, stand together; scores, float32 ``[n]``, are in ranked order within a query.
    """
    if len(scores) < 2:
        return 0.0
    same = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    tied = np.zeros(len(scores), dtype=bool)
    tied[1:] |= same
    tied[:-1] |= same
    return float(tied.mean())
