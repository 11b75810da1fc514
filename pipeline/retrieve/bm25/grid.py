"""BM25 at many points (k1, b) at once: ranks of the relevant documents of queries at all points.

Posting lists are read once. A document's scores at all points are first estimated in float32, ``w f / (f + norm)`` for
each term, from a table over stored lengths and frequencies. The few documents that may rank above a relevant one at any
point are then scored at all points in Lucene's arithmetic. So the ranks equal those of separate searches.

A rank is one more than the number of documents above, so no lists are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled
from pipeline.core.csr import find_sorted
from pipeline.retrieve.base import Done, Exclusions, ignored, pairs
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.collection import Collection, Documents, Postings, QueryTerms, excluded_positions

Ranks = npt.NDArray[np.int64]

Keys = npt.NDArray[np.uint64]
"""Pairs of a positive score (float32 bits in the upper half) and a row. Keys sort by score, then row."""

BLOCK_DOCUMENTS = 1_024
"""Documents whose estimates at all points stay in a core's cache."""

_TABLE = 16
"""Frequencies below this are in the table of estimates."""

_WIDTH = 32
"""Points of estimates are padded to a multiple of this, for vector instructions."""


class RankCounts(NamedTuple):
    """Number of documents above each relevant document, at all points.

    The relevant documents of queries start at ``offsets``, int64 ``[queries + 1]``. For each and all points there are
    ``keys``, uint64, rising within a query, 0 if not found; ``bounds``, float32, the minimum estimate of documents
    above; and ``above``, int64, their number, counted while it is below ``depth``. For each query, ``lowest``, int64,
    is the lowest relevant document that may be among the best ``depth``, and ``needed``, float32 ``[queries, padded
    points]``, its bound, infinite if no document counts.
    """

    offsets: npt.NDArray[np.int64]
    keys: Keys
    bounds: formula.Floats
    above: Ranks
    lowest: Ranks
    needed: formula.Floats

    @classmethod
    def start(
        cls, offsets: npt.NDArray[np.int64], keys: Keys, slack: npt.NDArray[np.float64], width: int
    ) -> RankCounts:
        """Return zero counts for ``keys``, which are sorted in place within a query, and ``width`` padded points.

        ``slack``, float64 ``[2, queries]``, is the maximum error of estimates: absolute, and relative to the score.
        """
        queries, points = len(offsets) - 1, keys.shape[1]
        lowest, needed = np.zeros((queries, points), np.int64), np.full((queries, width), np.inf, np.float32)
        bounds = np.empty(keys.shape, np.float32)
        for query, (start, end) in enumerate(pairwise(offsets)):
            keys[start:end].sort(axis=0)
            scores = (keys[start:end] >> np.uint64(32)).astype(np.uint32).view(np.float32)
            bounds[start:end] = (scores - slack[0, query]) * (1 - slack[1, query])
            lowest[query] = np.count_nonzero(keys[start:end] == 0, axis=0)
            found = np.flatnonzero(lowest[query] < end - start)
            needed[query, found] = bounds[start + lowest[query, found], found]
        return cls(offsets, keys, bounds, np.zeros(keys.shape, np.int64), lowest, needed)

    def ranks(self, depth: int) -> Ranks:
        """Return the ranks of relevant documents, int64 ``[offsets[-1], points]``, 0 beyond the depth."""
        return np.where((self.keys > 0) & (self.above < depth), self.above + 1, 0)


