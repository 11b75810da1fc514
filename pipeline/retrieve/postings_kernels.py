"""Compiled kernels of the postings engine: from bags of terms to postings, and from postings to the best documents.

They add what Lucene adds, in float64; nothing here may be compiled with fast-math, which would let the compiler change
the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled

_STRIDE = 32

_STRETCH = 1_024
"""Scores to which line after line is added: they stay in the nearest cache."""


@compiled
def mark(offsets: Any, tokens: Any, members: Any, used: Any) -> None:
    """Mark the terms that some bags have.

    Args:
        offsets: int64 ``[stored bags + 1]``, where each bag starts.
        tokens: uint32, bags one behind the other, equal terms side by side.
        members: int64 ``[n]``, which of the bags.
        used: bool ``[vocabulary]``, raised.
    """
    for member in members:
        for at in range(offsets[member], offsets[member + 1]):
            used[tokens[at]] = True


@compiled
def count(offsets: Any, tokens: Any, members: Any, numbers: Any, frequencies: Any) -> None:
    """Count documents by term.

    Args:
        offsets: as in :func:`mark`.
        tokens: as in :func:`mark`.
        members: int64 ``[n]``, which of the bags are documents.
        numbers: int32 ``[vocabulary]``, number of each term among those of the queries, -1 where no query has it.
        frequencies: int64 ``[1 + terms]``, raised by the number of documents that have each; the first is of no term.
    """
    for member in members:
        before = np.int64(-1)
        for at in range(offsets[member], offsets[member + 1]):
            token = np.int64(tokens[at])
            frequencies[1 + np.int64(numbers[token])] += np.int64(token != before)
            before = token


@compiled
def decode(offsets: Any, tokens: Any, members: Any, numbers: Any, bags: Any) -> None:
    """Write the distinct terms of some documents, those that a query has.

    Without branches, which would be guessed wrong: what is no query's is written where the next term will be.

    Args:
        offsets: as in :func:`count`.
        tokens: as in :func:`count`.
        members: as in :func:`count`.
        numbers: as in :func:`count`.
        bags: :class:`~pipeline.retrieve.postings_types.Terms` with room for all tokens, a zero at the start; written.
    """
    starts, terms, times = bags
    done = np.int64(0)
    for i in range(len(members)):
        before, run = np.int64(-1), np.int64(0)
        for at in range(offsets[members[i]], offsets[members[i] + 1]):
            token = np.int64(tokens[at])
            number = np.int64(numbers[token])
            known, again = np.int64(number >= 0), np.int64(token == before)
            run = 1 + again * run
            place = done - (known & again)
            terms[place], times[place] = number, run
            done += known & (1 - again)
            before = token
        starts[i + 1] = done


@compiled
def invert(bags: Any, postings: Any) -> None:
    """Turn the terms of some documents round.

    Args:
        bags: :class:`~pipeline.retrieve.postings_types.Terms` of the documents.
        postings: :class:`~pipeline.retrieve.postings_types.Postings` with zeros for edges; written.
    """
    edges, documents, frequencies = postings
    for term in bags.terms:
        edges[term + np.int64(2)] += 1
    for t in range(2, len(edges)):
        edges[t] += edges[t - 1]
    for document in range(len(bags.starts) - 1):
        for at in range(bags.starts[document], bags.starts[document + 1]):
            term = np.int64(bags.terms[at])
            place = edges[term + 1]
            edges[term + 1] = place + 1
            documents[place], frequencies[place] = document, bags.times[at]


@compiled
def weigh(postings: Any, norms: Any, idf: Any, weights: Any) -> None:
    """Compute the parts of the formula that are the same for all queries.

    Args:
        postings: :class:`~pipeline.retrieve.postings_types.Postings`.
        norms: float32 ``[documents]``, inverse norm of each.
        idf: float32 ``[terms]``.
        weights: :class:`~pipeline.retrieve.postings_types.Weights` with lines of negative zeros; written but for
            ``line_of``.
    """
    edges, documents, frequencies = postings
    divisors, impacts, line_of, lines = weights
    for term in range(len(idf)):
        for at in range(edges[term], edges[term + 1]):
            divisors[at] = np.float32(1) + np.float32(frequencies[at]) * norms[documents[at]]
            impacts[at] = idf[term] - idf[term] / divisors[at]
        if line_of[term] >= 0:
            for at in range(edges[term], edges[term + 1]):
                lines[line_of[term], documents[at]] = impacts[at]


@compiled
def score(
    first: int,
    last: int,
    queries: Any,
    idf: Any,
    rows: Any,
    postings: Any,
    weights: Any,
    removed: Any,
    depth: int,
    best: Any,
) -> None:
    """Score a block of documents for some queries, and keep the best of each query.

    A list of keys that is full is cut to the best ``depth``; what a key must beat from then on is the query's floor.

    Args:
        first: the first of the queries to score.
        last: the one behind the last.
        queries: :class:`~pipeline.retrieve.postings_types.Terms` of all queries.
        idf: float32 ``[terms]``.
        rows: uint32 ``[documents]``.
        postings: :class:`~pipeline.retrieve.postings_types.Postings` of the documents.
        weights: :class:`~pipeline.retrieve.postings_types.Weights` of the postings.
        removed: :class:`~pipeline.retrieve.postings_types.Removed`.
        depth: how many are wanted.
        best: :class:`~pipeline.retrieve.postings_types.Best`; changed.
    """
    edges, documents = postings.edges, postings.documents
    scores = np.empty(len(rows))
    bits = scores.view(np.int64)
    rounded = np.empty(1, np.float32)
    rounded_bits = rounded.view(np.uint32)
    divisors, impacts, line_of, _ = weights
    for query in range(first, last):
        _add_lines(query, queries, weights, scores)
        for at in range(queries.starts[query], queries.starts[query + 1]):
            term, times = np.int64(queries.terms[at]), queries.times[at]
            begin, end = edges[term], edges[term + 1]
            if line_of[term] >= 0 and _is_power(times):
                continue
            if times == 1:
                for i in range(begin, end):
                    scores[documents[i]] += np.float64(impacts[i])
            elif _is_power(times):
                power = np.float64(times)
                for i in range(begin, end):
                    scores[documents[i]] += power * np.float64(impacts[i])
            else:
                weight = np.float32(times) * idf[term]
                for i in range(begin, end):
                    scores[documents[i]] += np.float64(weight - weight / divisors[i])
        for at in range(removed.starts[query], removed.starts[query + 1]):
            scores[removed.positions[at]] = -0.0
        floor, held = best.floors[query], best.counts[query]
        keys = best.keys[query]
        least = _least_bits(floor)
        for start in range(0, len(rows), _STRIDE):
            part = bits[start : start + _STRIDE]
            near = 0
            for i in range(len(part)):
                near += part[i] >= least
            if near == 0:
                continue
            for i in range(start, start + len(part)):
                if bits[i] >= least:
                    rounded[0] = np.float32(scores[i])
                    key = (np.uint64(rounded_bits[0] | np.uint32(0x80000000)) << np.uint64(32)) | np.uint64(rows[i])
                    if key > floor:
                        keys[held] = key
                        held += 1
                        if held == len(keys):
                            held = depth
                            floor = keep_best(keys, depth)
                            least = _least_bits(floor)
        best.floors[query], best.counts[query] = floor, held


@compiled
def _is_power(times: Any) -> Any:
    """Return whether a number from 1 on is a power of two, by which a float is multiplied without rounding."""
    return times & (times - np.uint32(1)) == 0


@compiled
def _add_lines(query: Any, queries: Any, weights: Any, scores: Any) -> None:
    """Start the scores of a block with the terms that have lines, four at a time, the empty line where there are fewer.

    Scores are negative zero before, and stay so in a document that has none of the terms: adding 0.0 gives 0.0.
    """
    first, last = queries.starts[query], queries.starts[query + 1]
    chosen, powers, count = np.full(last - first + 4, len(weights.lines) - 1), np.ones(last - first + 4), 0
    for at in range(first, last):
        line = weights.line_of[queries.terms[at]]
        if line >= 0 and _is_power(queries.times[at]):
            chosen[count], powers[count] = line, queries.times[at]
            count += 1
    for start in range(0, len(scores), _STRETCH):
        part = scores[start : start + _STRETCH]
        part[:] = -0.0
        for j in range(0, count, 4):
            a, b, c, d = powers[j], powers[j + 1], powers[j + 2], powers[j + 3]
            at_a, at_b, at_c, at_d = (
                weights.lines[chosen[j]][start : start + _STRETCH],
                weights.lines[chosen[j + 1]][start : start + _STRETCH],
                weights.lines[chosen[j + 2]][start : start + _STRETCH],
                weights.lines[chosen[j + 3]][start : start + _STRETCH],
            )
            for i in range(len(part)):
                two = a * np.float64(at_a[i]) + b * np.float64(at_b[i])
                part[i] += two + (c * np.float64(at_c[i]) + d * np.float64(at_d[i]))


@compiled
def _least_bits(floor: Any) -> Any:
    """Return the bits of the least float64 that, rounded, may be as large as the score of a key.

    What rounds to a float32 is more than the float32 before it. Of numbers from 0 on, the bits order as they do, and
    those of negative zero are negative.
    """
    score_bits = np.uint32(floor >> np.uint64(32)) & np.uint32(0x7FFFFFFF)
    if score_bits == 0:
        return np.int64(0)
    before = np.empty(1, np.uint32)
    before[0] = score_bits - np.uint32(1)
    least = np.empty(1)
    least[0] = np.float64(before.view(np.float32)[0])
    return least.view(np.int64)[0]


@compiled
def keep_best(keys: Any, depth: int) -> Any:
    """Bring the best ``depth`` of more keys to the front (Hoare's selection) and return the least of them."""
    low, high, place = 0, len(keys) - 1, depth - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return keys[place]
