"""Canonical scores: their definition by tensor operations, and a kernel for the CPU.

A canonical score is computed in float64 from the stored values, which float64 represents exactly, and rounded once to
float32. Its terms are added in one fixed order (:func:`fixed_sum`), so equal vectors tie exactly and all engines agree
bit by bit. Tensor operations are separate kernels; fused ones would round less often. So GPU and CPU give the same
bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.compiled import compiled
from pipeline.retrieve.base import Metric, Vectors

SUMS = 64

CODES: dict[Metric, int] = {"l2": 0, "inner_product": 1, "cosine": 2}
"""Codes of metrics in the kernel."""

_SHARE = 4_096
"""Minimum pairs of a chunk that one thread scores."""


class Side(NamedTuple):
    """The vectors of queries or of candidates, float32 ``[n, d]``, on any device.

    ``offsets``, int64 ``[papers + 1]``, are the starts of the vectors of each paper; None: one vector per paper.
    """

    vectors: Tensor
    offsets: Tensor | None = None

    def spans(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the start and the number of the vectors of papers, both int64 ``[n]``."""
        if self.offsets is None:
            return papers, torch.ones_like(papers)
        return self.offsets[papers], self.offsets[papers + 1] - self.offsets[papers]


def fixed_sum(terms: Tensor) -> Tensor:
    """Return the row sums of float64 ``[n, d]`` in the fixed order, ``[n]``.

    Of :data:`SUMS` partial sums, number ``l`` adds the terms ``l, l + SUMS, l + 2 SUMS, ...`` in that order. Then the
    partial sums are added pairwise by halves.
    """
    sums = terms.new_zeros(len(terms), SUMS)
    for chunk in terms.split(SUMS, dim=1):
        sums[:, : chunk.shape[1]] += chunk
    width = SUMS
    while width > 1:
        width //= 2
        sums[:, :width] += sums[:, width : 2 * width]
    return sums[:, 0]


