"""Points in float32, in bfloat16 and in whole numbers, and what makes products of whole numbers closer.

:mod:`pipeline.retrieve.dense.frame` says why, and how close they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.retrieve.dense import lanes
from pipeline.retrieve.dense.pairs import Doubles
from pipeline.retrieve.dense.products import Points
from pipeline.retrieve.toplists import Positions

Floats = npt.NDArray[np.float32]
Kind = np.dtype[Any]
FLOAT: Kind
HALF: Kind
WHOLE: Kind
FLOAT, HALF, WHOLE = np.dtype(np.float32), np.dtype(np.uint16), np.dtype(np.int8)
"""Kinds of points: as they are, in bfloat16 (by its bits), in whole numbers."""


class Rounded(NamedTuple):
    """Points of the queries.

    Attributes:
        points: ``[q, d]``, of one kind.
        grains: float32 ``[q]``, the units of whole numbers, 1 for other points.
        lost: float64 ``[q]``, the share of its length that each point lost by rounding.
        rests: int8 ``[q, d]``, what whole numbers lost, counted; ``[0, d]`` for other points.
        left: the largest share of its length that a point loses even so; 0 for other points.
    """

    points: Points
    grains: Floats
    lost: Doubles
    rests: Points
    left: float = 0.0


class Closer(NamedTuple):
    """What makes products of candidates' whole numbers closer (:func:`pipeline.retrieve.dense.sieves.sieve`).

    Attributes:
        wholes: int8 ``[m, d]``.
        rests: int8 ``[m, d]``, what they lose, counted.
        spread: float32 ``[m]``, what a product can still lack, as a share of the query's length.
    """

    wholes: Points
    rests: Points
    spread: Floats


class Parts(NamedTuple):
    """What makes products of queries' whole numbers closer.

    Attributes:
        points: int8 ``[q, 2 w]``, what they lose, counted, and from column ``w`` on the whole numbers themselves: what
            the others of :class:`Closer` are multiplied by. ``w`` is a multiple of 64, what is over is 0.
        totals: int32 ``[q, 2]``, 128 times the sums of all ``points`` and of the whole numbers: what products with
            numbers so much larger have more.
        lengths: float32 ``[q]``, of the points as they are.
    """

    points: Points
    totals: npt.NDArray[np.int32]
    lengths: Floats

    @classmethod
    def of(cls, rounded: Rounded, lengths: Floats) -> Parts:
        """Return those of queries in whole numbers, of points so long."""
        count, dimension = rounded.points.shape
        width = -(-dimension // lanes.STRIDE) * lanes.STRIDE
        points = np.zeros((count, 2, width), WHOLE)
        points[:, 0, :dimension], points[:, 1, :dimension] = rounded.rests, rounded.points
        sums = [points.sum(axis=(1, 2), dtype=np.int32), points[:, 1].sum(axis=1, dtype=np.int32)]
        return cls(points.reshape(count, 2 * width), 128 * np.stack(sums, axis=1), lengths)

    @classmethod
    def none(cls, dimension: int) -> Parts:
        """Return those of no queries."""
        nothing = np.empty((0, dimension), WHOLE)
        return cls.of(Rounded(nothing, np.empty(0, np.float32), np.empty(0), nothing), np.empty(0, np.float32))

    def some(self, queries: Positions) -> Parts:
        """Return those of some queries."""
        return Parts(self.points[queries], self.totals[queries], self.lengths[queries])
