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

A product stored in bfloat16, as on the CPU, is rounded once more. Small constants cover underflow. So each pair has an
upper and a lower bound of ``e``, which :meth:`pipeline.retrieve.dense.Search.score` checks for every canonical score.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.core.csr import ranges
from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.retrieve.base import Metric
from pipeline.retrieve.canonical import Side
from pipeline.retrieve.topk import Bits, Ints

CHUNK = 1_024
"""Vectors that are multiplied at once, from the processor's cache."""

_U, _ROUNDED, _TINY = 2.0**-24, 2.0**-8, 2.0**-120
"""Relative errors of float32 and bfloat16; bound of the underflow of a term."""

_TOO_LONG, _SHORT = 1e18, 2.0**-50
"""Lengths whose squares may overflow float32, and those whose squares underflow."""


class Candidates(NamedTuple):
    """A block of candidates.

    Attributes:
        rows: uint32 ``[m]``.
        papers: their vectors, on the device of the search.
        members: uint64 ``[m]``, the pools of each.
        smallest: int64 ``[m]``, the smallest pool of each, or the number of pools.
    """

    rows: Rows
    papers: Side
    members: Bits
    smallest: Ints


class Tile(NamedTuple):
    """Estimates ``[q, m]`` of ``e``; a pair's error is at most ``length[q] * spread[m] + fixed[m]``; all float32."""

    values: Tensor
    length: Tensor
    spread: Tensor
    fixed: Tensor


