"""Canonical scores in NumPy, and the search that is right by reading."""

import numpy as np
import numpy.typing as npt

from pipeline.core import order
from pipeline.core.csr import Groups
from pipeline.core.order import Rows, Scores
from pipeline.retrieve.base import Exclusions, Metric, Ranking, Vectors

SUMS = 64


def fixed_sum(terms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum of each row of float64 ``[n, d]``, added in the fixed order, ``[n]``."""
    count, dimension = terms.shape
    padded = np.zeros((count, -(-dimension // SUMS) * SUMS))
    padded[:, :dimension] = terms
    sums = np.zeros((count, SUMS))
    for start in range(0, padded.shape[1], SUMS):
        sums += padded[:, start : start + SUMS]
    width = SUMS
    while width > 1:
        width //= 2
        sums[:, :width] += sums[:, width : 2 * width]
    return sums[:, 0]


def canonical_scores(query: Vectors, matrix: Vectors, metric: Metric) -> Scores:
    """Return the canonical score of one query ``[d]`` with each vector of ``[m, d]``, float32 ``[m]``."""
    q, x = query.astype(np.float64), matrix.astype(np.float64)
    if metric == "l2":
        scores = -fixed_sum((q - x) ** 2)
    else:
        scores = fixed_sum(q * x)
        if metric == "cosine":
            norms = np.sqrt(fixed_sum(q[None] ** 2)) * np.sqrt(fixed_sum(x**2))
            scores = np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
    return scores.astype(np.float32) + np.float32(0)  # of the two zeros, the positive one


def brute_force(
    queries: Vectors | Groups, rows: Rows, matrix: Vectors, metric: Metric, depth: int, excluded: Exclusions
) -> Ranking:
    """Rank every candidate for every query, one query after the other, by the best pair of their vectors.

    Args:
        queries: one vector each ``[q, d]``, or groups.
        rows: uint32 ``[m]``, rising; that of a candidate with several vectors repeats.
        matrix: ``[m, d]``.
        metric: as of the engines, like the other arguments.
        depth: entries a query.
        excluded: what is removed from each query's ranking.
    """
    offsets, vectors = queries if isinstance(queries, Groups) else (np.arange(len(queries) + 1), queries)
    papers, starts = np.unique(rows, return_index=True)
    best: list[tuple[Rows, Scores]] = []
    for number in range(len(offsets) - 1):
        allowed = ~np.isin(papers, excluded[1][excluded[0][number] : excluded[0][number + 1]])
        scores = np.full(len(papers), -np.inf, np.float32)
        for query in vectors[offsets[number] : offsets[number + 1]]:
            pairs = canonical_scores(query, matrix, metric)
            np.maximum(scores, np.maximum.reduceat(pairs, starts) if len(starts) else pairs, out=scores)
        chosen = order.best(scores[allowed], papers[allowed], depth)
        best.append((papers[allowed][chosen], scores[allowed][chosen]))
    counts = np.array([len(r) for r, _ in best], np.int64)
    return Ranking.from_counts(counts, np.concatenate([r for r, _ in best]), np.concatenate([s for _, s in best]))
