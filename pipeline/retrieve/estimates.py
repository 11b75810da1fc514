"""Fast estimates of scores by matrix products, with a proven error bound.

Let ``c`` be the mean of the first candidates, ``b`` a candidate minus ``c`` (for cosine, first scaled to length 1) and
``a`` a query (for L2, twice the query minus ``c``). The canonical score is ``e + shift``, where ``shift`` depends on
the query alone and

    L2: ``e = a.b - |b|^2``        inner product, cosine: ``e = a.b``

Moving the origin keeps the order, and makes errors small compared with differences of scores. With ``u = 2**-24`` and
``g = n u / (1 - n u)`` the error of a float32 product of ``n`` terms is at most ``g |a||b|``, in any order of additions
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). With ``n = d + 24`` this also covers the
rounding of ``a``, ``b``, of lengths, of ``|b|^2`` (at most ``2 g |b|^2``), of lengths in float32 (cosine, at most
``g |a|``) and of the few additions of the filter. Products of bfloat16 vectors ``a'``, ``b'`` are exact before they are
added in float32 (we allow four times ``n``, since tensor cores truncate sums that float32 rounds: Fasi et al.,
Numerical behavior of NVIDIA tensor cores, 2021), and by the Cauchy-Schwarz inequality

    ``|a.b - a'.b'| <= |a||b - b'| + |a - a'||b'|``,    ``|b - b'| <= 2**-8 |b|``

A product stored in bfloat16, as on the CPU, has a relative error of up to ``2**-8``. We add this error and that of
``|b|^2`` to the estimate; small constants cover underflow. So all pairs satisfy ``e - estimate <= length * spread``,
which :meth:`pipeline.retrieve.search.Search.rescore` checks for every canonical score.
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
"""Squares of greater lengths may overflow float32."""

_SHORT = 2.0**-50
"""Lengths below this are computed in float64, since their squares underflow float32."""

_SAMPLE = 512
"""Number of candidates whose mean is the origin."""

_TINY = 2.0**-120
"""Upper bound of the underflow of a term."""

_ROUNDED = 2.0**-8
"""Maximum relative error of rounding to bfloat16."""

_STORED = _ROUNDED * (1 + 2.0**-6)
"""Maximum error of storing a product in bfloat16, relative to the stored value."""

_SHIFTED = 2.0**-21
"""Maximum error of adding a query's shift to an estimate, relative to the shift."""

_DEVIATIONS = 4.0
"""Safety margin of a goal, in standard deviations of a sample's count."""

_LINE = 32
"""Alignment of matrix rows in entries (one or two cache lines); rows take an odd multiple."""

_ROWS = 1_024
"""Vectors of a chunk that is shifted, measured and rounded inside a processor's cache."""


class Candidates(NamedTuple):
    """A block of candidates on the device of a search.

    Attributes:
        rows: uint32 ``[m]``, in main memory.
        papers: their vectors.
        members: int64 ``[m]``, a bit for each pool of the candidate.
        smallest: int64 ``[m]``, the place of its smallest pool among the pools by rising size.
    """

    rows: Rows
    papers: Side
    members: Tensor
    smallest: Tensor


class Prepared(NamedTuple):
    """Vectors of candidates ready for products.

    Attributes:
        points: float32 or bfloat16 ``[m, d]``.
        bias: float32 ``[m]``, added to the products, its error included.
        spread: float32 ``[m]``, error bound of a query of length 1.
    """

    points: Tensor
    bias: Tensor
    spread: Tensor


