"""Exact search of papers that have several vectors: the score of two papers is that of their best pair of vectors.

Estimates are made as in :mod:`pipeline.retrieve.exact`, pair by pair; the greatest of a pair of papers is off by no
more than the greatest of their margins, so it can be sifted as if it were the product of two papers, and what is left
is scored canonically, all pairs of vectors of each pair of papers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve.base import Block, Done, Metric, Ranking, Subset, Vectors, block_rows, ignored
from pipeline.retrieve.dense import kernels, products, sieves
from pipeline.retrieve.dense.frame import CODES, Frame, FramedBlock
from pipeline.retrieve.dense.pairs import Doubles, Visits
from pipeline.retrieve.dense.reservoirs import ROW_TILE, Reservoir, affordable, flush, in_threads, tiles
from pipeline.retrieve.dense.rounded import HALF, Closer, Floats
from pipeline.retrieve.dense.scan import Members, Search
from pipeline.retrieve.toplists import Positions


class Groups(NamedTuple):
    """Queries with one or more vectors each.

    Attributes:
        offsets: int64 ``[q + 1]``, where the vectors of each query start.
        vectors: float16 or float32 ``[offsets[-1], d]``.
    """

    offsets: Positions
    vectors: Vectors


@dataclass(frozen=True)
class GroupedBlock:
    """Papers that follow one another.

    Attributes:
        rows: uint32 ``[m]``, one a paper.
        offsets: int64 ``[m + 1]``, where the vectors of each paper start.
        block: their vectors in the frame.
        spread: float32 ``[m]``, the greatest of a paper's vectors, with what storing a product can lose.
        query_offsets: int64, where the vectors of each query start.
    """

    rows: Rows
    offsets: Positions
    block: FramedBlock
    spread: Floats
    query_offsets: Positions

    def score(self, frame: Frame, visits: Visits, canonical: Doubles) -> None:
        """Write the canonical scores of pairs of papers (:func:`pipeline.retrieve.dense.kernels.score_groups`)."""
        kernels.score_groups(
            CODES[frame.metric],
            frame.queries,
            frame.norms,
            self.query_offsets,
            self.block.vectors,
            self.block.norms,
            self.offsets,
            visits,
            canonical,
        )


class GroupedEngine:
    """Exact search by the best pair of vectors, on the CPU.

    Args:
        operations: of the products to come, where known: they decide in which precision products are made.
        low: whether they are made in bfloat16; None: where that is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None) -> None:
        self.low = products.halves_pay(operations) if low is None else low

    def search_pools(
        self,
        queries: Groups,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return the rankings of several pools of papers with one or more vectors each.

        Args:
            queries: the queries' vectors.
            blocks: candidates, read once and in order: rows rising, repeated where a paper has several vectors, which
                are never in two blocks.
            subsets: the pools.
            metric: how two vectors are compared.
            depth: entries a query.
            resources: memory and threads.
            done: told how many more papers are done with.

        Raises:
            InputError: as of :meth:`pipeline.retrieve.base.DenseEngine.search`, or a query has no vector.
        """
        counts = np.diff(queries.offsets)
        if (counts < 1).any():
            raise InputError(f"query {np.flatnonzero(counts < 1)[0]} has no vector", "Give each query one or more")
        search = Search(queries.vectors, metric, depth, subsets, low=self.low, count=len(counts))
        for block in _papers(search, blocks, queries.offsets, resources):
            if not len(counts):
                break
            share = tiles(len(counts), resources.workers, vectors=float(counts.mean()), most=affordable(search))
            work = functools.partial(_collect, search, block, search.members(block.rows))
            in_threads(search, resources.workers, work, np.array_split(np.arange(len(counts)), share))
            done(len(block.rows))
        return search.rankings()


class _Papers(NamedTuple):
    """What is known of papers: estimates of pairs are whole, and in float32."""

    bias: Floats
    spread: Floats
    grains: Floats
    closer: Closer


def _papers(
    search: Search, blocks: Iterable[Block], query_offsets: Positions, resources: Resources
) -> Iterator[GroupedBlock]:
    """Yield the candidates in the frame, in blocks of whole papers that fit in memory."""
    for repeated, matrix in blocks:
        if len(repeated) != len(matrix):
            raise InputError(
                f"a block has {len(repeated)} rows and {len(matrix)} vectors", "Repeat the row of a paper with several"
            )
        starts = np.flatnonzero(np.diff(repeated.astype(np.int64), prepend=-1))
        rows, ends = repeated[starts], np.append(starts[1:], len(repeated))
        search.check_rise(rows)
        size = block_rows(matrix.shape[-1], resources.memory)
        first = 0
        while first < len(rows):
            last = max(first + 1, int(np.searchsorted(ends, starts[first] + size, "right")))
            here = slice(starts[first], ends[last - 1])
            placed = search.place((repeated[here], matrix[here]), resources.workers)
            offsets = np.append(starts[first:last], ends[last - 1]) - starts[first]
            lost = products.ROUNDING * placed.radius * (1 + 2.0**-6) if search.frame.kind == HALF else 0.0
            spread = np.maximum.reduceat(placed.spread, offsets[:-1]) + np.float32(lost)
            yield GroupedBlock(rows[first:last], offsets, placed, spread, query_offsets)
            first = last


def _collect(search: Search, block: GroupedBlock, members: Members, queries: Positions) -> None:
    """Absorb from a block every paper that could be among the best of some queries, in every pool.

    What is sifted is the estimate of a paper's best pair, shift included.
    """
    frame, vectors = search.frame, block.block
    here = slice(block.query_offsets[queries[0]], block.query_offsets[queries[-1] + 1])
    query_offsets = block.query_offsets[queries[0] : queries[-1] + 2] - here.start
    shift = (frame.shift[here] / frame.scale).astype(np.float32)
    rounded = 2.0**-22 * np.abs(frame.shift[here])  # it is added in float32
    lengths, bound = (
        np.maximum.reduceat(each, query_offsets[:-1])
        for each in (frame.lengths[here], frame.bound(vectors.radius)[here] + rounded)
    )
    reservoir = Reservoir(search, queries, np.zeros(len(queries)))
    reservoir.enter(bound, lengths)
    points, nothing = frame.rounded[frame.kind].points[here], np.zeros(len(block.rows), np.float32)
    papers = _Papers(nothing, block.spread, nothing + np.float32(1.0), vectors.closer)
    first = 0
    while first < len(block.rows):
        last = max(first + 1, int(np.searchsorted(block.offsets, block.offsets[first] + ROW_TILE, "right")) - 1)
        inside = slice(block.offsets[first], block.offsets[last])
        tile = products.product(points, vectors.points[inside])
        best = np.empty((len(queries), last - first), np.float32)
        offsets = block.offsets[first : last + 1] - inside.start
        sieves.best_pairs(tile, vectors.bias[inside], shift, query_offsets, offsets, best)
        reservoir.sift(best, first, papers, members, block, 0)
        first = last
    flush([reservoir], block)
