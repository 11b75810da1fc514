"""The space in which a fast, approximate pass compares vectors, and how far off it can be.

A pass in float32 loses what the vectors have in common: two distances of 1 between vectors of length 1,000 drown in
the rounding of a million. Moving the origin to the candidates' mean changes no order (an L2 distance not at all, an
inner product by the same amount for every candidate), so the pass works there, and its error is small against the
spread of the scores.

With ``u = 2**-24`` and ``g(n) = n u / (1 - n u)`` (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
sections 3.1 and 3.5), a float32 product of two vectors is off by at most ``g(d) |a||b|``, in whatever order its terms
are added, fused or not. :meth:`Frame.bound` adds to that the rounding of the moved vectors, of the lengths and of the
final sums, each at most a few ``u`` times the same products: they fit in ``g(d + 8)``. A bound that a pass is ever seen
to break (a product in less than float32) is an error, not a wrong result: :func:`Frame.check`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StageError
from pipeline.core.order import Rows
from pipeline.retrieve import kernels
from pipeline.retrieve.base import Block, Metric, Vectors

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

CODES: dict[Metric, int] = {"l2": kernels.L2, "inner_product": kernels.INNER_PRODUCT, "cosine": kernels.COSINE}

_UNIT = 2.0**-24
_TOO_LARGE = 1e18
"""Lengths from here on could overflow float32 when squared."""

_TILE = 4_096
_SAMPLE = 16_384


@dataclass(frozen=True)
class FramedBlock:
    """Candidates, as they are stored and as the pass sees them.

    Attributes:
        rows: uint32 ``[m]``.
        vectors: float32 ``[m, d]``, the stored values.
        norms: float64 ``[m]``, lengths of ``vectors``.
        points: float32 ``[m, d]``, in the frame; overwritten by the frame's next block.
        bias: float32 ``[m]``, added to the products.
        radius: greatest length of a point.
    """

    rows: Rows
    vectors: Floats
    norms: Doubles
    points: Floats
    bias: Floats
    radius: float

    def __len__(self) -> int:
        return len(self.rows)


class Frame:
    """Queries and origin of one search.

    The canonical score of a pair is about ``scale * (point . point + bias) + shift``, within :meth:`bound`.

    Attributes:
        queries: float32 ``[q, d]``, the stored values.
        norms: float64 ``[q]``, lengths of ``queries``.
        points: float32 ``[q, d]``, in the frame.
        scale: 2 for L2, otherwise 1.
        shift: float64 ``[q]``.
    """

    def __init__(self, queries: Vectors, metric: Metric, sample: Vectors) -> None:
        """Place the origin at the mean of ``sample`` (some candidates)."""
        if metric not in CODES:
            raise InputError(f"there is no metric {metric!r}", f"Choose one of: {', '.join(CODES)}")
        if queries.ndim != 2 or queries.shape[1] == 0:
            raise InputError(f"the queries have shape {queries.shape}", "Give one vector a query")
        self.metric = metric
        self.queries = np.ascontiguousarray(queries, np.float32)
        self.norms = lengths(self.queries, "query")
        self.dimension = self.queries.shape[1]
        self._origin = np.zeros(self.dimension, np.float32)
        self._buffer = np.empty((0, self.dimension), np.float32)
        self._origin = self._mean(_stored(sample[:_SAMPLE], self.dimension))
        if metric == "l2":
            self.points, self.scale = self.queries - self._origin, 2.0
            self._point_norms = lengths(self.points, "query")
            self.shift: Doubles = -(self._point_norms**2)
        else:
            self.points, self.scale = self.queries, 1.0
            if metric == "cosine":
                self.points = np.empty_like(self.queries)
                _normalise(self.queries, self.norms, np.zeros(self.dimension, np.float32), self.points)
            self._point_norms = lengths(self.points, "query")
            self.shift = self.points.astype(np.float64) @ self._origin.astype(np.float64)
        self._origin_norm = float(np.linalg.norm(self._origin.astype(np.float64)))

    def block(self, block: Block) -> FramedBlock:
        """Return a block of candidates in the frame.

        Raises:
            InputError: its shape does not fit, or a vector is not finite or too large.
        """
        rows, matrix = block
        vectors = _stored(matrix, self.dimension)
        if len(rows) != len(vectors):
            raise InputError(f"a block has {len(rows)} rows and {len(vectors)} vectors", "Give one vector a row")
        norms = lengths(vectors, "candidate", rows)
        bias = np.zeros(len(rows), np.float32)
        if len(self._buffer) < len(vectors):
            self._buffer = np.empty_like(vectors)
        points = self._buffer[: len(vectors)]
        if self.metric == "cosine":
            _normalise(vectors, norms, self._origin, points)
        else:
            np.subtract(vectors, self._origin, out=points)
        point_norms = lengths(points, "candidate", rows)
        if self.metric == "l2":
            bias = (-0.5 * point_norms**2).astype(np.float32)
        return FramedBlock(rows, vectors, norms, points, bias, float(point_norms.max(initial=0.0)))

    def bound(self, radius: float) -> Doubles:
        """Return how far the pass can be from the canonical score before its rounding, float64 ``[q]``.

        Args:
            radius: greatest length of the candidates' points.
        """
        steps = self.dimension + 8
        relative = steps * _UNIT / (1 - steps * _UNIT)
        if self.metric == "l2":
            bound: Doubles = relative * (self._point_norms + radius) ** 2
        else:
            in_float64 = self.dimension * 2.0**-50 * (radius + self._origin_norm)
            bound = self._point_norms * (relative * radius + in_float64)
            if self.metric == "cosine":
                bound += 2 * _UNIT  # the query's own length, rounded
        bound += self.dimension * 2.0**-124  # products that underflow
        return bound

    def check(self, estimate: Doubles, canonical: Doubles, bound: Doubles) -> None:
        """Refuse a pass that is further off than it can be.

        Raises:
            StageError: it is: the machine multiplies in less than float32, say.
            InputError: a score is beyond float32.
        """
        if np.abs(canonical).max(initial=0.0) > np.finfo(np.float32).max:
            raise InputError("a score is beyond float32: the vectors are too large", "Scale them down")
        worst = float((np.abs(estimate - canonical) / bound).max(initial=0.0))
        if worst > 1.0:
            raise StageError(
                f"the fast pass is {worst:.3g} times as far from the exact scores as float32 arithmetic can be",
                "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with the engine 'exact' on the CPU",
            )

    def _mean(self, sample: Floats) -> Floats:
        points = sample
        if self.metric == "cosine":
            points = np.empty_like(sample)
            _normalise(sample, lengths(sample, "candidate"), np.zeros(self.dimension, np.float32), points)
        mean: Floats = points.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean


def lengths(vectors: Floats, whose: str, rows: Rows | None = None) -> Doubles:
    """Return the lengths of float32 ``[n, d]``, float64 ``[n]``.

    Raises:
        InputError: one is not finite or too large; it is named.
    """
    norms: Doubles = np.empty(len(vectors))
    kernels.squared_norms(vectors, norms)
    np.sqrt(norms, out=norms)
    wrong = np.flatnonzero(~(norms < _TOO_LARGE))
    if len(wrong):
        name = wrong[0] if rows is None else f"at row {rows[wrong[0]]}"
        raise InputError(
            f"{len(wrong)} {whose} vectors are not finite or longer than {_TOO_LARGE:g}, the first is {whose} {name}",
            "Embed these texts again; a NaN often comes from half precision",
        )
    return norms


def _stored(matrix: Vectors, dimension: int) -> Floats:
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise InputError(
            f"candidates have shape {matrix.shape}, queries {dimension} dimensions", "Embed both with the same encoder"
        )
    return np.ascontiguousarray(matrix, np.float32)


def _normalise(vectors: Floats, norms: Doubles, origin: Floats, out: Floats) -> None:
    """Write the vectors at length 1 (zero stays zero) less the origin, rounded once."""
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    for start in range(0, len(vectors), _TILE):
        part = vectors[start : start + _TILE] * inverse[start : start + _TILE, None]
        np.subtract(part, origin, out=out[start : start + _TILE], casting="same_kind")