def ranks(
    collection: Collection,
    queries: QueryTerms,
    relevant: Exclusions,
    excluded: Exclusions,
    *,
    points: Sequence[tuple[float, float]],
    depth: int,
    threads: int,
    done: Done = ignored,
) -> Ranks:
    """Return the ranks of the relevant documents of queries at all points.

    ``relevant`` is a CSR of the relevant rows of queries, rising; rows outside the pool have no rank.

    Returns:
        int64 ``[relevant, points]``: within a query, from the lowest document to the highest; 0 beyond ``depth``.
    """
    norms = np.stack([formula.inverse_norms(k1, b, collection.average) for k1, b in points], axis=1)
    table, line_of = _estimate_table(collection, norms)
    weights = queries.frequencies.astype(np.float32) * collection.idf[queries.terms]
    weighted = queries.offsets, queries.terms, weights
    keys = _relevant_keys(collection, weighted, relevant, excluded, norms)
    terms = np.diff(queries.offsets)
    totals = np.bincount(np.repeat(np.arange(len(queries)), terms), weights, len(queries))
    slack = np.stack([totals * 2.0**-20, (terms + 32) * 2.0**-23])
    counts = RankCounts.start(np.asarray(relevant[0], np.int64), keys, slack, table.shape[2])

    def work(documents: Documents, postings: Postings, first: int, last: int) -> None:
        removed = excluded_positions(documents.rows, excluded, first, last)
        estimates, dense = np.empty((len(documents.rows), table.shape[2]), np.float32), np.zeros_like(collection.idf)
        for query in range(first, last):
            if counts.lowest[query].min() < counts.offsets[query + 1] - counts.offsets[query]:
                estimate(query, weighted, postings, documents.codes, line_of, norms, table, estimates)
                estimates[removed[1][slice(*removed[0][query - first : query - first + 2])]] = -np.inf
                count_above(query, weighted, documents, norms, estimates, dense, counts, depth)

    with ThreadPoolExecutor(threads) as pool:
        for searched in collection.run(norms[:, 0].copy(), len(queries), work, pool, threads, BLOCK_DOCUMENTS):
            done(searched)
    return counts.ranks(depth)


def _relevant_keys(
    collection: Collection, queries: Any, relevant: Exclusions, excluded: Exclusions, norms: formula.Floats
) -> Keys:
    """Return the keys of relevant rows, uint64 ``[n, points]``, 0 for rows that are not found."""
    keys = np.zeros((len(relevant[1]), norms.shape[1]), np.uint64)
    query = np.repeat(np.arange(len(relevant[0]) - 1), np.diff(relevant[0]))
    for part in collection.parts:
        position, present = find_sorted(part.rows, relevant[1])
        found = np.flatnonzero(present)
        score_pairs(queries, part, norms, query[found], position[found], found, np.zeros_like(collection.idf), keys)
    keys[np.isin(pairs(relevant), pairs(excluded))] = 0
    return keys


