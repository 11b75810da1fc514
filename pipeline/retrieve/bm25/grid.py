"""BM25 at many points (k1, b) at once: the ranks of each query's relevant documents at every point.

The postings are read once. A document's scores at all points are first estimated in float32, ``w f / (f + norm)`` for
each term, from a table over frequencies and stored lengths with the points side by side. The few documents that may
rank above a relevant one at any point are then scored at all points in Lucene's arithmetic. So the ranks are those of
as many separate searches, in every bit.

A rank is one more than the number of documents above, so no lists are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.core.errors import InputError
from pipeline.retrieve.base import Exclusions
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.collection import Collection, Inverted, Queries, excluded_positions
from pipeline.retrieve.bm25.search import Keys, check_exclusions

Ranks = npt.NDArray[np.int64]

BLOCK_DOCUMENTS = 1_024
"""Documents whose estimates at all points stay in a core's cache."""

_TABLE = 16
"""Frequencies below this are in the table of estimates."""

_WIDTH = 32
"""The points of estimates are padded to a multiple of this, so that processors add them by whole vectors."""


class Counts(NamedTuple):
    """How many documents rank above the relevant ones of each query, at every point.

    Attributes:
        offsets: int64 ``[queries + 1]``, where the relevant documents of each query start.
        relevant: uint64 ``[offsets[-1], points]``, their keys, rising within a query; 0 for one that is not found.
        above: int64 ``[offsets[-1] + queries, points]``: line ``offsets[q] + q + i`` counts the documents above
            exactly ``i`` relevant ones.
        lowest: int64 ``[queries, points]``, the lowest relevant document that may be among the best ``depth``.
        ahead: int64 ``[queries, points]``, documents so far that are above that one.
    """

    offsets: npt.NDArray[np.int64]
    relevant: Keys
    above: Ranks
    lowest: Ranks
    ahead: Ranks

    @classmethod
    def start(cls, offsets: npt.NDArray[np.int64], keys: Keys) -> Counts:
        """Return counts of nothing, for keys of relevant documents ``[offsets[-1], points]``, which are sorted."""
        queries, points = len(offsets) - 1, keys.shape[1]
        lowest = np.zeros((queries, points), np.int64)
        for query, (first, last) in enumerate(pairwise(offsets)):
            keys[first:last].sort(axis=0)
            lowest[query] = np.count_nonzero(keys[first:last] == 0, axis=0)
        return cls(offsets, keys, np.zeros((len(keys) + queries, points), np.int64), lowest, np.zeros_like(lowest))

    def ranks(self) -> Ranks:
        """Return the rank of each relevant document, int64 ``[offsets[-1], points]``, 0 beyond the depth."""
        found = np.zeros(self.relevant.shape, np.int64)
        for query, (first, last) in enumerate(pairwise(self.offsets)):
            counts = self.above[first + query : last + query + 1]
            above = np.cumsum(counts[::-1], axis=0)[::-1][1:]
            within = np.arange(last - first)[:, None] >= self.lowest[query]
            found[first:last] = np.where(within, above + 1, 0)
        return found


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
        relevant: CSR of each query's relevant rows, rising; one outside the pool is never found.
        excluded: rows removed from each query's ranking before ranks are counted.
        points: k1 and b.
        depth: ranks that count.
        threads: how many work.
        done: called with the number of documents that were searched since the last call.

    Returns:
        int64 ``[relevant, points]``: those of one query together, from its lowest to its highest; 0 where a document is
        not among the best ``depth``.

    Raises:
        InputError: a parameter is out of range, or relevant rows or exclusions are of another number of queries.
    """
    for k1, b in points:
        formula.check_parameters(k1, b)
    check_exclusions(excluded, queries)
    if len(relevant[0]) != len(queries) + 1:
        raise InputError(
            f"relevant papers are of {len(relevant[0]) - 1:,} queries, there are {len(queries):,}",
            "Give both of one pool",
        )
    offsets = np.asarray(relevant[0], np.int64)
    norms = np.stack([formula.inverse_norms(k1, b, collection.average) for k1, b in points], axis=1)
    counts = Counts.start(offsets, _relevant_keys(collection, queries, (offsets, relevant[1]), excluded, norms))
    table, line_of = _estimates(collection, norms)
    with ThreadPoolExecutor(threads) as pool:

        def work(block: Inverted, first: int, last: int) -> None:
            documents, postings = block
            removed = excluded_positions(documents.rows, excluded, first, last)
            lines = line_of[documents.codes]
            count_above(
                first, last, queries.csr, collection.idf, documents, postings, lines, norms, table, removed, counts,
                depth,
            )  # fmt: skip

        for documents in collection.run(norms[:, 0].copy(), len(queries), work, pool, threads, BLOCK_DOCUMENTS):
            done(documents)
    return counts.ranks()


def _relevant_keys(
    collection: Collection, queries: Queries, relevant: Exclusions, excluded: Exclusions, norms: formula.Floats
) -> Keys:
    """Return the keys of relevant rows, uint64 ``[n, points]``, 0 for those that are not found."""
    keys = np.zeros((len(relevant[1]), norms.shape[1]), np.uint64)
    query = np.repeat(np.arange(len(queries)), np.diff(relevant[0]))
    for part in collection.parts:
        place = np.minimum(np.searchsorted(part.rows, relevant[1]), len(part.rows) - 1)
        here = np.flatnonzero(part.rows[place] == relevant[1])
        score_pairs(queries.csr, collection.idf, part, norms, query[here], place[here], here, keys)
    of_excluded = np.repeat(np.arange(len(queries)), np.diff(excluded[0]))
    shift = np.uint64(32)
    pairs, removed = (
        each.astype(np.uint64) << shift | rows for each, rows in ((query, relevant[1]), (of_excluded, excluded[1]))
    )
    keys[np.isin(pairs, removed)] = 0
    return keys


def _estimates(collection: Collection, norms: formula.Floats) -> tuple[formula.Floats, npt.NDArray[np.int64]]:
    """Return what a term of weight 1 adds at each point, and the line of the table for each stored length.

    The table is float32 ``[lines, _TABLE, padded points]``; there is a line for each stored length of the pool.
    """
    used = np.unique(np.concatenate([np.zeros(1, np.uint8), *(part.codes for part in collection.parts)]))
    line_of = np.zeros(256, np.int64)
    line_of[used] = np.arange(len(used))
    frequency = np.arange(_TABLE, dtype=np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = 1 - 1 / (1 + frequency * norms[used, None, :].astype(np.float64))
    padded = np.zeros((len(used), _TABLE, -(-norms.shape[1] // _WIDTH) * _WIDTH), np.float32)
    padded[:, :, : norms.shape[1]] = np.nan_to_num(shares)
    return padded, line_of


@compiled
def score_pairs(
    queries: Any, idf: Any, documents: Any, norms: Any, pair_query: Any, pair_document: Any, lines: Any, keys: Any
) -> None:
    """Write the keys of pairs of a query and a document to some lines of ``keys``, uint64 ``[..., points]``."""
    weights = np.zeros(len(idf), np.float32)
    for pair in range(len(pair_query)):
        query = pair_query[pair]
        weigh(query, queries, idf, weights)
        score_document(weights, documents, pair_document[pair], norms, keys[lines[pair]])
        clear(query, queries, weights)


@compiled
def count_above(
    first: int, last: int, queries: Any, idf: Any, documents: Any, postings: Any, lines: Any, norms: Any, table: Any,
    excluded: Any, counts: Any, depth: int,
) -> None:  # fmt: skip
    """Count the documents of a block that are above relevant ones, for queries ``first`` to ``last``.

    Args:
        first: the first query.
        last: the one behind the last.
        queries: offsets, terms and times of :class:`~pipeline.retrieve.bm25.collection.Queries`.
        idf: float32 ``[terms + 1]``.
        documents: :class:`~pipeline.retrieve.bm25.collection.Documents`.
        postings: their :class:`~pipeline.retrieve.bm25.collection.Postings`.
        lines: int64 ``[n]``, line of each document in the table.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        table: float32 ``[lines, frequencies, padded points]``, see :func:`_estimates`.
        excluded: CSR of positions that are not found, of queries ``first`` to ``last`` alone.
        counts: :class:`Counts`; changed.
        depth: how many ranks count.
    """
    points, rows = norms.shape[1], documents.rows
    weights, keys = np.zeros(len(idf), np.float32), np.empty(points, np.uint64)
    estimates = np.empty((len(rows), table.shape[2]), np.float32)
    needed, beaten = np.full(table.shape[2], np.inf, np.float32), np.empty(points, np.int64)
    found = np.empty(len(rows), np.bool_)
    for query in range(first, last):
        total = weigh(query, queries, idf, weights)
        terms = queries[0][query + 1] - queries[0][query]
        if write_needed(query, counts, total, terms, needed):
            found[:] = True
            for at in range(excluded[0][query - first], excluded[0][query - first + 1]):
                found[excluded[1][at]] = False
            estimate(query, queries, weights, postings, lines, documents.codes, norms, table, estimates)
            for document in range(len(rows)):
                reaches = np.int32(0)
                for point in range(len(needed)):
                    reaches |= np.int32(estimates[document, point] >= needed[point])
                if reaches and found[document] and score_document(weights, documents, document, norms, keys):
                    add(query, keys, counts, depth, beaten)
        clear(query, queries, weights)


@compiled
def estimate(
    query: int, queries: Any, weights: Any, postings: Any, lines: Any, codes: Any, norms: Any, table: Any,
    estimates: Any,
) -> None:  # fmt: skip
    """Write the estimated scores of documents at every point, float32 ``[n, padded points]``."""
    offsets, terms, _ = queries
    estimates[:] = 0
    for at in range(offsets[query], offsets[query + 1]):
        term = terms[at]
        weight = weights[term]
        some = slice(postings.starts[term], postings.starts[term + 1])
        documents, frequencies = postings.documents[some], postings.frequencies[some]
        for i in range(len(documents)):
            document, frequency = documents[i], frequencies[i]
            target = estimates[document]
            if frequency < table.shape[1]:
                shares = table[lines[document], frequency]
                for point in range(len(target)):
                    target[point] += weight * shares[point]
            else:
                inverse = norms[codes[document]]
                for point in range(len(inverse)):
                    target[point] += weight - weight / (np.float32(1) + np.float32(frequency) * inverse[point])


@compiled
def write_needed(query: int, counts: Any, total: Any, terms: Any, needed: Any) -> Any:
    """Write what estimates must reach at each point for a document to count; return whether any may.

    It is the score of the lowest relevant document that counts, less the largest error of an estimate.
    """
    first, last = counts.offsets[query], counts.offsets[query + 1]
    bits, any_counts = np.empty(1, np.uint32), False
    for point in range(counts.lowest.shape[1]):
        needed[point] = np.inf
        lowest = counts.lowest[query, point]
        if lowest < last - first:
            bits[0] = counts.relevant[first + lowest, point] >> np.uint64(32)
            needed[point] = (bits.view(np.float32)[0] - total * 2.0**-20) * (1 - (terms + 32) * 2.0**-23)
            any_counts = True
    return any_counts


@compiled
def add(query: int, keys: Any, counts: Any, depth: int, beaten: Any) -> None:
    """Count a document at every point where it is above a relevant one that may be among the best ``depth``.

    Args:
        query: its number.
        keys: uint64 ``[points]``, of the document.
        counts: :class:`Counts`; changed.
        depth: how many ranks count.
        beaten: int64 ``[points]``, scratch.
    """
    first, last = counts.offsets[query], counts.offsets[query + 1]
    relevant, above = counts.relevant[first:last], counts.above[first + query : last + query + 1]
    lowest, ahead = counts.lowest[query], counts.ahead[query]
    beaten[:] = 0
    for i in range(len(relevant)):
        some = 0
        for point in range(len(keys)):
            beats = relevant[i, point] < keys[point]
            beaten[point] += beats
            some += beats
        if some == 0:
            break
    for point in range(len(keys)):
        if beaten[point] > lowest[point]:
            above[beaten[point], point] += 1
            ahead[point] += 1
            while lowest[point] < len(relevant) and ahead[point] >= depth:
                lowest[point] += 1
                ahead[point] -= above[lowest[point], point]


@compiled
def weigh(query: int, queries: Any, idf: Any, weights: Any) -> Any:
    """Write the weights of a query's terms to float32 ``[terms + 1]`` and return their sum."""
    offsets, terms, times = queries
    total = 0.0
    for at in range(offsets[query], offsets[query + 1]):
        weights[terms[at]] = np.float32(times[at]) * idf[terms[at]]
        total += np.float64(weights[terms[at]])
    return total


