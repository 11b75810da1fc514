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


def without_rises(queries: npt.NDArray[np.uint32], scores: Scores, keys: npt.NDArray[np.integer]) -> Scores:
    """Return scores of ranked entries; one that would rank above the entry before is lowered by the smallest step.

    Queries, uint32 ``[n]``, are grouped; scores are float32 ``[n]``; of equal scores, the higher key, int ``[n]``, is
    ranked above.
    """
    lowered = scores.copy()
    rises = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1]) & (keys[1:] > keys[:-1])
    for entry in (np.flatnonzero(rises) + 1).tolist():
        while (
            entry < len(scores)
            and queries[entry] == queries[entry - 1]
            and (lowered[entry], keys[entry]) > (lowered[entry - 1], keys[entry - 1])
        ):
            lowered[entry] = np.nextafter(lowered[entry - 1], np.float32(-np.inf))
            entry += 1
    return lowered