def _estimate_table(collection: Collection, norms: formula.Floats) -> tuple[formula.Floats, npt.NDArray[np.int64]]:
    """Return the table of estimates for a term of weight 1, and its line for each stored length, int64 ``[256]``.

    The table is float32 ``[lines, _TABLE, padded points]``, with one line for each stored length of the pool.
    """
    codes = np.unique(np.concatenate([np.zeros(1, np.uint8), *(part.codes for part in collection.parts)]))
    line_of = np.zeros(256, np.int64)
    line_of[codes] = np.arange(len(codes))
    frequency = np.arange(_TABLE, dtype=np.float64)[:, None]
    with np.errstate(invalid="ignore"):
        shares = 1 - 1 / (1 + frequency * norms[codes, None, :].astype(np.float64))
    padded = np.zeros((len(codes), _TABLE, -(-norms.shape[1] // _WIDTH) * _WIDTH), np.float32)
    padded[:, :, : norms.shape[1]] = np.nan_to_num(shares)
    return padded, line_of


@compiled
def estimate(
    query: int, queries: Any, postings: Any, codes: Any, line_of: Any, norms: Any, table: Any, estimates: Any
) -> None:
    """Write the estimated scores of documents at all points, float32 ``[n, padded points]``.

    Args:
        query: index of the query.
        queries: offsets, terms and weights of all queries.
        postings: :class:`~pipeline.retrieve.bm25.collection.Postings` of the documents.
        codes: uint8 ``[n]``, stored length of each document.
        line_of: int64 ``[256]``, line of the table for each stored length.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        table: float32 ``[lines, frequencies, padded points]``.
        estimates: written.
    """
    offsets, terms, weights = queries
    starts, documents, frequencies, _ = postings
    estimates[:] = 0
    for entry in range(offsets[query], offsets[query + 1]):
        weight = weights[entry]
        for posting in range(starts[terms[entry]], starts[terms[entry] + 1]):
            code, frequency, target = codes[documents[posting]], frequencies[posting], estimates[documents[posting]]
            if frequency < table.shape[1]:
                shares = table[line_of[code], frequency]
                for point in range(len(target)):
                    target[point] += weight * shares[point]
            else:
                inverse = norms[code]
                for point in range(len(inverse)):
                    target[point] += weight - weight / (np.float32(1) + np.float32(frequency) * inverse[point])


@compiled
def count_above(
    query: int, queries: Any, documents: Any, norms: Any, estimates: Any, dense: Any, counts: Any, depth: int
) -> None:
    """Count the documents of a block above a query's relevant documents.

    Args:
        query: index of the query.
        queries: offsets, terms and weights of all queries.
        documents: :class:`~pipeline.retrieve.bm25.collection.Documents`.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        estimates: float32 ``[n, padded points]``, estimated scores of the documents.
        dense: float32 ``[terms + 1]``, zeros before and after the call.
        counts: :class:`RankCounts`; changed.
        depth: number of ranks that count.
    """
    offsets, terms, weights = queries
    for entry in range(offsets[query], offsets[query + 1]):
        dense[terms[entry]] = weights[entry]
    start, end = counts.offsets[query], counts.offsets[query + 1]
    lowest, needed, keys = counts.lowest[query], counts.needed[query], np.empty(norms.shape[1], np.uint64)
    for document in range(len(estimates)):
        reaches = np.int32(0)
        for point in range(len(needed)):
            reaches |= np.int32(estimates[document, point] >= needed[point])
        if reaches and score_document(dense, documents, document, norms, keys):
            for relevant in range(start, end):
                for point in range(len(keys)):
                    counts.above[relevant, point] += counts.keys[relevant, point] < keys[point]
            for point in range(len(keys)):
                while lowest[point] < end - start and counts.above[start + lowest[point], point] >= depth:
                    lowest[point] += 1
                    needed[point] = np.inf
                    if lowest[point] < end - start:
                        needed[point] = counts.bounds[start + lowest[point], point]
    for entry in range(offsets[query], offsets[query + 1]):
        dense[terms[entry]] = 0


@compiled
def score_pairs(
    queries: Any, documents: Any, norms: Any, query_of: Any, document_of: Any, key_rows: Any, dense: Any, keys: Any
) -> None:
    """Write the keys of pairs of a query and a document to ``keys[key_rows]``, uint64 ``[..., points]``."""
    offsets, terms, weights = queries
    for pair in range(len(key_rows)):
        query = query_of[pair]
        for entry in range(offsets[query], offsets[query + 1]):
            dense[terms[entry]] = weights[entry]
        score_document(dense, documents, document_of[pair], norms, keys[key_rows[pair]])
        for entry in range(offsets[query], offsets[query + 1]):
            dense[terms[entry]] = 0


@compiled
def score_document(weights: Any, documents: Any, document: int, norms: Any, keys: Any) -> Any:
    """Write the keys of a document at all points, in Lucene's arithmetic; return whether it has a term of the query.

    Args:
        weights: float32 ``[terms + 1]``, term weights of the query, 0 for other terms.
        documents: :class:`~pipeline.retrieve.bm25.collection.Documents`.
        document: position of the document.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        keys: uint64 ``[points]``, written if it has a term.
    """
    inverse, position = norms[documents.codes[document]], documents.positions[document]
    sums, matched = np.zeros(len(inverse), np.float64), False
    for entry in range(documents.offsets[position], documents.offsets[position + 1]):
        weight = weights[documents.numbers[documents.terms[entry]]]
        if weight > 0:
            matched = True
            frequency = np.float32(documents.frequencies[entry])
            for point in range(len(inverse)):
                sums[point] += np.float64(weight - weight / (np.float32(1) + frequency * inverse[point]))
    if matched:
        bits, row = sums.astype(np.float32).view(np.uint32), np.uint64(documents.rows[document])
        for point in range(len(inverse)):
            keys[point] = np.uint64(bits[point]) << np.uint64(32) | row
    return matched
