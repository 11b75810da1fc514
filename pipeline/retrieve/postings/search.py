"""BM25 by postings: the scores of Lucene, and its ranking, many times faster for queries as long as an abstract.

A query of a hundred terms finds most documents, so skipping those that cannot be among the best, as Lucene does, costs
more than it saves. Here every posting of a query's terms is read and added: one load, one addition, one store, in a
block of documents whose scores fit a core's cache. The postings of a term that many documents have, which are most of
what is read, lie as lines over the documents, of which many are added at a time
(:mod:`pipeline.retrieve.postings.lines`).

The scores are Lucene's in every bit where a sum of a query's float32 terms is exact in float64, whatever its order:
that is, unless a term adds less than about a millionth of the whole score. Then two orders of adding might round apart,
once in millions of scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.retrieve import lucene_formula
from pipeline.retrieve.base import Exclusions, Ranking, check_depth
from pipeline.retrieve.postings import kernels
from pipeline.retrieve.postings.lines import TILE
from pipeline.retrieve.postings.pool import Collection, Part, Queries, removed_from
from pipeline.retrieve.postings.types import Best, Documents, Keys, Near, Offsets, Removed, Weights
from pipeline.retrieve.topk import unpack

_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)

_QUERIES_TOGETHER = 16
_JUDGED_TOGETHER = 1_024
"""Queries whose waiting documents are scored at a time: all pairs at once would take several times what is kept."""

_DENSE = 8
"""A term that one document in so many of a block has gets a line."""

_ROOM = 64
"""Documents more than four times the depth that may wait to be scored, for small depths."""

_SHARES = 16
"""Frequencies below this have their share of a weight in a table."""


class _Weighed(NamedTuple):
    """A block, the number of its first document, and what is the same for all queries."""

    documents: Documents
    number: int
    weights: Weights
    removed: Removed


class _Room:
    """Memory in which one block after the other is turned round: the system is asked for it once."""

    def __init__(self) -> None:
        self._postings, self._lines = np.empty(0, np.uint32), np.empty(0, np.uint16)

    def weights(self, counts: npt.NDArray[np.uint16], documents: int) -> Weights:
        """Return room for the documents of a block, of which so many have each term; it is valid until the next."""
        dense = np.append(counts[:-1].astype(np.int64) * _DENSE > documents, False)
        edges = np.concatenate([[0], np.cumsum(np.where(dense, 0, counts)[:-1], dtype=np.int64)])
        line_of = np.where(dense, np.cumsum(dense) - 1, -1).astype(np.int32)
        shape = -(-documents // TILE), int(np.count_nonzero(dense)), TILE
        self._postings, self._lines = _at_least(self._postings, edges[-1]), _at_least(self._lines, math.prod(shape))
        lines = self._lines[: math.prod(shape)].reshape(shape)
        lines[:] = 0
        return Weights(edges, self._postings[: edges[-1]], line_of, lines)


def search(
    collection: Collection,
    queries: Queries,
    excluded: Exclusions,
    *,
    k1: float,
    b: float,
    depth: int,
    threads: int,
    memory: int = 1 << 40,
    done: Callable[[int], object] = lambda _: None,
) -> Ranking:
    """Rank the documents of a pool for every query.

    Args:
        collection: the pool, under the terms of the queries.
        queries: what is searched for.
        excluded: rows removed from each query's ranking before ranks are counted.
        k1: saturation of term frequency, at least 0.
        b: normalisation by length, 0 to 1.
        depth: entries a query at most; a document without any of its terms is none.
        threads: how many work.
        memory: bytes of the queries' lists; where they take more, some queries are searched after the others.
        done: called with the number of documents that all queries have seen.

    Raises:
        InputError: a parameter is out of range, or there are not as many queries as have exclusions.
    """
    check_depth(depth)
    check_parameters(k1, b)
    if len(excluded[0]) != len(queries) + 1:
        raise InputError(
            f"exclusions are of {len(excluded[0]) - 1:,} queries, there are {len(queries):,}", "Give both of one pool"
        )
    together = max(memory // _list_bytes(depth), _QUERIES_TOGETHER)
    passes = [slice(first, first + together) for first in range(0, len(queries), together)]
    seen, norms = _Seen(done, len(passes)), lucene_formula.inverse_norms(k1, b, collection.average)
    found: list[Keys] = []
    with ThreadPoolExecutor(threads) as pool:
        for some in passes:
            offsets = excluded[0][some.start : some.stop + 1]
            part = _Pass(collection, norms, queries.part(some), (offsets, excluded[1]), depth)
            found += part.keys(pool, threads, seen)
    scores, rows = unpack(np.concatenate([np.empty(0, np.uint64), *found]))
    return Ranking.from_counts(np.array([len(each) for each in found], np.int64), rows, scores)


class _Pass:
    """One pass over a pool, for queries whose lists fit in memory.

    Args:
        collection: the pool.
        norms: float32 ``[256]``, what a document's length makes of frequencies.
        queries: what is searched for.
        excluded: of these queries.
        depth: entries a query.
    """

    def __init__(
        self, collection: Collection, norms: lucene_formula.Floats, queries: Queries, excluded: Exclusions, depth: int
    ) -> None:
        self._collection, self._norms, self._queries = collection, norms, queries
        self._excluded, self._depth = excluded, depth
        self._shares = _shares(norms)
        self._scale = _scale(collection, queries)
        self._idf = np.append(collection.idf, np.float32(0))
        self._units = self._idf * np.float32(self._scale)
        self._near, self._best = _lists(queries, depth)
        sizes = [len(part.documents.rows) for part in collection.parts]
        self._numbers: Offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._tiles = -(-max(sizes, default=0) // TILE)
        self._scratch: SimpleQueue[npt.NDArray[np.uint32]] = SimpleQueue()

    def keys(self, pool: Executor, threads: int, done: Callable[[int], object]) -> list[Keys]:
        """Return the best keys of each query, falling."""
        self._meet(pool, threads, done)
        found: list[Keys] = []
        for first in range(0, len(self._queries), _JUDGED_TOGETHER):
            some = range(first, min(first + _JUDGED_TOGETHER, len(self._queries)))
            for query in some:
                kernels.cut(query, self._depth, self._near)
            pairs = _by_part(self._near, self._numbers, some)
            judged = list(pool.map(self._judge, self._collection.parts, *pairs))
            found += _merged(self._best, some, pairs[0], judged, self._depth)
        return found

    def _meet(self, pool: Executor, threads: int, done: Callable[[int], object]) -> None:
        """Let all queries meet all documents; while some blocks are scored the next ones are turned round."""
        for _ in range(threads):
            self._scratch.put(np.empty((_QUERIES_TOGETHER, self._tiles * TILE), np.uint32))
        rooms = itertools.cycle([[_Room() for _ in range(threads)] for _ in range(2)])
        parts = zip(self._collection.parts, self._numbers.tolist(), strict=False)
        groups = zip(grouped(parts, threads), rooms, strict=False)

        def begin() -> list[Future[_Weighed]]:
            return [pool.submit(self._weigh, *each, room) for each, room in zip(*next(groups, ([], [])), strict=False)]

        under_way = begin()
        while under_way:
            weighed = [each.result() for each in under_way]
            firsts = range(0, len(self._queries), _QUERIES_TOGETHER)
            scored = [pool.submit(self._score, weighed, first) for first in firsts]
            under_way = begin()  # by whichever thread has no queries left
            for each in scored:
                each.result()
            done(sum(len(each.documents.rows) for each in weighed))

    def _weigh(self, part: Part, number: int, room: _Room) -> _Weighed:
        weights = room.weights(self._collection.counts(part), len(part.documents.rows))
        kernels.weigh(part.documents, self._units, self._shares, self._norms, weights)
        return _Weighed(part.documents, number, weights, removed_from(part.documents.rows, self._excluded))

    def _score(self, weighed: list[_Weighed], first: int) -> None:
        last, sums = min(first + _QUERIES_TOGETHER, len(self._queries)), self._scratch.get()
        try:
            for documents, number, weights, removed in weighed:
                kernels.score(
                    first,
                    last,
                    self._queries.bags,
                    self._idf,
                    self._units,
                    self._scale,
                    self._norms,
                    documents,
                    number,
                    weights,
                    removed,
                    self._depth,
                    sums,
                    self._near,
                    self._best,
                )
        finally:
            self._scratch.put(sums)

    def _judge(self, part: Part, query: Offsets, document: Offsets) -> Keys:
        keys = np.empty(len(query), np.uint64)
        kernels.judge(query, document, self._queries.bags, self._idf, self._norms, part.documents, keys)
        return keys


class _Seen:
    """Tells how many documents all queries have seen, where each pass sees all for some of the queries."""

    def __init__(self, done: Callable[[int], object], passes: int) -> None:
        self._done, self._passes = done, passes
        self._visits = self._told = 0

    def __call__(self, documents: int) -> None:
        self._visits += documents
        seen = self._visits // self._passes
        self._done(seen - self._told)
        self._told = seen


def check_parameters(k1: float, b: float) -> None:
    """Refuse parameters that BM25 does not have."""
    if not (k1 >= 0 and math.isfinite(k1) and 0 <= b <= 1):
        raise InputError(f"BM25 has no k1={k1:g}, b={b:g}", "Give k1 of at least 0, b between 0 and 1")


def grouped(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yield items, ``size`` at a time."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def by_queries(pool: Executor, queries: int, work: Callable[[int, int], None]) -> None:
    """Let threads work on some queries at a time, until all are done."""
    edges = range(0, queries, _QUERIES_TOGETHER)
    for _ in pool.map(lambda first: work(first, min(first + _QUERIES_TOGETHER, queries)), edges):
        pass


def _scale(collection: Collection, queries: Queries) -> float:
    """Return in how many units a score of 1 is counted: so many that no posting and no sum is too large."""
    bags = queries.bags
    tokens = np.concatenate([[0], np.cumsum(bags.times, dtype=np.int64)])
    longest = int(np.diff(tokens[bags.starts]).max(initial=1))
    largest = kernels.LARGEST_IMPACT * min(1.0, kernels.LARGEST_IMPACT / longest)
    return largest / float(collection.idf.max(initial=np.float32(1e-30)))


def _list_bytes(depth: int) -> int:
    """Return how many bytes the lists of a query take: those of :func:`_lists`, and its part of the ranking."""
    return 8 * (4 * depth + _ROOM) + 8 * 2 * depth + (8 + 16) * depth


def _lists(queries: Queries, depth: int) -> tuple[Near, Best]:
    """Return lists of nothing."""
    count, tokens = len(queries), np.concatenate([[0], np.cumsum(queries.bags.times, dtype=np.int64)])
    slack = 2 * np.diff(tokens[queries.bags.starts])
    keys = np.zeros((count, 4 * depth + _ROOM), np.uint64)
    near = Near(keys, np.zeros(count, np.int64), np.zeros(count, np.int64), slack)
    return near, Best(np.zeros((count, 2 * depth), np.uint64), np.zeros(count, np.int64), np.zeros(count, np.uint64))


def _by_part(near: Near, numbers: Offsets, some: range) -> tuple[list[Offsets], list[Offsets]]:
    """Return for each part those of some queries for which documents of it wait, rising, and these by position."""
    keys, counts = (each[some.start : some.stop] for each in (near.keys, near.counts))
    waiting = np.arange(keys.shape[1]) < counts[:, None]
    query = np.nonzero(waiting)[0] + some.start
    number = (keys[waiting] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    part = np.searchsorted(numbers, number, "right") - 1
    order = np.argsort(part.astype(np.uint16 if len(numbers) < 1 << 16 else np.uint32), kind="stable")
    edges = np.searchsorted(part[order], np.arange(1, len(numbers) - 1))
    return np.split(query[order], edges), np.split((number - numbers[part])[order], edges)


def _shares(norms: lucene_formula.Floats) -> lucene_formula.Floats:
    """Return the part of a term's weight that a document has, by stored length and frequency."""
    frequency = np.arange(_SHARES, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        shares: lucene_formula.Floats = (1 - 1 / (1 + frequency * norms[:, None].astype(np.float64))).astype(np.float32)
    return shares


def _merged(best: Best, some: range, queries: list[Offsets], judged: list[Keys], depth: int) -> list[Keys]:
    """Return the best keys of some queries, falling: of those scored at once and of those that waited."""
    query, keys = np.concatenate(queries), np.concatenate([np.empty(0, np.uint64), *judged])
    order = np.argsort(query, kind="stable")
    waited = np.split(keys[order], np.searchsorted(query[order], np.arange(some.start + 1, some.stop)))
    at_once = (best.keys[query, : best.counts[query]] for query in some)
    return [np.sort(np.concatenate(each))[::-1][:depth] for each in zip(at_once, waited, strict=True)]


def _at_least(array: npt.NDArray[_Scalar], size: int) -> npt.NDArray[_Scalar]:
    return array if len(array) >= size else np.empty(size + size // 4, array.dtype)
