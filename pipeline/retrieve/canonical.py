"""Canonical scores: their definition by operations on tensors, and a kernel for the CPU.

A canonical score is computed in float64 from the stored values, each exactly representable there, and rounded once to
float32. Its terms are added in one fixed order (:func:`fixed_sum`), so that equal vectors tie exactly and no engine can
differ in a bit. Each operation on tensors is a kernel of its own, so none is fused with the next, which would round
once less: the bits on a GPU are those on the CPU.
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
"""Metrics as the kernel knows them."""

_SHARE = 4_096
"""Pairs that a thread scores at once, at least."""


class Side(NamedTuple):
    """The vectors of queries or of candidates.

    Attributes:
        vectors: float32 ``[n, d]``, on any device.
        offsets: int64 ``[papers + 1]``, where the vectors of each paper start; None: each has one.
    """

    vectors: Tensor
    offsets: Tensor | None = None

    def spans(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the vectors of some papers start, and how many each has, int64 ``[n]`` both."""
        if self.offsets is None:
            return papers, torch.ones_like(papers)
        return self.offsets[papers], self.offsets[papers + 1] - self.offsets[papers]


def fixed_sum(terms: Tensor) -> Tensor:
    """Return the sum of each row of float64 ``[n, d]``, added in the fixed order, ``[n]``.

    Of :data:`SUMS` partial sums, number ``l`` adds the terms ``l, l + SUMS, l + 2 SUMS, ...`` in that order, and the
    partial sums are folded in halves.
    """
    sums = terms.new_zeros(len(terms), SUMS)
    for part in terms.split(SUMS, dim=1):
        sums[:, : part.shape[1]] += part
    width = SUMS
    while width > 1:
        width //= 2
        sums[:, :width] += sums[:, width : 2 * width]
    return sums[:, 0]


def lengths(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors ``[n, d]``, added in the fixed order, float64 ``[n]``."""
    return torch.cat([_root(fixed_sum(part.double() ** 2)) for part in vectors.split(_SHARE)])


def _root(squares: Tensor) -> Tensor:
    """Return square roots, rounded once: torch's are on a GPU, but not on the CPU, where MKL takes them."""
    if squares.device.type != "cpu":
        return squares.sqrt()
    with np.errstate(invalid="ignore"):  # NaN is refused later, by name
        return torch.from_numpy(np.sqrt(squares.numpy()))


def tensor_scores(
    metric: Metric,
    queries: Side,
    norms: Tensor,
    papers: Side,
    owners: Tensor,
    positions: Tensor,
    workers: int = 1,  # noqa: ARG001
) -> Tensor:
    """Return canonical scores before their rounding, float64 ``[n]``: of each pair of papers its best pair of vectors.

    Args:
        metric: which.
        queries: vectors of the queries.
        norms: float64, their lengths; read for cosine only.
        papers: vectors of the candidates.
        owners: int64 ``[n]``, the query of each pair.
        positions: int64 ``[n]``, its candidate.
        workers: threads, on the CPU.
    """
    (q_start, q_count), (x_start, x_count) = queries.spans(owners), papers.spans(positions)
    counts = q_count * x_count
    pair = torch.repeat_interleave(torch.arange(len(owners), device=owners.device), counts)
    number = torch.arange(len(pair), device=owners.device) - (counts.cumsum(0) - counts)[pair]
    left, right = q_start[pair] + number // x_count[pair], x_start[pair] + number % x_count[pair]
    q, x = queries.vectors[left].double(), papers.vectors[right].double()
    scores = -fixed_sum((q - x) ** 2) if metric == "l2" else fixed_sum(q * x)
    if metric == "cosine":
        length = norms[left] * _root(fixed_sum(x**2))
        scores = torch.where(length > 0, scores / length, 0.0)
    return torch.segment_reduce(scores, "max", lengths=counts) if len(pair) > len(owners) else scores


def score_pairs(
    metric: Metric, queries: Side, norms: Tensor, papers: Side, owners: Tensor, positions: Tensor, workers: int = 1
) -> Tensor:
    """Return what :func:`tensor_scores` does, on the CPU, by a kernel in threads."""
    near = positions.numpy() // (len(papers.vectors) // 65_536 + 1)  # 16 bits are sorted by radix
    order = np.argsort(near.astype(np.uint16), kind="stable")  # a candidate is read from memory once
    scores: npt.NDArray[np.float64] = np.empty(len(order))
    q, x = queries.vectors.numpy(), papers.vectors.numpy()
    offsets, query_offsets = (
        np.empty(0, np.int64) if side.offsets is None else side.offsets.numpy() for side in (papers, queries)
    )

    def share(some: npt.NDArray[np.int64]) -> None:
        pairs = owners.numpy()[some], positions.numpy()[some]
        scores[some] = pair_scores(CODES[metric], q, norms.numpy(), x, *pairs, offsets, query_offsets)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(share, np.array_split(order, max(min(4 * workers, len(order) // _SHARE), 1))))
    return torch.from_numpy(scores)


def best_pair_score(query: Vectors, paper: Vectors, metric: Metric) -> np.float32:
    """Return the canonical score of two papers: that of the best pair of their vectors ``[n, d]`` and ``[m, d]``."""
    sides = [
        Side(torch.from_numpy(np.asarray(vectors, np.float32)), torch.tensor([0, len(vectors)]))
        for vectors in (query, paper)
    ]
    first = torch.zeros(1, dtype=torch.int64)
    scores = score_pairs(metric, sides[0], lengths(sides[0].vectors), sides[1], first, first)
    return np.float32(scores[0]) + np.float32(0)  # of the two zeros, the positive one


@compiled
def pair_scores(
    code: Any, queries: Any, norms: Any, vectors: Any, owners: Any, positions: Any, offsets: Any, query_offsets: Any
) -> Any:
    """Return what :func:`score_pairs` does, of arrays; offsets ``[0]``: each paper has one vector."""
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
