"""BM25 with Lucene's scores and ranking, many times faster for queries as long as an abstract.

A query of a hundred terms matches most documents, so skipping documents, as Lucene does, costs more than it saves. Here
all postings of a query's terms are accumulated, in blocks of documents whose scores stay in a core's cache.

Sums of float32 impacts are exact in float64 unless a term adds less than about a millionth of the score. So their order
does not matter and scores equal Lucene's bit by bit. A document is found if its score is above 0.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pipeline.core.compiled import compiled
from pipeline.retrieve.base import Done, Exclusions, Ranking, ignored
from pipeline.retrieve.bm25 import collection as documents_of
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.collection import Collection, Documents, Postings, QueryTerms, excluded_positions
from pipeline.retrieve.topk import TopK, partition_greatest


def search(
    collection: Collection,
    queries: QueryTerms,
    excluded: Exclusions,
    *,
    k1: float,
    b: float,
    depth: int,
    threads: int,
    done: Done = ignored,
) -> Ranking:
    """Return the ranking of the documents of a pool for all queries.

    Memory beside a block's postings: 16 bytes for each possible entry of the ranking, and the ranking.
    """
    norms = formula.inverse_norms(k1, b, collection.average)
    depth = max(min(depth, sum(len(part.rows) for part in collection.parts)), 1)
    best = TopK(len(queries), depth)

    def work(documents: Documents, postings: Postings, first: int, last: int) -> None:
        rows = documents.rows
        removed = excluded_positions(rows, excluded, first, last)
        lists = best.keys[first:last], best.counts[first:last], best.least[first:last]
        singles = np.empty(len(rows), np.float32)
        scratch = np.empty(len(rows), np.float64), singles, singles.view(np.int32)
        terms = queries.subset(first, last)
        columns = terms.offsets, terms.terms, terms.frequencies
        search_block(columns, collection.idf, rows, norms[documents.codes], postings, removed, lists, scratch)

    with ThreadPoolExecutor(threads) as pool:
        for searched in collection.run(norms, len(queries), work, pool, threads, documents_of.BLOCK_DOCUMENTS):
            done(searched)
    return best.ranking()


@compiled
def search_block(
    queries: Any, idf: Any, rows: Any, norms: Any, postings: Any, excluded: Any, lists: Any, scratch: Any
) -> None:
    """Add the documents of a block to the best documents of queries.

    Args:
        queries: offsets, terms and frequencies of :class:`~pipeline.retrieve.bm25.collection.QueryTerms`.
        idf: float32 ``[terms + 1]``.
        rows: uint32 ``[n]``, rows of the documents.
        norms: float32 ``[n]``, inverse norm of each document.
        postings: :class:`~pipeline.retrieve.bm25.collection.Postings` of the documents.
        excluded: CSR of the excluded positions of queries.
        lists: keys, counts and least of :class:`~pipeline.retrieve.topk.TopK`, of these queries; changed.
        scratch: scores, float64 ``[n]``; the same as float32; an int32 view of these.
    """
    scores, singles, bits = scratch
    keys, counts, least = lists
    depth = keys.shape[1] // 2
    for query in range(len(queries[0]) - 1):
        accumulate(query, queries, idf, norms, postings, scores)
        for entry in range(excluded[0][query], excluded[0][query + 1]):
            scores[excluded[1][entry]] = 0
        for document in range(len(rows)):
            singles[document] = scores[document]
        count, threshold = counts[query], least[query]
        least_bits = np.int32(max(threshold >> 32, 1))
        for document in range(len(rows)):
            if bits[document] >= least_bits:
                key = np.int64(bits[document]) << 32 | np.int64(rows[document])
                keys[query, count] = key
                count += np.int64(key > threshold)
                if count == 2 * depth:
                    count, threshold = depth, partition_greatest(keys[query], depth)
                    least_bits = np.int32(threshold >> 32)
        counts[query], least[query] = count, threshold


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
