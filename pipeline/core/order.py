"""The one total order of a ranking: score descending, then paper id descending.

Rows of a corpus are in the order of paper ids, so id descending equals row descending (protocol section 4; trec_eval
breaks ties the same way).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float32]
Rows = npt.NDArray[np.uint32]


def best(scores: Scores, rows: Rows, k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the ``k`` best entries, best first, or of all if there are fewer.

    Scores are float32 ``[n]``, higher is better, no NaN; rows are uint32 ``[n]``, all different.
    """
    candidates = np.arange(len(scores))
    if 0 < k < len(scores):
        candidates = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    order = np.lexsort((rows[candidates], scores[candidates]))[::-1][:k]
    return candidates[order]


def tied_share(queries: npt.NDArray[np.uint32], scores: Scores) -> float:
    """Return the share of entries whose score equals that of a neighbour in the same query's ranking.

    Queries, uint32 ``[n]``, are grouped; scores, float32 ``[n]``, are in ranked order within a query.
    """
    equals_next = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    return float((np.append(equals_next, False) | np.append(False, equals_next)).mean())
