"""Fast estimates of scores by matrix products, with a proven bound on their error.

Let ``c`` be the mean of the first candidates, ``b`` a candidate less ``c`` (for cosine, scaled to length 1 before) and
``a`` a query (less ``c`` for L2). The canonical score is ``scale * e + shift``, where each query has its ``shift`` and

    L2: ``e = a.b - |b|^2 / 2``        inner product, cosine: ``e = a.b``

Moving the origin changes no order, and makes the errors small beside the differences of scores. With ``u = 2**-24`` and
``g = n u / (1 - n u)`` a float32 product of ``n`` terms is off by at most ``g |a||b|``, in whatever order the terms are
added (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). With ``n = d + 24`` this also covers
the rounding of ``a``, ``b``, of lengths, of ``|b|^2 / 2`` (at most ``g |b|^2``), of a length taken in float32 (cosine,
at most ``g |a|``) and of the few additions of the filter. Products of bfloat16 vectors ``a'``, ``b'`` are exact before
they are added in float32, and by Cauchy and Schwarz

    ``|a.b - a'.b'| <= |a||b - b'| + |a - a'||b'|``

where the lengths on the right are computed, not assumed. A product stored in bfloat16 loses up to ``2**-8`` of itself
more. Small constants cover underflow. So every pair has ``|estimate - e| <= length * spread + extra + loss |product|``,
which :meth:`pipeline.retrieve.search.Search.rescore` checks against every canonical score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pipeline.core.compiled import compiled
from pipeline.core.errors import InputError, nearest
from pipeline.core.order import Rows
from pipeline.retrieve.base import Metric, Vectors
from pipeline.retrieve.canonical import CODES, SUMS

Floats = npt.NDArray[np.float32]

_TOO_LONG = 1e18
"""Lengths from here on could overflow float32 when squared."""

_SAMPLE = 512
"""Candidates whose mean is the origin."""

_SHORT = 2.0**-50
"""Lengths below this are computed in float64: their squares underflow float32."""

_TINY = 2.0**-120
"""More than underflow can lose of a term."""

_STORED = 2.0**-8 * (1 + 2.0**-6)
"""What a product stored in bfloat16 can have lost, as a share of what is stored."""


class TileVectors(NamedTuple):
    """Candidates ready for products.

    Attributes:
        points: float32 or bfloat16 ``[m, d]``.
        bias: float32 ``[m]``, added to the products.
        spread: float32 ``[m]``, times a query's length: an error bound.
        extra: float32 ``[m]``, added to that.
    """

    points: torch.Tensor
    bias: torch.Tensor
    spread: torch.Tensor
    extra: torch.Tensor


class ScoreBounds:
    """Where the queries and candidates of one search are compared; :class:`pipeline.retrieve.estimates` has the terms.

    Attributes:
        queries: float32 ``[q, d]``, as stored.
        norms: float64 ``[q]``, their lengths, added in the canonical order.
        points: float32 or bfloat16 ``[q, d]``, for products.
        length: float32 ``[q]``, of the points, rounded up.
        scale: 2 for L2, otherwise 1.
        shift: float64 ``[q]``.
        loss: share of a stored product that its rounding can change.
    """

    def __init__(
        self, queries: Floats, norms: npt.NDArray[np.float64], metric: Metric, sample: Floats, rows: Rows, *, low: bool
    ) -> None:
        """Place the origin at the mean of ``sample``, whose rows are ``rows``; ``low``: products are of bfloat16."""
        dimension = queries.shape[1]
        self.queries, self.norms, self.metric, self.low = queries, norms, metric, low
        self._relative = (dimension + 24) * 2.0**-24 / (1 - (dimension + 24) * 2.0**-24)
        _check_lengths(norms, "query", None)
        step = -(-len(sample) // _SAMPLE) or 1
        some = sample[::step].astype(np.float64)
        lengths = np.linalg.norm(some, axis=1)
        _check_lengths(lengths, "candidate", rows[::step])
        a = queries.astype(np.float64)
        if metric == "cosine":
            some = _divided(some, lengths)
            a = _divided(a, norms)
        origin = some.mean(axis=0).astype(np.float32)
        self._origin_length = float(np.linalg.norm(origin.astype(np.float64)))
        if metric == "l2":
            self.scale = 2.0
            a = a - origin
            self.shift = -(a**2).sum(axis=1)
        else:
            self.scale = 1.0
            self.shift = a @ origin.astype(np.float64)
        length = np.linalg.norm(a, axis=1)
        self.points = torch.from_numpy(a.astype(np.float32)).to(torch.bfloat16 if low else torch.float32)
        lost = np.linalg.norm(a - self.points.double().numpy(), axis=1)
        self._lost = float((_divided(lost[:, None], length)).max(initial=0.0))
        self.length: Floats = (length * (1 + 2.0**-20) + dimension * _TINY).astype(np.float32)
        self._origin = torch.from_numpy(origin)
        self.loss = _STORED if low else 0.0

    def on(self, device: torch.device) -> ScoreBounds:
        """Move the queries and the origin to a device and return self."""
        self.points, self._origin = self.points.to(device), self._origin.to(device)
        return self

    def place(self, vectors: torch.Tensor, rows: Rows) -> TileVectors:
        """Return candidates float32 ``[m, d]``, on the device of the queries, ready for products.

        Raises:
            InputError: a vector is not finite or too long; it is named by its row.
        """
        if self.metric == "cosine":
            vectors = self._normalised(vectors, rows)
        short = vectors.shape[1] ** 0.5 * 2.0**-62
        if vectors.is_cuda:
            points = vectors - self._origin
            length, rest = torch.linalg.vector_norm(points, dim=1), torch.tensor(0.0)
        else:
            points, length, rest = self._centred(vectors)
        if not bool((length < _TOO_LONG).all()):
            _check_lengths(length.double().cpu().numpy(), "candidate", rows)
        bias = -0.5 * length**2 if self.metric == "l2" else torch.zeros_like(length)
        length = length * (1 + self._relative) + short
        if self.low:
            rest = rest * (1 + self._relative) + short
        relative = self._relative
        fixed = vectors.shape[1] * (2.0**-50 * self._origin_length + _TINY)
        if self.metric == "cosine":
            fixed += 2 * relative
        spread = rest + (length + rest) * (self._lost + 2 * relative) + fixed
        extra = (relative * length if self.metric == "l2" else 0) * length + (1 + length) * vectors.shape[1] * _TINY
        return TileVectors(points, bias, spread, extra)

    def _centred(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return vectors less the origin, their lengths, and those of what rounding to bfloat16 removes."""
        count, dimension = vectors.shape
        moved = np.empty((1 if self.low else count, dimension), np.float32)
        bits = np.empty((count if self.low else 0, dimension), np.int16)
        length, rest = np.zeros(count, np.float32), np.zeros(count, np.float32)
        _centre(vectors.numpy(), self._origin.numpy(), moved, bits, length, rest)
        points = torch.from_numpy(bits).view(torch.bfloat16) if self.low else torch.from_numpy(moved)
        return points, torch.from_numpy(length), torch.from_numpy(rest)

    def _normalised(self, vectors: torch.Tensor, rows: Rows) -> torch.Tensor:
        length = torch.linalg.vector_norm(vectors, dim=1)
        if not bool((length < _TOO_LONG).all()):
            _check_lengths(length.double().cpu().numpy(), "candidate", rows)
        scaled = vectors / length[:, None]
        short = torch.nonzero(length < _SHORT)[:, 0]
        if len(short):
            some = vectors[short].double()
            lengths = torch.linalg.vector_norm(some, dim=1, keepdim=True)
            scaled[short] = torch.where(lengths > 0, some / lengths, 0.0).float()
        return scaled

    def needed(self, floors: npt.NDArray[np.float64], queries: slice | npt.NDArray[np.int64]) -> Floats:
        """Return the least ``e`` of a candidate that may enter lists with floors ``[pools, n]``, rounded down."""
        shift = self.shift[queries]
        slack = 2.0**-40 * (np.abs(np.where(np.isfinite(floors), floors, 0)) + np.abs(shift))
        needed = ((floors - shift - slack) / self.scale).astype(np.float32)
        below: Floats = np.nextafter(needed, np.float32(-np.inf))
        return below

    def bound(self, length: npt.NDArray[np.float64], radius: float) -> npt.NDArray[np.float64]:
        """Return how far ``e`` can be from what Faiss computes in float32 of points up to ``radius`` long."""
        fixed = self.points.shape[1] * (2.0**-50 * self._origin_length + _TINY)
        if self.metric == "cosine":
            fixed += 2 * self._relative
        products = 4 * self._relative * (length + radius) ** 2
        bound: npt.NDArray[np.float64] = products + length * (self._lost * radius + fixed) + 2.0**-100
        return bound

    @property
    def offset(self) -> Floats:
        """The part of a score's size that estimates do not have, float32 ``[q]``: scores round with it."""
        offset: Floats = (np.abs(self.shift) / self.scale).astype(np.float32)
        return offset