@compiled
def clear(query: int, queries: Any, weights: Any) -> None:
    """Set the weights of a query's terms to 0 again."""
    for at in range(queries[0][query], queries[0][query + 1]):
        weights[queries[1][at]] = 0


@compiled
def score_document(weights: Any, documents: Any, document: int, norms: Any, keys: Any) -> Any:
    """Write the keys of a document at every point, in Lucene's arithmetic; return whether it has a term of the query.

    Args:
        weights: float32 ``[terms + 1]``, those of the query.
        documents: :class:`~pipeline.retrieve.bm25.collection.Documents`.
        document: its position.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        keys: uint64 ``[points]``, written where it has a term.
    """
    inverse, position = norms[documents.codes[document]], documents.positions[document]
    sums, found = np.zeros(len(inverse), np.float64), False
    for at in range(documents.offsets[position], documents.offsets[position + 1]):
        weight = weights[documents.numbers[documents.terms[at]]]
        if weight > 0:
            found = True
            frequency = np.float32(documents.frequencies[at])
            for point in range(len(inverse)):
                sums[point] += np.float64(weight - weight / (np.float32(1) + frequency * inverse[point]))
    if found:
        rounded = sums.astype(np.float32)
        bits, row = rounded.view(np.uint32), np.uint64(documents.rows[document])
        for point in range(len(inverse)):
            keys[point] = np.uint64(bits[point]) << np.uint64(32) | row
    return found