def lengths(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors ``[n, d]``, summed in the fixed order, float64 ``[n]``."""
    return torch.cat([_root(fixed_sum(chunk.double() ** 2)) for chunk in vectors.split(_SHARE)])


def _root(squares: Tensor) -> Tensor:
    """Return correctly rounded square roots: torch's are so on a GPU, but not on the CPU, where it uses MKL."""
    if squares.device.type != "cpu":
        return squares.sqrt()
    with np.errstate(invalid="ignore"):  # check_lengths refuses NaN
        return torch.from_numpy(np.sqrt(squares.numpy()))


def tensor_scores(
    metric: Metric,
    queries: Side,
    norms: Tensor,
    papers: Side,
    owners: Tensor,
    positions: Tensor,
) -> Tensor:
    """Return canonical scores before rounding, float64 ``[n]``: the best pair of vectors of each pair of papers.

    Pairs are of queries ``owners`` and candidates ``positions``, int64 ``[n]``; ``norms``, float64, are the lengths of
    the queries' vectors, read for cosine only.
    """
    (q_start, q_count), (x_start, x_count) = queries.spans(owners), papers.spans(positions)
    counts = q_count * x_count
    pair = torch.repeat_interleave(torch.arange(len(owners), device=owners.device), counts)
    index = torch.arange(len(pair), device=owners.device) - (counts.cumsum(0) - counts)[pair]
    query_vector, paper_vector = q_start[pair] + index // x_count[pair], x_start[pair] + index % x_count[pair]
    q, x = queries.vectors[query_vector].double(), papers.vectors[paper_vector].double()
    scores = -fixed_sum((q - x) ** 2) if metric == "l2" else fixed_sum(q * x)
    if metric == "cosine":
        length = norms[query_vector] * _root(fixed_sum(x**2))
        scores = torch.where(length > 0, scores / length, 0.0)
    return torch.segment_reduce(scores, "max", lengths=counts) if len(pair) > len(owners) else scores


def score_pairs(
    metric: Metric, queries: Side, norms: Tensor, papers: Side, owners: Tensor, positions: Tensor, workers: int = 1
) -> Tensor:
    """Return the same as :func:`tensor_scores`, by a compiled kernel in ``workers`` threads on the CPU."""
    bucket = positions.numpy() // (len(papers.vectors) // 65_536 + 1)  # 16 bits are sorted by radix
    order = np.argsort(bucket.astype(np.uint16), kind="stable")  # reads each candidate from memory once
    scores: npt.NDArray[np.float64] = np.empty(len(order))
    q, x = queries.vectors.numpy(), papers.vectors.numpy()
    offsets, query_offsets = (
        np.empty(0, np.int64) if side.offsets is None else side.offsets.numpy() for side in (papers, queries)
    )

    def score_chunk(chunk: npt.NDArray[np.int64]) -> None:
        pairs = owners.numpy()[chunk], positions.numpy()[chunk]
        scores[chunk] = pair_scores(CODES[metric], q, norms.numpy(), x, *pairs, offsets, query_offsets)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(score_chunk, np.array_split(order, max(min(4 * workers, len(order) // _SHARE), 1))))
    return torch.from_numpy(scores)


def best_pair_score(query: Vectors, paper: Vectors, metric: Metric) -> np.float32:
    """Return the canonical score of two papers: their best pair of vectors ``[n, d]`` and ``[m, d]``."""
    sides = [
        Side(torch.from_numpy(np.asarray(vectors, np.float32)), torch.tensor([0, len(vectors)]))
        for vectors in (query, paper)
    ]
    zero = torch.zeros(1, dtype=torch.int64)
    scores = score_pairs(metric, sides[0], lengths(sides[0].vectors), sides[1], zero, zero)
    return np.float32(scores[0]) + np.float32(0)  # of the two zeros, the positive one


def alike(queries: Vectors, vectors: Vectors, metric: Metric) -> float:
    """Return the share of candidates ``[n, d]`` that their vectors, or scores in float32, do not tell apart.

    It is that of repeated vectors, or the mean over queries ``[q, d]`` of different scores that are rounded to equal
    ones, whichever is more: 0 if every candidate can be ranked by its own score. Vectors far from the origin, and those
    whose squares underflow, have equal scores.
    """
    q, x = (torch.from_numpy(np.asarray(side, np.float32)) for side in (queries, vectors))
    if not (len(q) and len(x)):
        return 0.0
    owners, positions = map(torch.from_numpy, np.divmod(np.arange(len(q) * len(x)), len(x)))
    scores = score_pairs(metric, Side(q), lengths(q), Side(x), owners, positions).numpy().reshape(len(q), len(x))
    told = [len(np.unique(row.astype(np.float32))) / len(np.unique(row)) for row in scores]
    return 1.0 - min(len(np.unique(x.numpy(), axis=0)) / len(x), float(np.mean(told)))


@compiled
def pair_scores(
    code: Any, queries: Any, norms: Any, vectors: Any, owners: Any, positions: Any, offsets: Any, query_offsets: Any
) -> Any:
    """Return the same as :func:`score_pairs`, for arrays; empty offsets: one vector per paper."""
    scores = np.empty(len(owners))
    sums = np.empty(SUMS)
    for i in range(len(owners)):
        x_start, x_end, q_start, q_end = positions[i], positions[i] + 1, owners[i], owners[i] + 1
        if len(offsets):
            x_start, x_end = offsets[positions[i]], offsets[positions[i] + 1]
            q_start, q_end = query_offsets[owners[i]], query_offsets[owners[i] + 1]
        best = -np.inf
        for q in range(q_start, q_end):
            for x in range(x_start, x_end):
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
    """Return the squared distance or the inner product of two vectors, summed in the fixed order."""
    for lane in range(SUMS):
        sums[lane] = 0.0
    for start in range(0, len(a), SUMS):
        left, right = a[start : start + SUMS], b[start : start + SUMS]
        if squared:
            for lane in range(len(left)):
                difference = np.float64(left[lane]) - np.float64(right[lane])
                sums[lane] += difference * difference
        else:
            for lane in range(len(left)):
                sums[lane] += np.float64(left[lane]) * np.float64(right[lane])
    width = SUMS
    while width > 1:
        width //= 2
        for lane in range(width):
            sums[lane] += sums[lane + width]
    return sums[0]
