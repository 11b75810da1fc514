"""Fast estimates of scores by matrix products, with a proven bound on their error.

Let ``c`` be the mean of the first candidates, ``b`` a candidate less ``c`` (for cosine, scaled to length 1 before) and
``a`` a query (for L2, twice the query less ``c``). The canonical score is ``e + shift``, where each query has its
``shift`` and

    L2: ``e = a.b - |b|^2``        inner product, cosine: ``e = a.b``

Moving the origin changes no order, and makes the errors small beside the differences of scores. With ``u = 2**-24`` and
``g = n u / (1 - n u)`` a float32 product of ``n`` terms is off by at most ``g |a||b|``, in whatever order the terms are
added (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). With ``n = d + 24`` this also covers
the rounding of ``a``, ``b``, of lengths, of ``|b|^2`` (at most ``2 g |b|^2``), of a length taken in float32 (cosine,
at most ``g |a|``) and of the few additions of the filter. Products of bfloat16 vectors ``a'``, ``b'`` are exact before
they are added in float32 (we allow four times ``n``, since tensor cores truncate sums that float32 rounds: Fasi et al.,
Numerical behavior of NVIDIA tensor cores, 2021), and by Cauchy and Schwarz

    ``|a.b - a'.b'| <= |a||b - b'| + |a - a'||b'|``,    ``|b - b'| <= 2**-8 |b|``

A product stored in bfloat16, as on the CPU, may have lost ``2**-8`` of itself. That is added to it, as is what
``|b|^2`` may be off; small constants cover underflow. So every pair has ``e - estimate <= length * spread``, which
:meth:`pipeline.retrieve.search.Search.rescore` checks against every canonical score.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.retrieve.base import Metric
from pipeline.retrieve.canonical import Side

_TOO_LONG = 1e18
"""Lengths from here on could overflow float32 when squared."""

_SHORT = 2.0**-50
"""Lengths below this are computed in float64: their squares underflow float32."""

_SAMPLE = 512
"""Candidates whose mean is the origin."""

_TINY = 2.0**-120
"""More than underflow can lose of a term."""

_ROUNDED = 2.0**-8
"""What rounding to bfloat16 changes at most, as a share."""

_STORED = _ROUNDED * (1 + 2.0**-6)
"""What storing a product in bfloat16 changes at most, as a share of what is stored."""

_SHIFTED = 2.0**-21
"""What adding a query's shift to an estimate can change, as a share of the shift."""

_DEVIATIONS = 4.0
"""By how many standard deviations of a sample's count a goal is on the safe side."""

_LINE = 32
"""Entries of a matrix in one or two lines of cache; its rows have an odd number of them."""

_ROWS = 1_024
"""Vectors that are moved, measured and rounded while they are in a processor's cache."""


class Candidates(NamedTuple):
    """A block of candidates on the device of a search.

    Attributes:
        rows: uint32 ``[m]``, in main memory.
        papers: their vectors.
        members: int64 ``[m]``, a bit for each pool a candidate is in.
    """

    rows: Rows
    papers: Side
    members: Tensor


class Placed(NamedTuple):
    """Vectors of candidates ready for products.

    Attributes:
        points: float32 or bfloat16 ``[m, d]``.
        bias: float32 ``[m]``, added to the products, with what it may be off.
        spread: float32 ``[m]``, times a query's length: an error bound.
    """

    points: Tensor
    bias: Tensor
    spread: Tensor


