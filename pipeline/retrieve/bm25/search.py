"""BM25 with Lucene's scores and ranking, many times faster for queries as long as an abstract.

A query of a hundred terms matches most documents, so skipping documents, as Lucene does, costs more than it saves. Here
all postings of a query's terms are accumulated, in blocks of documents whose scores stay in a core's cache.

Sums of float32 impacts are exact in float64 unless a term adds less than about a millionth of the score. So their order
does not matter and scores equal Lucene's bit by bit. A document is found if its score is above 0.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.retrieve.base import Exclusions, Ranking, check_depth, check_queries
from pipeline.retrieve.bm25 import collection as documents_of
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.collection import (
    QUERIES_TOGETHER,
    Collection,
    PostingsBlock,
    QueryTerms,
    excluded_positions,
)
from pipeline.retrieve.topk import partition_greatest

Keys = npt.NDArray[np.uint64]
"""Pairs of a positive score (float32 bits in the upper half) and a row. Keys sort by score, then row."""


class Best(NamedTuple):
    """The best documents of each query so far.

    Attributes:
        keys: uint64 ``[queries, 2 * depth]``, unordered.
        counts: int64 ``[queries]``, number of keys.
        thresholds: uint64 ``[queries]``, lowest of the best ``depth`` keys, 0 while there are fewer.
    """

    keys: Keys
    counts: npt.NDArray[np.int64]
    thresholds: Keys


def search(
    collection: Collection,
    queries: QueryTerms,
    excluded: Exclusions,
    *,
    k1: float,
    b: float,
    depth: int,
    threads: int,
    memory: int = 1 << 40,
    done: Callable[[int], object] = lambda _: None,
) -> Ranking:
    """Return the ranking of the documents of a pool for all queries.

    If the best documents of all queries take more than ``memory`` bytes, the queries are searched in several passes.

    Raises:
        InputError: a parameter is out of range, or the exclusions have another number of queries.
    """
    check_depth(depth)
    formula.check_parameters(k1, b)
    check_queries("exclusions", excluded, len(queries))
    norms = formula.inverse_norms(k1, b, collection.average)
    step = max(memory // (40 * depth), QUERIES_TOGETHER)  # keys, and the ranking made of them
    passes = range(0, len(queries), step)
    visited = reported = 0

    def progress(documents: int) -> None:
        nonlocal visited, reported
        visited += documents
        done(visited // len(passes) - reported)
        reported = visited // len(passes)

    best_keys: list[Keys] = []
    with ThreadPoolExecutor(threads) as pool:
        for first in passes:
            chunk, offsets = queries.subset(first, first + step), excluded[0][first : first + step + 1]
            best_keys += _search(collection, norms, chunk, (offsets, excluded[1]), depth, pool, threads, progress)
    keys = np.concatenate([np.empty(0, np.uint64), *best_keys])
    scores = (keys >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return Ranking.from_counts(np.array([len(best) for best in best_keys], np.int64), keys.astype(np.uint32), scores)


def _search(
    collection: Collection, norms: formula.Floats, queries: QueryTerms, excluded: Exclusions, depth: int,
    pool: Executor, threads: int, done: Callable[[int], object],
) -> list[Keys]:  # fmt: skip
    """Return the best keys of each query in descending order."""
    count = len(queries)
    best = Best(np.zeros((count, 2 * depth), np.uint64), np.zeros(count, np.int64), np.zeros(count, np.uint64))

    def work(block: PostingsBlock, first: int, last: int) -> None:
        rows, codes = block.documents.rows, block.documents.codes
        removed = excluded_positions(rows, excluded, first, last)
        top = Best(best.keys[first:last], best.counts[first:last], best.thresholds[first:last])
        singles = np.empty(len(rows), np.float32)
        scratch = np.empty(len(rows), np.float64), singles, singles.view(np.uint32)
        terms = queries.subset(first, last)
        columns = terms.offsets, terms.terms, terms.frequencies
        search_block(columns, collection.idf, rows, norms[codes], block.postings, removed, depth, top, scratch)

    for documents in collection.run(norms, count, work, pool, threads, documents_of.BLOCK_DOCUMENTS):
        done(documents)
    return [np.sort(keys[:size])[: -depth - 1 : -1].copy() for keys, size in zip(best.keys, best.counts, strict=True)]


@compiled
def search_block(
    queries: Any, idf: Any, rows: Any, norms: Any, postings: Any, excluded: Any, depth: int, best: Any, scratch: Any
) -> None:
    """Add the documents of a block to the best documents of queries.

    Args:
        queries: offsets, terms and frequencies of :class:`~pipeline.retrieve.bm25.collection.QueryTerms`.
        idf: float32 ``[terms + 1]``.
        rows: uint32 ``[n]``, rows of the documents.
        norms: float32 ``[n]``, inverse norm of each document.
        postings: :class:`~pipeline.retrieve.bm25.collection.Postings` of the documents.
        excluded: CSR of the excluded positions of queries.
        depth: number of documents to keep.
        best: :class:`Best` of these queries; changed.
        scratch: scores, float64 ``[n]``; the same as float32; a uint32 view of these.
    """
    scores, singles, bits = scratch
    for query in range(len(queries[0]) - 1):
        accumulate(query, queries, idf, norms, postings, scores)
        for entry in range(excluded[0][query], excluded[0][query + 1]):
            scores[excluded[1][entry]] = 0
        for document in range(len(rows)):
            singles[document] = scores[document]
        count, threshold = best.counts[query], best.thresholds[query]
        least_bits = max(threshold >> np.uint64(32), np.uint64(1))
        for document in range(len(rows)):
            if bits[document] >= least_bits:
                key = np.uint64(bits[document]) << np.uint64(32) | np.uint64(rows[document])
                best.keys[query, count] = key
                count += np.int64(key > threshold)
                if count == 2 * depth:
                    count, threshold = depth, partition_greatest(best.keys[query], depth)
                    least_bits = threshold >> np.uint64(32)
        best.counts[query], best.thresholds[query] = count, threshold


@compiled
def accumulate(query: int, queries: Any, idf: Any, norms: Any, postings: Any, scores: Any) -> None:
    """Write the scores of documents for a query, float64 ``[n]``, before they are rounded to float32."""
    offsets, terms, times = queries
    starts, documents, frequencies, impacts = postings
    scores[:] = 0
    for entry in range(offsets[query], offsets[query + 1]):
        term, factor = terms[entry], np.float64(times[entry])
        if times[entry] & (times[entry] - 1) == 0:  # a power of two times the weight scales the impact exactly
            for posting in range(starts[term], starts[term + 1]):
                scores[documents[posting]] += factor * np.float64(impacts[posting])
        else:
            weight = np.float32(times[entry]) * idf[term]
            for posting in range(starts[term], starts[term + 1]):
                share = np.float32(1) + np.float32(frequencies[posting]) * norms[documents[posting]]
                scores[documents[posting]] += np.float64(weight - weight / share)
