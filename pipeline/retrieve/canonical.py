"""Canonical scores: their definition, and the searches that are right by reading.

A canonical score is computed in float64 from the stored values, each exactly representable there, and rounded once to
float32. Its terms are added in one fixed order, so that equal vectors tie exactly and no engine can differ in a bit:
of :data:`SUMS` partial sums, number ``l`` adds the terms ``l, l + SUMS, l + 2 SUMS, ...`` in that order, and the
partial sums are folded in halves. :mod:`pipeline.retrieve.pairs` has the fast forms, with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core import order
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
    queries: Vectors, rows: Rows, matrix: Vectors, metric: Metric, depth: int, excluded: Exclusions
) -> Ranking:
    """Rank every candidate for every query, one query after the other."""
    offsets, removed = excluded
    best: list[tuple[Rows, Scores]] = []
    for number, query in enumerate(queries):
        allowed = ~np.isin(rows, removed[offsets[number] : offsets[number + 1]])
        scores = canonical_scores(query, matrix[allowed], metric)
        chosen = order.best(scores, rows[allowed], depth)
        best.append((rows[allowed][chosen], scores[chosen]))
    counts = np.array([len(r) for r, _ in best], np.int64)
    return Ranking.from_counts(counts, np.concatenate([r for r, _ in best]), np.concatenate([s for _, s in best]))


def brute_force_groups(
    queries: Sequence[Vectors], rows: Rows, groups: Sequence[Vectors], metric: Metric, depth: int, excluded: Exclusions
) -> Ranking:
    """Rank every candidate by the best pair of its vectors and the query's; one row and one matrix a candidate."""
    offsets, removed = excluded
    best: list[tuple[Rows, Scores]] = []
    for number, several in enumerate(queries):
        allowed = np.flatnonzero(~np.isin(rows, removed[offsets[number] : offsets[number + 1]]))
        scores = np.array(
            [max(canonical_scores(query, groups[n], metric).max() for query in several) for n in allowed.tolist()],
            np.float32,
        )
        chosen = order.best(scores, rows[allowed], depth)
        best.append((rows[allowed][chosen], scores[chosen]))
    counts = np.array([len(r) for r, _ in best], np.int64)
    return Ranking.from_counts(counts, np.concatenate([r for r, _ in best]), np.concatenate([s for _, s in best]))
