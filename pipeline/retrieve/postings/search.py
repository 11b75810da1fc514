"""BM25 by postings: the scores of Lucene, and its ranking, many times faster for queries as long as an abstract.

A query of a hundred terms finds most documents, so skipping those that cannot be among the best, as Lucene does, costs
more than it saves. Here every posting of a query's terms is read and added: one load, one addition, one store, in a
block of documents whose scores fit a core's cache. The postings of a term that many documents have, which are most of
what is read, lie as a line over all documents of the block, so that eight are added at a time.

The scores are Lucene's in every bit where a sum of a query's float32 terms is exact in float64, whatever its order:
that is, unless a term adds less than about a millionth of the whole score. Then two orders of adding might round apart,
once in millions of scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.core.errors import InputError
from pipeline.retrieve import lucene_formula
from pipeline.retrieve.base import Exclusions, Ranking, check_depth
from pipeline.retrieve.postings import kernels
from pipeline.retrieve.postings.pool import Collection, Part, Queries, removed_from
from pipeline.retrieve.postings.types import Best, Documents, Postings, Removed, Weights
from pipeline.retrieve.toplists import unpack

_QUERIES_TOGETHER = 16
_T = TypeVar("_T")


_DENSE = 8
"""A term that one document in so many of a block has gets a line."""


class _Weighed(NamedTuple):
    """A block, and what is the same for all queries."""

    documents: Documents
    postings: Postings
    weights: Weights
    removed: Removed


def search(
    collection: Collection,
    queries: Queries,
    excluded: Exclusions,
    *,
    k1: float,
    b: float,
    depth: int,
    threads: int,
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
    norms = lucene_formula.inverse_norms(k1, b, collection.average)
    scale = _scale(collection, queries)
    best = Best(
        np.zeros((len(queries), 2 * depth), np.uint64),
        np.zeros(len(queries), np.int64),
        np.zeros(len(queries), np.uint64),
    )

    def weigh(part: Part) -> _Weighed:
        documents, postings = collection.block(part)
        weights = _room(postings, len(collection.idf), norms[documents.codes])
        kernels.weigh(postings, collection.idf, scale, weights)
        return _Weighed(documents, postings, weights, removed_from(documents.rows, excluded))

    def score(weighed: list[_Weighed], first: int, last: int) -> None:
        for (rows, _, bags), postings, weights, removed in weighed:
            kernels.score(
                first,
                last,
                queries.bags,
                collection.idf,
                scale,
                rows,
                bags,
                postings,
                weights,
                removed,
                depth,
                best,
            )

    with ThreadPoolExecutor(threads) as pool:
        for parts in grouped(collection.parts, threads):
            weighed = list(pool.map(weigh, parts))
            by_queries(pool, len(queries), partial(score, weighed))
            done(sum(len(each.documents.rows) for each in weighed))
    return _ranking(best, depth)


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


def _room(postings: Postings, terms: int, norms: lucene_formula.Floats) -> Weights:
    size = len(postings.documents)
    dense = np.diff(postings.edges)[:terms] * _DENSE > len(norms)
    line_of = np.where(dense, np.cumsum(dense) - 1, -1).astype(np.int32)
    lines = np.zeros((np.count_nonzero(dense) + 1, len(norms)), np.uint16)
    return Weights(norms, np.empty(size, np.uint16), line_of, lines)


def _ranking(best: Best, depth: int) -> Ranking:
    lists = zip(best.keys, best.counts.tolist(), strict=True)
    found = [np.sort(keys[:count])[::-1][:depth] for keys, count in lists]
    scores, rows = unpack(np.concatenate([np.empty(0, np.uint64), *found]))
    return Ranking.from_counts(np.array([len(each) for each in found], np.int64), rows, scores)
