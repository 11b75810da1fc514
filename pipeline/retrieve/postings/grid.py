"""BM25 at many points (k1, b) at once: the ranks of each query's relevant documents at every point.

What a term adds to a document's score depends on the point only by the norm ``k1 (1 - b + b length / average)``: at
frequency ``f`` it is the weight times ``f / (f + norm)``. So one document's score is one function of one number,
falling and convex, and the points are places on it. The postings are read once, with :data:`NODES` places a document
instead of one a point. Between them the score lies below the straight line, which tells nearly all documents that can
pass no relevant one; the few others are scored at every point in Lucene's own arithmetic. So the ranks are those of as
many separate searches, in every bit, at a few times the cost of one.

A rank is one more than the number of documents above, so no lists are kept, and nothing has to be sorted but the
relevant documents themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.retrieve import lucene_formula
from pipeline.retrieve.base import Exclusions
from pipeline.retrieve.postings import grid_kernels
from pipeline.retrieve.postings.grid_kernels import NODES
from pipeline.retrieve.postings.pool import Block, Collection, Queries
from pipeline.retrieve.postings.search import by_queries, check_parameters, grouped, search
from pipeline.retrieve.postings.types import Codes, Documents, Keys, Offsets, Pairs, Places, Standing

Ranks = npt.NDArray[np.int64]

_TABLE = 64
"""Frequencies below this have their share of a weight in a table."""


class _Pairs(NamedTuple):
    """Pairs of a query and a row.

    Attributes:
        query: int64 ``[n]``, rising.
        row: uint32 ``[n]``, rising within a query.
    """

    query: npt.NDArray[np.int64]
    row: Rows

    @classmethod
    def of(cls, *lists: Exclusions) -> _Pairs:
        """Return the pairs of several lists of every query."""
        query = np.concatenate([np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) for offsets, _ in lists])
        row = np.concatenate([rows for _, rows in lists])
        order = np.lexsort((row, query))
        return cls(query[order], row[order])

    def by_query(self, queries: int) -> Pairs:
        """Return them as the kernels see them."""
        return Pairs(np.searchsorted(self.query, np.arange(queries + 1)), self.row)

    def among(self, other: _Pairs) -> npt.NDArray[np.bool_]:
        """Return which of them are pairs of ``other`` too."""
        shift = np.uint64(32)
        mine, others = (each.query.astype(np.uint64) << shift | each.row for each in (self, other))
        return np.isin(mine, others)


def _place(norms: lucene_formula.Floats, codes: Codes) -> Places:
    """Place nodes for inverse norms, float32 ``[256, points]``, and the stored lengths there are, rising."""
    line_of = np.zeros(256, np.uint8)
    line_of[codes] = np.arange(len(codes))
    at = 1 / norms[codes].astype(np.float64)
    least, most = at.min(axis=1), at.max(axis=1)
    nodes = np.expm1(np.linspace(np.log1p(least), np.log1p(most), NODES, axis=1))
    nodes[:, 0], nodes[:, -1] = least, most
    interval = np.stack([np.searchsorted(n, a, "right") for n, a in zip(nodes, at, strict=True)]) - 1
    interval = np.clip(interval, 0, NODES - 2)
    shape = 1 / (1 + nodes)
    (low, high), (left, right) = (
        [np.take_along_axis(values, interval + step, axis=1) for step in (0, 1)] for values in (nodes, shape)
    )
    share = np.divide(at - low, high - low, out=np.zeros_like(at), where=high > low)
    frequency = np.arange(_TABLE)[:, None, None]
    table = np.divide(frequency, frequency + nodes, out=np.zeros((_TABLE, *nodes.shape)), where=frequency > 0)
    return Places(line_of, table.astype(np.float32).ravel(), nodes, shape, interval, left + share * (right - left))


def _stand(offsets: Offsets, keys: Keys) -> Standing:
    """Begin with the keys of the relevant documents, uint64 ``[offsets[-1], points]``; they are sorted in place."""
    queries, points = len(offsets) - 1, keys.shape[1]
    lowest = np.zeros((queries, points), np.int64)
    for query, (first, last) in enumerate(pairwise(offsets)):
        keys[first:last].sort(axis=0)
        lowest[query] = np.count_nonzero(keys[first:last] == 0, axis=0)
    return Standing(offsets, keys, np.zeros((len(keys) + queries, points), np.int64), lowest, np.zeros_like(lowest))


def _ranks(standing: Standing) -> Ranks:
    """Return the rank of each relevant document, 0 for those beyond the depth, int64 ``[offsets[-1], points]``."""
    found = np.zeros(standing.relevant.shape, np.int64)
    for query, (first, last) in enumerate(pairwise(standing.offsets)):
        met = standing.met[first + query : last + query + 1]
        above = np.cumsum(met[::-1], axis=0)[::-1][1:]
        within = np.arange(last - first)[:, None] >= standing.lowest[query]
        found[first:last] = np.where(within, above + 1, 0)
    return found


class _Grid:
    """The parts of a pass over the collection, each part in threads."""

    def __init__(
        self,
        collection: Collection,
        queries: Queries,
        points: Sequence[tuple[float, float]],
        pool: Executor,
        threads: int,
    ) -> None:
        self._collection, self._queries, self._pool, self._threads = collection, queries, pool, threads
        self._norms = np.stack([lucene_formula.inverse_norms(k1, b, collection.average) for k1, b in points], axis=1)
        codes = [part.documents.codes for part in collection.parts]
        self._places = _place(self._norms, np.unique(np.concatenate([np.zeros(1, np.uint8), *codes])))

    def judged(self, pairs: _Pairs) -> Iterator[tuple[npt.NDArray[np.int64], Keys]]:
        """Yield the keys of pairs at all points, uint64 ``[n, points]``, with their positions among the pairs.

        Pairs whose row is not in the pool do not come; the key of a pair without a common term is 0.
        """
        for documents, *_ in self._collection.parts:
            place = np.minimum(np.searchsorted(documents.rows, pairs.row), len(documents.rows) - 1)
            here = np.flatnonzero(documents.rows[place] == pairs.row)
            keys = np.empty((len(here), self._norms.shape[1]), np.uint64)
            judge = partial(self._judge, documents, pairs.query[here], place[here], keys)
            by_queries(self._pool, len(self._queries), judge)
            yield here, keys

    def _judge(
        self, documents: Documents, query: Offsets, document: Offsets, keys: Keys, first: int, last: int
    ) -> None:
        mine = slice(*np.searchsorted(query, [first, last]))
        bags, idf = self._queries.bags, self._collection.idf
        grid_kernels.judge(bags, idf, documents, self._norms, query[mine], document[mine], keys[mine])

    def sift(self, standing: Standing, known: Pairs, depth: int, done: Callable[[int], object]) -> None:
        """Count every document that is not known and lies above a relevant one."""
        for parts in grouped(self._collection.parts, self._threads):
            blocks = list(self._pool.map(self._collection.block, parts))
            by_queries(self._pool, len(self._queries), partial(self._sift, blocks, standing, known, depth))
            done(sum(len(block.documents.rows) for block in blocks))

    def _sift(self, blocks: list[Block], standing: Standing, known: Pairs, depth: int, first: int, last: int) -> None:
        for documents, postings in blocks:
            grid_kernels.sift(
                first,
                last,
                self._queries.bags,
                self._collection.idf,
                documents,
                postings,
                self._norms,
                self._places,
                known,
                standing,
                depth,
            )


def ranks(
    collection: Collection,
    queries: Queries,
    relevant: Exclusions,
    excluded: Exclusions,
    *,
    points: Sequence[tuple[float, float]],
    depth: int,
    threads: int,
    done: Callable[[int], object] = lambda _: None,
) -> Ranks:
    """Return the ranks that the relevant documents of every query have at every point.

    Args:
        collection: the pool, under the terms of the queries.
        queries: what is searched for.
        relevant: CSR of each query's relevant rows, rising; one that is no document of the pool is never found.
        excluded: rows removed from each query's ranking before ranks are counted.
        points: k1 and b.
        depth: ranks that count.
        threads: how many work.
        done: called with the number of documents that all queries have seen.

    Returns:
        int64 ``[relevant, points]``: those of one query together, from its lowest to its highest; 0 where a document is
        not among the best ``depth``.

    Raises:
        InputError: a parameter is out of range, or there are not as many queries as have relevant rows.
    """
    for k1, b in points:
        check_parameters(k1, b)
    if len(relevant[0]) != len(queries) + 1:
        raise InputError(
            f"relevant papers are of {len(relevant[0]) - 1:,} queries, there are {len(queries):,}",
            "Give both of one pool",
        )
    k1, b = points[len(points) // 2]
    best = search(collection, queries, excluded, k1=k1, b=b, depth=depth, threads=threads)
    first = _Pairs.of((np.searchsorted(best.query, np.arange(len(queries) + 1)), best.row))
    wanted = _Pairs.of(relevant)
    with ThreadPoolExecutor(threads) as pool:
        grid = _Grid(collection, queries, points, pool, threads)
        keys = np.zeros((len(wanted.row), len(points)), np.uint64)
        for positions, judged in grid.judged(wanted):
            keys[positions] = judged
        keys[wanted.among(_Pairs.of(excluded))] = 0
        standing = _stand(np.asarray(relevant[0], np.int64), keys)
        for positions, judged in grid.judged(first):
            grid_kernels.meet(judged, first.query[positions], standing, depth)
        met = (first.by_query(len(queries)).starts, first.row)
        grid.sift(standing, _Pairs.of(met, excluded).by_query(len(queries)), depth, done)
    return _ranks(standing)