class Estimates:
    """Estimates of the scores of one search in one precision.

    If papers have several vectors, the estimate of two papers is the maximum over their pairs of vectors, shift
    included; its error is at most the maximum of their bounds.

    Attributes:
        points: float32 or bfloat16 ``[vectors of the queries, d]``.
        length: float32, lengths of the points, rounded up.
        shift: float64, one for each vector.
        relative: ``g``.
    """

    def __init__(self, side: Side, metric: Metric, origin: Tensor, *, bfloat16: bool) -> None:
        """Prepare the queries, for products in float32 or ``bfloat16``."""
        self._side, self._metric, self._origin, self._low = side, metric, origin, bfloat16
        terms = (len(origin) + 24) * (4 if bfloat16 else 1) * _U
        self.relative = terms / (1 - terms)
        a, centre = side.vectors.double(), origin.double()
        if metric == "l2":
            a = a - centre
            self.shift, a = -(a * a).sum(1), 2 * a
        else:
            a = unit(a) if metric == "cosine" else a
            self.shift = a @ centre
        self.points = a.to(torch.bfloat16 if bfloat16 else torch.float32)
        length = torch.linalg.vector_norm(a, dim=1)
        errors = torch.linalg.vector_norm(a - self.points.double(), dim=1)
        relative_error = torch.where(length > 0, errors / length, 0.0).amax().item() if len(a) else 0.0
        self._buffers, self._tiny = threading.local(), len(origin) * _TINY
        self.length = (length * (1 + 2.0**-20) + self._tiny).float()
        rounded = _ROUNDED if bfloat16 else 0.0
        stored = 0.0 if a.device.type == "cuda" else rounded * (1 + 2.0**-5)
        self._spread = rounded + stored + (1 + rounded) * (relative_error + 2 * self.relative)
        self._fixed = len(origin) * 2.0**-50 * float(torch.linalg.vector_norm(centre)) + self._tiny
        self._fixed += 2 * self.relative if metric == "cosine" else 0.0

    def tile(self, block: Candidates, sample: slice, queries: Tensor) -> Tile:
        """Return estimates of a sample of the candidates of a block with ``queries``, int64 ``[q]``.

        The next tile of a thread overwrites it.
        """
        rows, papers = block.rows[sample], block.papers
        if papers.offsets is None:
            return self.products(self.points[queries], self.length[queries], papers.vectors[sample], rows)
        positions = torch.arange(len(block.rows), device=queries.device)[sample]
        (starts, counts), (paper_starts, paper_counts) = self._side.spans(queries), papers.spans(positions)
        chosen, repeated = _ranges(starts, counts), rows.repeat(paper_counts.cpu().numpy())
        vectors = papers.vectors[_ranges(paper_starts, paper_counts)]
        tile = self.products(self.points[chosen], self.length[chosen], vectors, repeated)
        shift = self.shift[chosen].float()
        values = _segment_max(_segment_max(tile.values.T + shift, paper_counts).T.contiguous(), counts)
        spread, fixed = (_segment_max(column, paper_counts) for column in (tile.spread, tile.fixed))
        return Tile(values, _segment_max(tile.length, counts), spread, fixed + 8 * _U * shift.abs().amax())

    def products(self, points: Tensor, length: Tensor, vectors: Tensor, rows: Rows) -> Tile:
        """Return estimates of candidates, float32 ``[m, d]`` on the device of the queries.

        Raises:
            InputError: a vector is not finite or too long.
        """
        cuda, count = points.device.type == "cuda", len(vectors)
        values = self._buffer("values", (len(points), count), torch.float32)
        norms, step = vectors.new_empty(count), count if cuda else CHUNK
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            candidates, norms[part] = self.shifted(vectors[part], rows[part])
            bias = -norms[part].square() if self._metric == "l2" else norms.new_zeros(1)
            if not self._low:
                torch.addmm(bias, points, candidates.T, out=values[:, part])
                continue
            how = {"out_dtype": torch.float32} if cuda else {}
            torch.add(bias, torch.mm(points, candidates.bfloat16().T, **how), out=values[:, part])
        squares = norms.square() * (2.1 * self.relative) if self._metric == "l2" else torch.zeros_like(norms)
        return Tile(values, length, self.error(norms), squares + (1 + norms) * self._tiny * 2)

    def shifted(self, vectors: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return candidates ``[m, d]`` minus the origin, which the next call overwrites, and their lengths; float32."""
        if self._metric == "cosine":
            length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
            check_lengths(length[:, 0], "candidate", rows)
            short, scaled = (length[:, 0] < _SHORT).nonzero()[:, 0], vectors / length
            scaled[short] = unit(vectors[short].double()).float()
            vectors = scaled
        points = torch.sub(vectors, self._origin, out=self._buffer("points", tuple(vectors.shape), torch.float32))
        norms = torch.linalg.vector_norm(points, dim=1)
        check_lengths(norms, "candidate", rows)
        return points, norms

    def error(self, norm: Any) -> Any:
        """Return the error bound of a product with a query of length 1 and a candidate ``norm`` from the origin."""
        return (norm * (1 + self.relative) + len(self._origin) ** 0.5 * 2.0**-62) * self._spread + self._fixed

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a matrix in memory that the thread reuses, since allocating costs more than filling it.

        Rows not aligned to cache lines make a product 50 % slower, rows of a power of two bytes 5 %.
        """
        stride = (-(-shape[1] // 32) | 1) * 32
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


def unit(vectors: Tensor) -> Tensor:
    """Return float64 ``[n, d]`` scaled to length 1; zero vectors stay zero."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return torch.where(length > 0, vectors / length, 0.0)


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return the concatenated ranges from ``starts[i]`` to ``starts[i] + counts[i]``."""
    return torch.from_numpy(ranges(starts.cpu().numpy(), counts.cpu().numpy())).to(starts.device)


def _segment_max(values: Tensor, counts: Tensor) -> Tensor:
    """Return the maxima of segments of ``counts[i]`` values along the first axis."""
    return torch.segment_reduce(values, "max", lengths=counts, axis=0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to one thread, since we run the workers and torch's threads busy-wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def bfloat16_pays() -> bool:
    """Return whether this processor multiplies bfloat16 much faster than float32, measured in some milliseconds."""
    seconds = []
    with one_thread():
        for dtype in (torch.float32, torch.bfloat16):
            a, b = torch.ones((128, 768), dtype=dtype), torch.ones((1_024, 768), dtype=dtype)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                torch.mm(a, b.T)
                times.append(time.perf_counter() - start)
            seconds.append(min(times))
    return seconds[1] < 0.7 * seconds[0]