def as_stored(matrix: Vectors, dimension: int) -> Floats:
    """Return candidates as float32, or refuse those of another dimension than the queries'."""
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise InputError(
            f"candidates have shape {matrix.shape}, queries {dimension} dimensions", "Embed both with the same encoder"
        )
    return np.ascontiguousarray(matrix, np.float32)


def check_metric(metric: Metric) -> None:
    """Refuse an unknown metric."""
    if metric not in CODES:
        raise InputError(f"there is no metric {metric!r}", nearest(metric, CODES))


def _divided(vectors: npt.NDArray[np.float64], lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    quotients: npt.NDArray[np.float64] = np.divide(
        vectors, lengths[:, None], out=np.zeros_like(vectors), where=lengths[:, None] > 0
    )
    return quotients


def _check_lengths(lengths: npt.NDArray[np.float64], whose: str, rows: Rows | None) -> None:
    wrong = np.flatnonzero(~(lengths < _TOO_LONG))
    if len(wrong):
        name = wrong[0] if rows is None else f"at row {rows[wrong[0]]}"
        raise InputError(
            f"{len(wrong)} {whose} vectors are not finite or longer than {_TOO_LONG:g}, the first is {whose} {name}",
            "Embed these texts again; a NaN often comes from half precision",
        )


@compiled
def _centre(vectors: Any, origin: Any, moved: Any, bits: Any, length: Any, rest: Any) -> None:
    """Subtract the origin, round to bfloat16 and measure, in one read of the vectors.

    Args:
        vectors: float32 ``[m, d]``.
        origin: float32 ``[d]``.
        moved: float32 ``[m, d]`` to fill, or a buffer ``[1, d]`` where ``bits`` are filled.
        bits: int16 ``[m, d]`` to fill with bfloat16, nearest, ties to even; ``[0, d]``: keep float32.
        length: float32 ``[m]`` to fill with the lengths of the differences.
        rest: float32 ``[m]`` to fill with the lengths of what rounding removes.
    """
    near, sums = np.empty(len(origin), np.float32), np.empty(SUMS, np.float32)
    near_bits = near.view(np.uint32)
    for row in range(len(vectors)):
        vector, point = vectors[row], moved[row % len(moved)]
        for i in range(len(origin)):
            point[i] = vector[i] - origin[i]
        length[row] = _length(point, sums)
        if len(bits):
            exact, half = point.view(np.uint32), bits[row]
            for i in range(len(origin)):
                high = (exact[i] + np.uint32(0x7FFF) + (exact[i] >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
                half[i] = np.int16(high)
                near_bits[i] = high << np.uint32(16)
            for i in range(len(origin)):
                near[i] = point[i] - near[i]
            rest[row] = _length(near, sums)


@compiled
def _length(vector: Any, sums: Any) -> Any:
    """Return the length of a vector in float32, by partial sums that a vector processor adds at once."""
    for place in range(SUMS):
        sums[place] = 0.0
    for start in range(0, len(vector), SUMS):
        part = vector[start : start + SUMS]
        for place in range(len(part)):
            sums[place] += part[place] * part[place]
    width = SUMS
    while width > 1:
        width //= 2
        for place in range(width):
            sums[place] += sums[place + width]
    return np.sqrt(sums[0])
