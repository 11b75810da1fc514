"""Every measure in plain NumPy, one query at a time: the oracle the fast engine is tested against.

Definitions are trec_eval's (binary relevance from grade 1, NDCG with linear gain and log2(rank + 1)); denominators
count all positives of a query, retrieved or not (Medić & Šnajder 2022, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.measure.inputs import Qrels, Ranking, refuse_without_positives, same_queries
from pipeline.measure.names import Measure

Gains = npt.NDArray[np.float64]
"""Grade of the paper at each rank, 0 where it is not relevant."""


def evaluate(qrels: Qrels, ranking: Ranking, measures: Sequence[Measure]) -> npt.NDArray[np.float64]:
    """Return the value of each measure for each query.

    Args:
        qrels: relevant papers; every query has one.
        ranking: retrieved papers of the same queries; a query that retrieved nothing scores 0.
        measures: what to compute.

    Returns:
        Fractions, float64 ``[measures, queries]``.

    Raises:
        InputError: a query has no positive, or qrels and ranking are of different queries.
    """
    queries = same_queries(qrels, ranking)
    refuse_without_positives(qrels)
    values = np.zeros((len(measures), queries))
    for query in range(queries):
        judged = slice(qrels.offsets[query], qrels.offsets[query + 1])
        grade_of = dict(zip(qrels.rows[judged].tolist(), qrels.grades[judged].tolist(), strict=True))
        retrieved = ranking.rows[ranking.offsets[query] : ranking.offsets[query + 1]].tolist()
        gains = np.array([grade_of.get(row, 0) for row in retrieved], dtype=np.float64)
        ideal = np.sort(np.array(list(grade_of.values()), dtype=np.float64))[::-1]
        for number, measure in enumerate(measures):
            values[number, query] = _MEASURES[measure.name](gains, ideal, measure.cutoff)
    return values


def average_precision(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Sum of the precision at each relevant rank, over the number of positives."""
    hits = gains[:cutoff] > 0
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precisions[hits].sum() / len(ideal))


def ndcg(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Discounted gain of the ranking over that of the best possible one (Järvelin & Kekäläinen 2002)."""
    return _dcg(gains[:cutoff]) / _dcg(ideal[:cutoff])


def recall(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Share of the positives that were retrieved."""
    return _hits(gains, cutoff) / len(ideal)


def precision(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Relevant papers over ``cutoff``, even where fewer were retrieved; uncut: over the papers retrieved."""
    del ideal
    ranks = len(gains) if cutoff is None else cutoff
    return _hits(gains, cutoff) / ranks if ranks else 0.0


def reciprocal_rank(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """One over the rank of the first relevant paper; 0 where there is none."""
    del ideal
    relevant = np.flatnonzero(gains[:cutoff] > 0)
    return 1.0 / (int(relevant[0]) + 1) if len(relevant) else 0.0


def hit_rate(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Whether any relevant paper was retrieved."""
    del ideal
    return float(_hits(gains, cutoff) > 0)


def r_precision(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Precision at the rank that equals the number of positives."""
    del cutoff
    return precision(gains, ideal, len(ideal))


def f1(gains: Gains, ideal: Gains, cutoff: int | None) -> float:
    """Harmonic mean of precision and recall."""
    p, r = precision(gains, ideal, cutoff), recall(gains, ideal, cutoff)
    return 2 * p * r / (p + r) if p + r else 0.0


def _hits(gains: Gains, cutoff: int | None) -> int:
    return int(np.count_nonzero(gains[:cutoff] > 0))


def _dcg(gains: Gains) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


_MEASURES: dict[str, Callable[[Gains, Gains, int | None], float]] = {
    "map": average_precision,
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "mrr": reciprocal_rank,
    "hit_rate": hit_rate,
    "r-precision": r_precision,
    "f1": f1,
}
