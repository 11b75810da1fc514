"""Exact search: upper bounds of scores by a product, the greatest of them by top-k, and a proof by canonical scores.

Let ``c`` be the mean of the first candidates, ``b`` a candidate minus ``c`` (for cosine, first scaled to length 1) and
``a`` a query (for L2, twice the query minus ``c``). The canonical score is ``e + shift``, where ``shift`` depends on
the query alone and

    L2: ``e = a.b - |b|^2``        inner product, cosine: ``e = a.b``

In float32, in any order of additions, the error of ``e`` is at most ``g S`` with ``S = |a||b|`` (L2: ``+ 2 |b|^2``) and
``g = n u / (1 - n u)``, ``u = 2**-24`` (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1;
``n = d + 32`` covers the rounding of ``a``, ``b`` and lengths). That bound is an inner product too: with the components
``(a, G|a|, 2G - 1)`` and ``(b, |b|, |b|^2)``, ``G = g / (1 - g)``, the float32 product is never below ``e``.

So the ``k`` greatest products are the ``k`` greatest upper bounds. They are scored canonically
(:mod:`pipeline.retrieve.canonical`), and if the last of them is below the ``depth``-th best score, no other candidate
can enter. Where it is not, ``k`` grows fourfold for those vectors alone, at last to all candidates of the block:
slower, never approximate. Once lists are full, blocks in which few candidates reach the last score need no top-k.

Memory beside the queries: the caller's block and its components (half of ``memory``, see
:func:`pipeline.retrieve.base.block_rows`), products (an eighth), pairs that are scored (a quarter), and 16 bytes for
each entry of the results. On a GPU, products and scores are made there; lists are kept on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.core.csr import Groups, Ints, Keys, find_sorted, pack
from pipeline.core.errors import InputError, StageError, require_known
from pipeline.core.order import Rows
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import (
    Done,
    Exclusions,
    Metric,
    Ranking,
    VectorBlock,
    Vectors,
    ignored,
    pairs,
)
from pipeline.retrieve.canonical import CODES, Side, lengths, score_pairs, tensor_scores
from pipeline.retrieve.topk import EMPTY, TopK, from_keys, to_keys

Doubles = npt.NDArray[np.float64]

_U, _TINY, _TOO_LONG = 2.0**-24, 2.0**-120, 1e18
"""Relative error of float32; bound of the underflow of a term; length whose square may overflow."""

_SLACK = 2.0**-40
"""Relative error of canonical scores and shifts in float64, by far."""

_SAMPLE, _MARGIN, _CHUNK, _PAIR_BYTES = 512, 32, 4_096, 128
"""Candidates whose mean is the origin; candidates found beside the depth and what is excluded; candidates prepared at
once; memory of a pair while it is scored."""

_GPU_PAYS = 4e11
"""Operations above which a GPU, under ``--device auto``, saves more time than its start takes."""


class Block(NamedTuple):
    """Candidates: their rows, the position of the paper of each vector, and the vectors on the device of the search."""

    papers: Rows
    paper: Ints
    side: Side


class Search:
    """The search of one pool: blocks of candidates are added in order, and the ranking may be read after each.

    Queries are float16 or float32 ``[q, d]``; or groups, if papers have several vectors. Then rows of candidates repeat
    within a block, and the score of two papers is that of their best pair of vectors. The metric is ``l2`` (negated
    squared distance), ``inner_product`` or ``cosine`` (0 where a vector is zero). A query has fewer than ``depth``
    entries if fewer candidates remain; ``excluded`` rows are removed from each query's ranking. Resources are memory in
    bytes for everything but the queries, and threads. Blocks are added to ``start``, a ranking of these queries among
    other candidates.

    Raises:
        InputError: an argument is out of range, or a query has no vector, no components or invalid ones.
    """

    def __init__(
        self,
        queries: Vectors | Groups,
        metric: Metric,
        depth: int,
        excluded: Exclusions,
        resources: Resources,
        device: torch.device,
        start: Ranking | None = None,
    ) -> None:
        require_known(metric, CODES, f"there is no metric {metric!r}")
        offsets, vectors = queries if isinstance(queries, Groups) else (None, queries)
        counts = np.ones(len(vectors), np.int64) if offsets is None else np.diff(offsets)
        if len(empty := np.flatnonzero(counts < 1)):
            raise InputError(f"query {empty[0]} has no vector", "Give each query one or more")
        if vectors.shape[1] < 1:
            raise InputError("vectors must have one component or more, got 0", "Embed again with another encoder")
        self._metric, self._depth, self._resources, self._device = metric, depth, resources, device
        q = torch.tensor(np.asarray(vectors, np.float32), device=device)
        self.side = Side(q, None if offsets is None else torch.from_numpy(offsets).to(device))
        self.norms, self._owner = lengths(q), np.repeat(np.arange(len(counts)), counts)
        check_lengths(self.norms, "query")
        self._excluded, self._last_row = pairs(excluded), -1
        self._fetch = depth + _MARGIN + min(int(np.diff(excluded[0]).max(initial=0)), depth)
        self._best, self._workers = TopK(len(counts), depth), 1
        self._map: Any = map
        if device.type == "cpu":
            self._workers = resources.workers
            self._map = ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=(1,)).map
        if start is not None:
            self._best.add(start.query, to_keys(start.score, start.row))

    def block(self, rows: Rows, matrix: Vectors) -> Block:
        """Return candidates on the device.

        Raises:
            InputError: shapes are wrong, or rows do not rise.
        """
        if matrix.ndim != 2 or matrix.shape[1] != self.side.vectors.shape[1]:
            raise InputError(
                f"candidates have shape {matrix.shape}, queries {self.side.vectors.shape[1]} dimensions",
                "Embed both with the same encoder",
            )
        starts, several = np.arange(len(rows)), self.side.offsets is not None
        if several:
            starts = np.flatnonzero(np.diff(rows.astype(np.int64), prepend=-1))
        papers, ends = rows[starts], np.append(starts, len(rows))
        if (np.diff(papers.astype(np.int64), prepend=self._last_row) <= 0).any():
            raise InputError(
                f"candidate rows do not rise after row {self._last_row}",
                "Give each candidate once, in order, with one vector",
            )
        vectors = torch.as_tensor(matrix, device=self._device).float().contiguous()
        side = Side(vectors, torch.from_numpy(ends).to(self._device) if several else None)
        return Block(papers, np.repeat(np.arange(len(papers)), np.diff(ends)), side)

    def add(self, rows: Rows, matrix: Vectors) -> int:
        """Add a block of candidates to the ranking; return the number of papers.

        Raises:
            InputError: as :meth:`block`, or vectors are not finite or too large for float32.
            StageError: a score is beyond its bound, for instance if the machine multiplies in less than float32.
        """
        block = self.block(rows, matrix)
        if not (len(rows) and len(self._owner)):
            return len(block.papers)
        if self._last_row < 0:
            step = -(-len(rows) // _SAMPLE)
            self._start(block.side.vectors[::step].double(), rows[::step])
        self._last_row = int(block.papers[-1])
        points, known = self._points(block.side.vectors, rows), self._excluded
        radius = points[:, matrix.shape[1]].double().cpu().numpy()
        slack = self._fixed + matrix.shape[1] * _TINY * (1 + self._length) * (1 + radius.max())
        vectors, k = np.arange(len(self._owner)), min(self._fetch, len(rows))
        while len(vectors):
            unproven = []
            size = max(self._resources.memory // 4 // _PAIR_BYTES // k, 1)
            for part in np.array_split(vectors, -(-len(vectors) // size)):
                keys, last = self._rank(block, points, radius, slack, part, k, known)
                unproven.append(part[(last > -np.inf) & (last >= self._floor(part, slack))])
                if block.side.offsets is not None or len(unproven[-1]):  # other vectors may find the same papers
                    known = np.union1d(known, keys)
            vectors, k = np.concatenate(unproven), 4 * k if 8 * k < len(rows) else len(rows)
        return len(block.papers)

    def _start(self, sample: Tensor, rows: Rows) -> None:
        """Choose the origin, and compute the components of the queries."""
        check_lengths(sample.norm(dim=1), "candidate", rows)
        self._origin = (unit(sample) if self._metric == "cosine" else sample).mean(0).float()
        a, centre, dimension = self.side.vectors.double(), self._origin.double(), sample.shape[1]
        g = (dimension + 32) * _U / (1 - (dimension + 32) * _U)
        self._bound, is_l2 = g / (1 - g), self._metric == "l2"
        if is_l2:
            shift, a = -((a - centre) ** 2).sum(1), 2 * (a - centre)
        else:
            a = unit(a) if self._metric == "cosine" else a
            shift = a @ centre
        length = a.norm(dim=1, keepdim=True)
        bias = torch.full_like(length, 2 * self._bound - 1)
        self._components = torch.cat([a, self._bound * length, *[bias] * is_l2], 1).float()
        self._shift, self._length = shift.cpu().numpy(), length[:, 0].cpu().numpy()
        of_origin = dimension * 2.0**-50 * float(centre.norm()) + 2.0**-22 * (self._metric == "cosine")
        self._fixed = _SLACK * np.abs(self._shift) + self._length * of_origin

    def _points(self, vectors: Tensor, rows: Rows) -> Tensor:
        """Return the components of candidates, float32 ``[m, d + 1 or 2]``."""
        dimension, size = vectors.shape[1], _CHUNK if self._device.type == "cpu" else len(vectors)
        points = vectors.new_empty((len(vectors), self._components.shape[1]))

        def fill(start: int) -> None:
            span = slice(start, start + size)
            part, out, some = vectors[span], points[span], rows[span]
            if self._metric == "cosine":
                check_lengths(part.norm(dim=1), "candidate", some)
                part = unit(part.double()).float()
            out[:, :dimension] = part - self._origin
            norm = out[:, :dimension].norm(dim=1)
            check_lengths(norm, "candidate", some)
            out[:, dimension] = norm * (1 + 2.0**-10) + dimension**0.5 * 2.0**-62
            if self._metric == "l2":
                out[:, dimension + 1] = norm.square()

        list(self._map(fill, range(0, len(vectors), size)))
        return points

    def _rank(
        self, block: Block, points: Tensor, radius: Doubles, slack: Doubles, vectors: Ints, k: int, known: Keys
    ) -> tuple[Keys, Doubles]:
        """Score the ``k`` candidates of each query vector that have the greatest upper bounds and are not ``known``.

        Returns:
            The pairs scored, as keys that rise where papers have several vectors; and an upper bound of the candidates
            that were not found, ``[vectors]``.
        """
        place, position, upper, last = self._nearest(vectors, points, k, self._floor(vectors, slack))
        owner, paper = self._owner[vectors[place]], block.paper[position]
        keys = pack(owner, block.papers[paper])
        new = np.flatnonzero(~find_sorted(known, keys)[1])
        if several := block.side.offsets is not None:
            new = new[np.unique(keys[new], return_index=True)[1]]
        scores, vector, size = self.score(block, owner[new], paper[new]), vectors[place[new]], radius[position[new]]
        terms = self._length[vector] * size + (2 * size**2 if self._metric == "l2" else 0)
        upper, error = upper[new] + self._shift[vector], slack[vector] + _SLACK * np.abs(scores)
        wrong = upper - 2.1 * self._bound * terms - error > scores
        if (wrong if several else wrong | (scores > upper + error)).any():
            raise StageError(
                "the fast pass is further from the exact scores than float32 arithmetic can be",
                "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
            )
        return keys[new], last

    def _nearest(self, vectors: Ints, points: Tensor, k: int, floor: Doubles) -> tuple[Ints, Ints, Doubles, Doubles]:
        """Return candidates whose upper bound of ``e`` reaches a floor, ``[vectors]``: all, or the ``k`` greatest.

        Returns:
            Positions among ``vectors`` and ``points``, and bounds; and for each vector a bound of those left out.
        """
        low = np.nextafter(floor.astype(np.float32), np.float32(-np.inf))[:, None]
        size = max(min(self._free() // 8 // 4 // len(points), len(vectors)) // self._workers, 1)

        def nearest(start: int) -> list[npt.NDArray[Any]]:
            part, least = (self._send(column[start : start + size]) for column in (vectors, low))
            products = self._components[part] @ points.T
            above, last = products >= least, products.new_full((len(part),), -torch.inf)
            if int(above.sum()) <= k * len(part):
                place, position = above.nonzero(as_tuple=True)
                upper = products[place, position]
            else:
                greatest = products.topk(k)
                place, column = (greatest.values >= least).nonzero(as_tuple=True)
                position, upper = greatest.indices[place, column], greatest.values[place, column]
                last = greatest.values[:, -1]
            return [column.cpu().numpy() for column in (place + start, position, upper.double(), last.double())]

        place, position, upper, last = map(
            np.concatenate, zip(*self._map(nearest, range(0, len(vectors), size)), strict=True)
        )
        return place, position, upper, last

    def score(self, block: Block, owners: Ints, positions: Ints) -> Doubles:
        """Score pairs of queries and papers of a block canonically and keep the best; return the scores, float64."""
        known = self._metric, self.side, self.norms, block.side
        entries = self._send(owners), self._send(positions)
        if self._device.type == "cpu":
            scores = score_pairs(*known, *entries, self._resources.workers)
        else:
            size = max(self._free() // 4 // (256 + 80 * self.side.vectors.shape[1]), 1)
            parts = zip(*(column.split(size) for column in entries), strict=True)
            scores = torch.cat([tensor_scores(*known, *part) for part in parts]).cpu()
        self._best.add(owners, to_keys(scores.numpy(), block.papers[positions]))
        values: Doubles = scores.numpy()
        return values

    def _floor(self, vectors: Ints, slack: Doubles) -> Doubles:
        """Return the upper bounds of ``e`` below which candidates have no place, even by their row."""
        last = self._best.least[self._owner[vectors]]
        score = np.nextafter(from_keys(last)[0], np.float32(-np.inf)).astype(np.float64)
        floor = score - _SLACK * np.abs(score) - self._shift[vectors] - slack[vectors]
        return np.where(last == EMPTY, -np.inf, floor)

    def _send(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _free(self) -> int:
        """Return the bytes of memory on the device."""
        if self._device.type != "cuda":
            return self._resources.memory
        cached = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return int(torch.cuda.mem_get_info(self._device)[0] + cached)

    def ranking(self) -> Ranking:
        """Return the ranking of the blocks so far."""
        return self._best.ranking()


def search(
    queries: Vectors | Groups,
    blocks: Iterable[VectorBlock],
    excluded: Exclusions,
    *,
    metric: Metric,
    depth: int,
    resources: Resources,
    count: int = 0,
    start: Ranking | None = None,
    done: Done = ignored,
) -> Ranking:
    """Return the ranking of the candidates of blocks.

    Arguments are those of :class:`Search`. Blocks are read once and in order; their size is
    :func:`pipeline.retrieve.base.block_rows`. Of ``count`` candidates, the expected number, device ``auto`` is a GPU if
    there is one and the search is large enough. ``done`` receives the number of candidates processed since the last
    call.

    Raises:
        InputError: as :class:`Search` and :meth:`Search.add`, or the device is missing or too small.
    """
    vectors = queries.vectors if isinstance(queries, Groups) else queries
    device = device_of(resources.device, 2.0 * vectors.size * count)
    try:
        with _one_thread():
            state = Search(queries, metric, depth, excluded, resources, device, start)
            for rows, matrix in blocks:
                done(state.add(rows, matrix))
            return state.ranking()
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the memory of {device} is too short for a block of candidates ({error})",
            "Free it from other programs, lower --memory (blocks are smaller then), or choose --device=cpu",
        ) from error


def device_of(name: str, operations: float) -> torch.device:
    """Return the device of a search; ``auto`` is a GPU if there is one and the search is large enough."""
    name = "cpu" if name == "auto" and operations < _GPU_PAYS else name
    index = gpu_number(name, gpus(), "torch", "Choose --device=cpu, or install torch for CUDA")
    return torch.device("cpu") if index is None else torch.device("cuda", index)


def gpus() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Restrict torch to one thread, since we run the workers and torch's threads wait actively."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    length = vectors.norm(dim=1, keepdim=True)
    return torch.where(length > 0, vectors / length, 0.0)
