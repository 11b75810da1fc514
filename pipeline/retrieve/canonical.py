"""Canonical scores: their definition, a compiled kernel with the same bits, and the searches that are right by reading.

A canonical score is computed in float64 from the stored values, each exactly representable there, and rounded once to
float32. Its terms are added in one fixed order, so that equal vectors tie exactly and no engine can differ in a bit:
of :data:`SUMS` partial sums, number ``l`` adds the terms ``l, l + SUMS, l + 2 SUMS, ...`` in that order, and the
partial sums are folded in halves. A vector processor can add in this order as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core import order
from pipeline.core.compiled import compiled
from pipeline.core.order import Rows, Scores
from pipeline.retrieve.base import Exclusions, Metric, Ranking, Vectors

SUMS = 64

CODES: dict[Metric, int] = {"l2": 0, "inner_product": 1, "cosine": 2}
"""Metrics as the kernel knows them."""


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


@compiled
def pair_scores(
    code: Any, queries: Any, norms: Any, vectors: Any, owners: Any, positions: Any, offsets: Any, query_offsets: Any
) -> Any:
    """Return canonical scores of pairs before their rounding, float64 ``[n]``: of each the best pair of its vectors.

    Args:
        code: of the metric (:data:`CODES`).
        queries: float32 ``[q, d]``.
        norms: float64 ``[q]``, their lengths; read for cosine only.
        vectors: float32 ``[m, d]``.
        owners: int64 ``[n]``, the query of each pair.
        positions: int64 ``[n]``, its candidate.
        offsets: int64, where the vectors of each candidate start; ``[0]``: each has one.
        query_offsets: int64, the same of queries.
    """
    scores = np.empty(len(owners))
    sums = np.empty(SUMS)
    for i in range(len(owners)):
        first, last, start, end = positions[i], positions[i] + 1, owners[i], owners[i] + 1
        if len(offsets):
            first, last = offsets[positions[i]], offsets[positions[i] + 1]
            start, end = query_offsets[owners[i]], query_offsets[owners[i] + 1]
        best = -np.inf
        for q in range(start, end):
            for x in range(first, last):
                score = _sum(queries[q], vectors[x], sums, code == 0)
                if code == 0:
                    score = -score
                elif code == 2:
                    length = norms[q] * np.sqrt(_sum(vectors[x], vectors[x], sums, False))
                    score = score / length if length > 0.0 else 0.0
                best = max(best, score)
        scores[i] = best
    return scores


@compiled
def _sum(a: Any, b: Any, sums: Any, squared: Any) -> Any:
    """Return the squared distance or the inner product of two vectors, added in the fixed order."""
    for place in range(SUMS):
        sums[place] = 0.0
    for start in range(0, len(a), SUMS):
        left, right = a[start : start + SUMS], b[start : start + SUMS]
        if squared:
            for place in range(len(left)):
                difference = np.float64(left[place]) - np.float64(right[place])
                sums[place] += difference * difference
        else:
            for place in range(len(left)):
                sums[place] += np.float64(left[place]) * np.float64(right[place])
    width = SUMS
    while width > 1:
        width //= 2
        for place in range(width):
            sums[place] += sums[place + width]
    return sums[0]


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