class Tile(NamedTuple):
    """Estimates of some candidates of a block with some queries.

    Attributes:
        positions: int64 ``[m]``, in the block.
        values: float32 ``[q, m]``, of ``e``.
        length: float32 ``[q]``, of the queries.
        spread: float32 ``[m]``, times the length: what ``e`` is at most above the value.
    """

    positions: Tensor
    values: Tensor
    length: Tensor
    spread: Tensor

    def goal(self, members: Tensor, depth: int, tiles: int) -> Tensor:
        """Return what the ``depth``-th best of a pool will hardly be below, float32 ``[q]``; -inf: no one knows.

        Args:
            members: bool ``[m]``, the pool.
            depth: of the lists.
            tiles: the block's; this one is a sample of their candidates.
        """
        mean = depth / tiles
        rank = int(np.ceil(mean + _DEVIATIONS * (mean * (1 - 1 / tiles)) ** 0.5)) + (tiles > 1)
        if rank > int(members.sum()):
            return torch.full_like(self.length, -torch.inf)
        values = self.values if bool(members.all()) else self.values[:, members]
        return values.topk(rank, sorted=False).values.amin(1)

    def above(self, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which pairs may exceed a goal float32 ``[q]``: places of queries, of candidates, and their bounds."""
        limit = goal - self.length * self.spread.amax()
        reached = self.values > limit[:, None]
        if reached.device.type == "cpu":  # a quarter of torch's time
            owner, column = map(torch.from_numpy, np.divmod(np.flatnonzero(reached.numpy()), reached.shape[1]))
        else:
            owner, column = reached.nonzero(as_tuple=True)
        return owner, column, self.values[owner, column] + self.length[owner] * self.spread[column]


def mean_of(sample: Tensor, rows: Rows, metric: Metric) -> Tensor:
    """Return the origin of a search, float32 ``[d]``: the mean of some of the first candidates ``[m, d]``."""
    step = -(-len(sample) // _SAMPLE)
    some = sample[::step].double()
    check_lengths(torch.linalg.vector_norm(some, dim=1), "candidate", rows[::step])
    return (_unit(some) if metric == "cosine" else some).mean(0).float()


class Estimates:
    """Where the queries and candidates of one search are compared.

    Where papers have several vectors, the estimate of two papers is the greatest of their pairs', shift included; it is
    off by no more than the greatest of their bounds.

    Attributes:
        points: float32 or bfloat16 ``[vectors of the queries, d]``, for products.
        length: float32, of the points, rounded up.
        shift: float64 ``[q]``; 0 where papers have several vectors.
        relative: ``g``.
    """

    def __init__(self, side: Side, metric: Metric, origin: Tensor, *, low: bool) -> None:
        """Place the queries; ``low``: products are of bfloat16."""
        self._side, self._metric, self._low, self._origin = side, metric, low, origin
        terms = (len(origin) + 24) * (4 if low else 1) * 2.0**-24
        self.relative = terms / (1 - terms)
        a, centre = side.vectors.double(), origin.double()
        if metric == "l2":
            a = a - centre
            shift, a = -(a * a).sum(1), 2 * a
        else:
            a = _unit(a) if metric == "cosine" else a
            shift = a @ centre
        self.points = a.to(torch.bfloat16 if low else torch.float32)
        length = torch.linalg.vector_norm(a, dim=1)
        off = torch.linalg.vector_norm(a - self.points.double(), dim=1)
        lost = torch.where(length > 0, off / length, 0.0).amax().item() if len(a) else 0.0
        self._rooms, self._tiny = threading.local(), len(origin) * _TINY
        self.length = (length * (1 + 2.0**-20) + self._tiny).float()
        rounded = _ROUNDED if low else 0.0
        self._spread = rounded + (1 + rounded) * (lost + 2 * self.relative)
        self._fixed = len(origin) * 2.0**-50 * float(torch.linalg.vector_norm(centre)) + self._tiny
        if metric == "cosine":
            self._fixed += 2 * self.relative
        self._shift = shift.float()
        self.shift = shift if side.offsets is None else shift.new_zeros(len(side.offsets) - 1)

    def tile(self, block: Candidates, first: int, count: int, queries: Tensor) -> Tile:
        """Return estimates of every ``count``-th candidate of a block, from ``first`` on, with some queries int64.

        A thread's next tile is written over its last.
        """
        positions = torch.arange(first, len(block.rows), count, device=self.points.device)
        if block.papers.offsets is None:
            placed = self.place(block.papers.vectors[first::count], block.rows[first::count])
            values = self.products(self.points[queries], placed)
            return Tile(positions, values, self.length[queries], placed.spread)
        (starts, counts), (firsts, several) = self._side.spans(queries), block.papers.spans(positions)
        vectors, rows = _ranges(starts, counts), block.rows[positions.cpu().numpy()].repeat(several.cpu().numpy())
        placed = self.place(block.papers.vectors[_ranges(firsts, several)], rows)
        shift = self._shift[vectors] + self._shift[vectors].abs() * _SHIFTED
        values = _greatest(self.products(self.points[vectors], placed).T + shift, several).T
        length, spread = _greatest(self.length[vectors], counts), _greatest(placed.spread, several)
        return Tile(positions, _greatest(values.contiguous(), counts), length, spread)

    def place(self, vectors: Tensor, rows: Rows) -> Placed:
        """Return candidates float32 ``[m, d]``, on the device of the queries, ready for products.

        Raises:
            InputError: a vector is not finite or too long; it is named by its row.
        """
        if self._metric == "cosine":
            length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
            check_lengths(length[:, 0], "candidate", rows)
            short = (length[:, 0] < _SHORT).nonzero()[:, 0]
            scaled = vectors / length
            scaled[short] = _unit(vectors[short].double()).float()
            vectors = scaled
        points = self._room("points", vectors.shape, self.points.dtype)
        length = vectors.new_empty(len(vectors))
        step = len(vectors) if vectors.is_cuda else _ROWS
        for some, place, measured in zip(vectors.split(step), points.split(step), length.split(step), strict=True):
            moved = torch.sub(some, self._origin, out=None if self._low else place)
            torch.linalg.vector_norm(moved, dim=1, out=measured)
            place.copy_(moved)
        check_lengths(length, "candidate", rows)
        bias = -length * length if self._metric == "l2" else torch.zeros_like(length)
        length = length * (1 + self.relative) + len(self._origin) ** 0.5 * 2.0**-62
        bias = bias * (1 - 2 * self.relative) + (1 + length) * self._tiny
        return Placed(points, bias, length * self._spread + self._fixed)

    def products(self, points: Tensor, placed: Placed) -> Tensor:
        """Return estimates of some queries' points with candidates, float32 ``[q, m]``, until the next call."""
        others = placed.points.T
        if self._low and points.is_cuda:
            return torch.mm(points, others, out_dtype=torch.float32).add_(placed.bias)
        values = self._room("values", (len(points), len(placed.bias)), torch.float32)
        if not self._low:
            step = values.shape[1] if points.is_cuda else _ROWS
            for out, bias, some in zip(
                values.split(step, 1), placed.bias.split(step), others.split(step, 1), strict=True
            ):
                torch.addmm(bias, points, some, out=out)
            return values
        values.copy_(torch.mm(points, others))
        torch.nn.functional.leaky_relu_(values, (1 - _STORED) / (1 + _STORED))
        return torch.add(placed.bias, values, alpha=1 + _STORED, out=values)

    def _room(self, name: str, shape: Sequence[int], kind: torch.dtype) -> Tensor:
        """Return a matrix in memory that the thread used before (fresh memory costs more than filling it).

        Rows that do not start at cache lines cost half a product more, rows of a power of two bytes a twentieth.
        """
        wide = (-(-shape[1] // _LINE) | 1) * _LINE
        size, rooms = shape[0] * wide, vars(self._rooms)
        if name not in rooms or rooms[name].numel() < size:
            rooms[name] = torch.empty(size, dtype=kind, device=self._origin.device)
        return rooms[name][:size].view(-1, wide)[:, : shape[1]]


def check_lengths(lengths: Tensor, whose: str, rows: Rows | None = None) -> None:
    """Refuse vectors that are not finite, or so long that their squares could overflow."""
    wrong = (~(lengths < _TOO_LONG)).nonzero()[:, 0].cpu().numpy()
    if len(wrong):
        name = wrong[0] if rows is None else f"at row {rows[wrong[0]]}"
        raise InputError(
            f"{len(wrong)} {whose} vectors are not finite or longer than {_TOO_LONG:g}, the first is {whose} {name}",
            "Embed these texts again; a NaN often comes from half precision",
        )


def _unit(vectors: Tensor) -> Tensor:
    """Return float64 ``[n, d]`` at length 1; a zero vector stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return torch.where(length > 0, vectors / length, 0.0)


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return ``starts[i], starts[i] + 1, ...``, ``counts[i]`` of them, one after the other."""
    within = torch.arange(int(counts.sum()), device=starts.device)
    return within + torch.repeat_interleave(starts - counts.cumsum(0) + counts, counts)


def _greatest(values: Tensor, counts: Tensor) -> Tensor:
    """Return the greatest of each ``counts[i]`` neighbours along the first axis."""
    return torch.segment_reduce(values, "max", lengths=counts, axis=0)
