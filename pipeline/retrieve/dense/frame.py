"""The space in which a fast, approximate pass compares vectors, and how far off it can be.

A pass in float32 loses what the vectors have in common: two distances of 1 between vectors of length 1,000 drown in
the rounding of a million. Moving the origin to the candidates' mean changes no order (an L2 distance not at all, an
inner product by the same amount for every candidate), so the pass works there, and its error is small against the
spread of the scores.

With ``u = 2**-24`` and ``g(n) = n u / (1 - n u)`` (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
sections 3.1 and 3.5), a float32 product of two vectors is off by at most ``g(d) |a||b|``, in whatever order its terms
are added, fused or not. :meth:`Frame.bound` adds to that the rounding of the moved vectors, of the lengths and of the
final sums, each at most a few ``u`` times the same products: they fit in ``g(d + 12)``. A bound that a pass is ever
seen to break (a product in less than float32) is an error, not a wrong result: :func:`Frame.check`.

A pass in bfloat16 multiplies rounded points ``a'``, ``b'`` instead, exactly, and adds in float32. By Cauchy and Schwarz

    ``|a.b - a'.b'| <= |a||b - b'| + |a - a'||b'|``

and the lengths of what was lost are computed, not assumed: the second term is at most ``|a|`` times the largest
``|a - a'| / |a|`` of all queries times ``|b'|``, so that one number a candidate (its ``spread``) and one a query (its
length) give the margin of a pair. A query that lost less than the worst one counts as shorter: by the largest share
that its margin with any candidate of a block can be of the worst one's, which is that of the candidate that lost most
itself. A product stored in bfloat16 (8 bits of mantissa) has lost up to 2**-8 of itself more.

A pass in whole numbers takes each point in units of 1/127 of its largest coordinate (its grain), rounded (int8), and
multiplies exactly (int32); the same inequality bounds it. The product and the two units (:attr:`FramedBlock.grains`,
:attr:`pipeline.retrieve.dense.rounded.Rounded.grains`) are multiplied in float32, which with the rounding of the
quotients is less than ``2**-19`` of the lengths' product: that is in ``spread``.

That lets several times as many pairs come near as stay, so these get closer products. What a point ``a`` loses to its
whole numbers ``a'`` is counted in parts of the grain, rounded (int8): ``a = a' + a" + e``, where ``e`` is less
than a hundredth of that. For pairs that come near ``a'.b"`` and ``a".b'`` are added, and as ``a" + e`` is what ``a'``
lost,

    ``|a.b - (a'.b' + a'.b" + a".b')| <= |a"||b"| + |e||b - f| + |a||f|``

for ``b = b' + b" + f``, where ``f`` is as small: about a ten thousandth of the lengths' product.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.core.errors import InputError, StageError
from pipeline.core.order import Rows
from pipeline.retrieve import select
from pipeline.retrieve.base import Block, Metric, Vectors
from pipeline.retrieve.dense import framing, kernels
from pipeline.retrieve.dense.pairs import Doubles, Visits
from pipeline.retrieve.dense.products import Points, aligned
from pipeline.retrieve.dense.rounded import FLOAT, HALF, WHOLE, Closer, Floats, Kind, Parts, Rounded

CODES: dict[Metric, int] = {"l2": kernels.L2, "inner_product": kernels.INNER_PRODUCT, "cosine": kernels.COSINE}

_UNIT = 2.0**-24
_TOO_LARGE = 1e18
"""Lengths from here on could overflow float32 when squared."""

_TILE = 4_096
_SAMPLE = 512


@dataclass(frozen=True)
class FramedBlock:
    """Candidates, as they are stored and as the pass sees them.

    Attributes:
        rows: uint32 ``[m]``.
        vectors: float32 ``[m, d]``, the stored values.
        norms: float64 ``[m]``, lengths of ``vectors``, where the metric is about them.
        points: ``[m, d]``, in the frame, of one of the kinds above; overwritten by the next block in the same buffer.
        grains: float32 ``[m]``, the units of whole numbers, 1 for other points.
        bias: float32 ``[m]``, added to the products.
        spread: float32 ``[m]``, what rounded points can change of a product, as a share of the query's length.
        lengths: float32 ``[q]``, what that is a share of: less than a query's length where its own point lost little.
        closer: what makes products of whole numbers closer.
        radius: greatest length of a point.
    """

    rows: Rows
    vectors: Floats
    norms: Doubles
    points: Points
    grains: Floats
    bias: Floats
    spread: Floats
    lengths: Floats
    closer: Closer
    radius: float

    def __len__(self) -> int:
        return len(self.rows)

    def score(self, frame: Frame, visits: Visits, canonical: Doubles) -> None:
        """Write the canonical scores of pairs before their rounding (:func:`kernels.score`)."""
        kernels.score(CODES[frame.metric], frame.queries, frame.norms, self.vectors, self.norms, visits, canonical)


class Frame:
    """Queries and origin of one search.

    The canonical score of a pair is about ``scale * (point . point + bias) + shift``, within :meth:`bound`.

    Attributes:
        queries: float32 ``[q, d]``, the stored values.
        norms: float64 ``[q]``, lengths of ``queries``, where the metric is about them.
        kind: of the points of most products: float32, or bfloat16.
        rounded: the queries' points by kind: ``kind``, and whole numbers where they are wanted.
        lengths: float32 ``[q]``, of the points.
        scale: 2 for L2, otherwise 1.
        shift: float64 ``[q]``.
    """

    def __init__(
        self, queries: Vectors, metric: Metric, sample: Vectors, *, low: bool = False, whole: bool = False
    ) -> None:
        """Place the origin at the mean of ``sample`` (some candidates).

        Args:
            queries: float16 or float32 ``[q, d]``.
            metric: how vectors are compared.
            sample: some candidates.
            low: whether points are wanted in bfloat16, not in float32.
            whole: whether they are wanted in whole numbers too.
        """
        if metric not in CODES:
            raise InputError(f"there is no metric {metric!r}", f"Choose one of: {', '.join(CODES)}")
        if queries.ndim != 2 or queries.shape[1] == 0:
            raise InputError(f"the queries have shape {queries.shape}", "Give one vector a query")
        self.metric: Metric = metric
        self.kind = HALF if low else FLOAT
        self.queries = np.ascontiguousarray(queries, np.float32)
        self.dimension = self.queries.shape[1]
        self._buffer: Points = np.empty((0, self.dimension), self.kind)
        nowhere = np.zeros(self.dimension, np.float32)
        self._origin = self._mean(stored(sample[:: -(-len(sample) // _SAMPLE) or 1], self.dimension))
        moved = self._move(self.queries, self._origin if metric == "l2" else nowhere, FLOAT, whose="query")
        self.norms, self._point_norms = moved.norms, moved.point_norms
        points = moved.points
        self.scale = 2.0 if metric == "l2" else 1.0
        self.shift: Doubles = -(self._point_norms**2)
        if metric != "l2":
            self.shift = points.astype(np.float64) @ self._origin.astype(np.float64)
        self._origin_norm = float(np.linalg.norm(self._origin.astype(np.float64)))
        self.lengths = framing.above(self._point_norms)
        self.rounded: dict[Kind, Rounded] = {
            FLOAT: Rounded(points, np.ones(len(points), np.float32), np.zeros(len(points)), moved.rests)
        }
        for kind in (HALF,) * low + (WHOLE,) * whole:
            self.rounded[kind] = self._round(points, kind)
        self.parts = Parts.of(self.rounded[WHOLE], self.lengths) if whole else Parts.none(self.dimension)

    def _round(self, points: Floats, kind: Kind) -> Rounded:
        nowhere = np.zeros(self.dimension, np.float32)
        moved = self._move(points, nowhere, kind, whose="query", scaled=True)
        filled = self._point_norms > 0
        lost = np.zeros(len(points))
        lost[filled] = moved.residuals[filled] / self._point_norms[filled]
        left = 0.0
        if kind == WHOLE:
            shares = zip(moved.grains[filled].tolist(), self._point_norms[filled].tolist(), strict=True)
            left = max((framing.left(grain, norm, self.dimension) / norm for grain, norm in shares), default=0.0)
        return Rounded(moved.points, moved.grains, lost, moved.rests, left)

    def block(self, block: Block, workers: int = 1) -> FramedBlock:
        """Return a block of candidates in the frame.

        Raises:
            InputError: its shape does not fit, or a vector is not finite or too large.
        """
        rows, matrix = block
        vectors = stored(matrix, self.dimension)
        if len(rows) != len(vectors):
            raise InputError(f"a block has {len(rows)} rows and {len(vectors)} vectors", "Give one vector a row")
        if len(self._buffer) < len(vectors):
            self._buffer = aligned(vectors.shape, self.kind)
        return self.place(rows, vectors, self._buffer[: len(vectors)], workers)

    def place(
        self, rows: Rows, vectors: Floats, points: Points, workers: int = 1, rests: Points | None = None
    ) -> FramedBlock:
        """Return candidates in the frame, their points of the kind of ``points`` ``[m, d]``, which is written.

        So is ``rests`` with what whole numbers lose, like them.
        """
        moved = self._move(
            vectors, self._origin, points.dtype, whose="candidate", rows=rows, out=points, rests=rests, workers=workers
        )
        bias: Floats = np.zeros(len(rows), np.float32)
        if self.metric == "l2":
            bias = (-0.5 * moved.point_norms**2).astype(np.float32)
        queries, norms, whole = self.rounded[points.dtype], moved.point_norms, points.dtype == WHOLE
        lost = queries.lost
        spread, fine = np.empty(len(rows), np.float32), np.empty(len(rows) if whole else 0, np.float32)
        most = lost.max(initial=0.0)
        own = framing.spreads(norms, moved.residuals, moved.grains, self.dimension, most, queries.left, spread, fine)
        in_units = framing.IN_UNITS if whole else 0.0
        largest = own + most * (1 + own) + in_units
        share = (own + lost * (1 + own) + in_units) / largest if largest else 1.0
        radius = float(norms.max(initial=0.0))
        return FramedBlock(
            rows,
            vectors,
            moved.norms,
            moved.points,
            moved.grains,
            bias,
            spread,
            framing.above(self._point_norms * share),
            Closer(points if whole else moved.rests, moved.rests, fine),
            radius,
        )

    def bound(self, radius: float) -> Doubles:
        """Return how far a pass in float32 can be from the canonical score before its rounding, float64 ``[q]``.

        What rounded points add is in the margins (:func:`pipeline.retrieve.dense.sieves.sieve`).

        Args:
            radius: greatest length of the candidates' points.
        """
        steps = self.dimension + 12
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

    def slack(self, bound: Doubles) -> Doubles:
        """Return how much lower than another an estimate may be, float64 ``[q]``, whose score is as high.

        Args:
            bound: float64 ``[q]``, how far off the scores are that estimates give.
        """
        return 2.0 * bound / self.scale * (1.0 + 2.0**-20)

    def check(self, estimate: Doubles, canonical: Doubles, bound: Doubles) -> None:
        """Refuse a pass that is further off than it can be.

        Args:
            estimate: float64 ``[n]``, of some pairs.
            canonical: float64 ``[n]``, their scores before they are rounded.
            bound: float64 ``[n]``, how far apart the two can be.

        Raises:
            StageError: it is: the machine multiplies in less than float32, say.
            InputError: a score is beyond float32.
        """
        worst, largest = select.furthest(estimate, canonical, bound)
        if largest > float(np.finfo(np.float32).max):
            raise InputError("a score is beyond float32: the vectors are too large", "Scale them down")
        if worst > 1.0:
            raise StageError(
                f"the fast pass is {worst:.3g} times as far from the exact scores as float32 arithmetic can be",
                "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with the engine 'exact' on the CPU",
            )

    def _mean(self, sample: Floats) -> Floats:
        points = self._move(sample, np.zeros(self.dimension, np.float32), FLOAT, whose="candidate").points
        mean: Floats = points.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def _move(
        self,
        vectors: Floats,
        origin: Floats,
        kind: Kind,
        *,
        whose: str,
        rows: Rows | None = None,
        out: Points | None = None,
        rests: Points | None = None,
        workers: int = 1,
        scaled: bool = False,
    ) -> _Moved:
        """Return vectors less an origin, for cosine at length 1 unless they are ``scaled`` already.

        Raises:
            InputError: one is not finite or too large; it is named.
        """
        count = len(vectors)
        points: Points = aligned(vectors.shape, kind) if out is None else out
        wanted = {each: points if each == kind else points[:0].astype(each) for each in (FLOAT, HALF, WHOLE)}
        if rests is None:
            rests = np.empty_like(wanted[WHOLE])
        grains = np.ones(count, np.float32)
        norms, point_norms, residuals = np.empty(count), np.empty(count), np.empty(count)

        def part(start: int) -> None:
            here = slice(start, start + _TILE)
            single, half, whole = (each[here] for each in wanted.values())
            framing.move(
                self.metric == "cosine" and not scaled,
                vectors[here],
                origin,
                single,
                half,
                whole,
                rests[here],
                grains[here],
                norms[here],
                point_norms[here],
                residuals[here],
            )

        if workers == 1 or count <= _TILE:
            for start in range(0, count, _TILE):
                part(start)
        else:
            with ThreadPoolExecutor(workers) as threads:
                list(threads.map(part, range(0, count, _TILE)))
        for squares in (norms, point_norms, residuals):
            np.sqrt(squares, out=squares)
        for lengths in (norms, point_norms):
            _refuse_wild(lengths, whose, rows)
        return _Moved(points, rests, grains, norms, point_norms, residuals)


class _Moved(NamedTuple):
    points: Points
    rests: Points
    grains: Floats
    norms: Doubles
    point_norms: Doubles
    residuals: Doubles


def _refuse_wild(lengths: Doubles, whose: str, rows: Rows | None) -> None:
    wrong = np.flatnonzero(~(lengths < _TOO_LARGE))
    if len(wrong):
        name = wrong[0] if rows is None else f"at row {rows[wrong[0]]}"
        raise InputError(
            f"{len(wrong)} {whose} vectors are not finite or longer than {_TOO_LARGE:g}, the first is {whose} {name}",
            "Embed these texts again; a NaN often comes from half precision",
        )


def stored(matrix: Vectors, dimension: int) -> Floats:
    """Return candidates as float32, or refuse those of another dimension than the queries'."""
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise InputError(
            f"candidates have shape {matrix.shape}, queries {dimension} dimensions", "Embed both with the same encoder"
        )
    return np.ascontiguousarray(matrix, np.float32)