class Tile(NamedTuple):
    """Estimates of pairs of candidates of a block and queries.

    Attributes:
        positions: int64 ``[m]``, positions of the candidates in the block.
        values: float32 ``[q, m]``, estimates of ``e``.
        length: float32 ``[q]``, lengths of the queries.
        spread: float32 ``[m]``; ``e`` exceeds its estimate by at most ``length * spread``.
    """

    positions: Tensor
    values: Tensor
    length: Tensor
    spread: Tensor

    def goal(self, members: Tensor, depth: int, tiles: int) -> Tensor:
        """Return likely lower bounds of the ``depth``-th best value of a pool, float32 ``[q]``; -inf if unknown.

        Args:
            members: bool ``[m]``, whether candidates are in the pool.
            depth: depth of the lists.
            tiles: number of tiles of the block, of which this one is a sample.
        """
        mean = depth / tiles
        rank = int(np.ceil(mean + _DEVIATIONS * (mean * (1 - 1 / tiles)) ** 0.5)) + (tiles > 1)
        if rank > int(members.sum()):
            return torch.full_like(self.length, -torch.inf)
        values = self.values if bool(members.all()) else self.values[:, members]
        return values.topk(rank, sorted=False).values.amin(1)

    def above(self, goal: Tensor, start: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pairs of some columns that may exceed a goal: indices of queries and candidates, and bounds.

        Args:
            goal: float32 ``[q]``.
            start: the first column.
            end: the column after the last one.
        """
        limit = goal - self.length * self.spread[start:end].amax()
        reached = self.values[:, start:end] > limit[:, None]
        if reached.device.type == "cpu":  # a quarter of torch's time
            owner, column = map(torch.from_numpy, np.divmod(np.flatnonzero(reached.numpy()), reached.shape[1]))
        else:
            owner, column = reached.nonzero(as_tuple=True)
        column = column + start
        return owner, column, self.values[owner, column] + self.length[owner] * self.spread[column]


def mean_of(sample: Tensor, rows: Rows, metric: Metric) -> Tensor:
    """Return the origin of a search, float32 ``[d]``: the mean of a sample of the first candidates ``[m, d]``."""
    step = -(-len(sample) // _SAMPLE)
    subset = sample[::step].double()
    check_lengths(torch.linalg.vector_norm(subset, dim=1), "candidate", rows[::step])
    return (_unit(subset) if metric == "cosine" else subset).mean(0).float()


class Estimates:
    """Estimates of the scores of one search.

    If papers have several vectors, the estimate of two papers is the maximum over their pairs of vectors, shift
    included; its error is at most the maximum of their bounds.

    Attributes:
        points: float32 or bfloat16 ``[vectors of the queries, d]``, for products.
        length: float32, lengths of the points, rounded up.
        shift: float64 ``[q]``; 0 if papers have several vectors.
        relative: ``g``.
    """

    def __init__(self, side: Side, metric: Metric, origin: Tensor, *, bfloat16: bool) -> None:
        """Prepare the queries, for products in float32 or ``bfloat16``."""
        self._side, self._metric, self._bfloat16, self._origin = side, metric, bfloat16, origin
        terms = (len(origin) + 24) * (4 if bfloat16 else 1) * 2.0**-24
        self.relative = terms / (1 - terms)
        a, centre = side.vectors.double(), origin.double()
        if metric == "l2":
            a = a - centre
            shift, a = -(a * a).sum(1), 2 * a
        else:
            a = _unit(a) if metric == "cosine" else a
            shift = a @ centre
        self.points = a.to(torch.bfloat16 if bfloat16 else torch.float32)
        length = torch.linalg.vector_norm(a, dim=1)
        errors = torch.linalg.vector_norm(a - self.points.double(), dim=1)
        relative_error = torch.where(length > 0, errors / length, 0.0).amax().item() if len(a) else 0.0
        self._buffers, self._tiny = threading.local(), len(origin) * _TINY
        self.length = (length * (1 + 2.0**-20) + self._tiny).float()
        rounded = _ROUNDED if bfloat16 else 0.0
        self._spread = rounded + (1 + rounded) * (relative_error + 2 * self.relative)
        self._fixed = len(origin) * 2.0**-50 * float(torch.linalg.vector_norm(centre)) + self._tiny
        if metric == "cosine":
            self._fixed += 2 * self.relative
        self._shift = shift.float()
        self.shift = shift if side.offsets is None else shift.new_zeros(len(side.offsets) - 1)

    def tile(self, block: Candidates, index: slice | Tensor, queries: Tensor) -> Tile:
        """Return estimates of the candidates of a block at ``index`` with ``queries``, int64 ``[q]``.

        The next tile of a thread overwrites it.
        """
        positions = (
            torch.arange(len(block.rows), device=self.points.device)[index] if isinstance(index, slice) else index
        )
        if block.papers.offsets is None:
            rows = block.rows[index if isinstance(index, slice) else index.cpu().numpy()]
            prepared = self.prepare(block.papers.vectors[index], rows)
            values = self.products(self.points[queries], prepared)
            return Tile(positions, values, self.length[queries], prepared.spread)
        (starts, counts), (paper_starts, paper_counts) = self._side.spans(queries), block.papers.spans(positions)
        vectors, rows = _ranges(starts, counts), block.rows[positions.cpu().numpy()].repeat(paper_counts.cpu().numpy())
        prepared = self.prepare(block.papers.vectors[_ranges(paper_starts, paper_counts)], rows)
        shift = self._shift[vectors] + self._shift[vectors].abs() * _SHIFTED
        values = _segment_max(self.products(self.points[vectors], prepared).T + shift, paper_counts).T
        length, spread = _segment_max(self.length[vectors], counts), _segment_max(prepared.spread, paper_counts)
        return Tile(positions, _segment_max(values.contiguous(), counts), length, spread)

    def prepare(self, vectors: Tensor, rows: Rows) -> Prepared:
        """Return candidates, float32 ``[m, d]`` on the device of the queries, ready for products.

        Raises:
            InputError: a vector is not finite or too long.
        """
        if self._metric == "cosine":
            length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
            check_lengths(length[:, 0], "candidate", rows)
            short = (length[:, 0] < _SHORT).nonzero()[:, 0]
            scaled = vectors / length
            scaled[short] = _unit(vectors[short].double()).float()
            vectors = scaled
        points = self._buffer("points", vectors.shape, self.points.dtype)
        length = vectors.new_empty(len(vectors))
        step = len(vectors) if vectors.is_cuda else _ROWS
        for chunk, prepare, norms in zip(vectors.split(step), points.split(step), length.split(step), strict=True):
            shifted = torch.sub(chunk, self._origin, out=None if self._bfloat16 else prepare)
            torch.linalg.vector_norm(shifted, dim=1, out=norms)
            prepare.copy_(shifted)
        check_lengths(length, "candidate", rows)
        bias = -length * length if self._metric == "l2" else torch.zeros_like(length)
        length = length * (1 + self.relative) + len(self._origin) ** 0.5 * 2.0**-62
        bias = bias * (1 - 2 * self.relative) + (1 + length) * self._tiny
        return Prepared(points, bias, length * self._spread + self._fixed)

    def products(self, points: Tensor, prepared: Prepared) -> Tensor:
        """Return estimates of queries' points with candidates, float32 ``[q, m]``, valid until the next call."""
        candidates = prepared.points.T
        if self._bfloat16 and points.is_cuda:
            return torch.mm(points, candidates, out_dtype=torch.float32).add_(prepared.bias)
        values = self._buffer("values", (len(points), len(prepared.bias)), torch.float32)
        if not self._bfloat16:
            step = values.shape[1] if points.is_cuda else _ROWS
            for out, bias, chunk in zip(
                values.split(step, 1), prepared.bias.split(step), candidates.split(step, 1), strict=True
            ):
                torch.addmm(bias, points, chunk, out=out)
            return values
        values.copy_(torch.mm(points, candidates))
        torch.nn.functional.leaky_relu_(values, (1 - _STORED) / (1 + _STORED))
        return torch.add(prepared.bias, values, alpha=1 + _STORED, out=values)

    def _buffer(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a matrix in memory that the thread reuses, since allocating costs more than filling it.

        Rows not aligned to cache lines make a product 50 % slower, rows of a power of two bytes 5 %.
        """
        stride = (-(-shape[1] // _LINE) | 1) * _LINE
        size, buffers = shape[0] * stride, vars(self._buffers)
        if name not in buffers or buffers[name].numel() < size:
            buffers[name] = torch.empty(size, dtype=dtype, device=self._origin.device)
        return buffers[name][:size].view(-1, stride)[:, : shape[1]]


def check_lengths(lengths: Tensor, role: str, rows: Rows | None = None) -> None:
    """Raise InputError for vectors that are not finite, or so long that their squares could overflow."""
    invalid = (~(lengths < _TOO_LONG)).nonzero()[:, 0].cpu().numpy()
    if len(invalid):
        name = invalid[0] if rows is None else f"at row {rows[invalid[0]]}"
        raise InputError(
            f"{len(invalid)} {role} vectors are not finite or longer than {_TOO_LONG:g}, the first is {role} {name}",
            "Embed these texts again; a NaN often comes from half precision",
        )


def _unit(vectors: Tensor) -> Tensor:
    """Return float64 ``[n, d]`` scaled to length 1; zero vectors stay zero."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return torch.where(length > 0, vectors / length, 0.0)


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return the concatenated ranges from ``starts[i]`` to ``starts[i] + counts[i]``."""
    within = torch.arange(int(counts.sum()), device=starts.device)
    return within + torch.repeat_interleave(starts - counts.cumsum(0) + counts, counts)


def _segment_max(values: Tensor, counts: Tensor) -> Tensor:
    """Return the maxima of segments of ``counts[i]`` values along the first axis."""
    return torch.segment_reduce(values, "max", lengths=counts, axis=0)
