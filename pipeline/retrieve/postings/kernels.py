"""Compiled kernels of the postings engine: from bags of terms to postings, and from postings to the best documents.

Nothing here may be compiled with fast-math, which would let the compiler change Lucene's arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled
from pipeline.retrieve.select import best_first

_STRIDE = 32

_STRETCH = 1_024
"""Sums to which line after line is added: they stay in the nearest cache."""

LARGEST_IMPACT = 16_000
"""Units that a posting adds at most: four together fit 16 bits."""


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
def decode(offsets: Any, tokens: Any, members: Any, numbers: Any, count: int, bags: Any) -> None:
    """Write the distinct terms of some documents, those that a query has.

    Without branches, which would be guessed wrong: what is no query's is written where the next term will be.

    Args:
        offsets: as in :func:`mark`.
        tokens: as in :func:`mark`.
        members: int64 ``[n]``, which of the bags are documents; equal terms stand side by side.
        numbers: uint16 or uint32 ``[vocabulary]``, number of each term among those of the queries, ``count`` where none
            has it.
        count: how many terms the queries have.
        bags: :class:`~pipeline.retrieve.postings.types.Terms` with room for all tokens, a zero at the start; written.
    """
    starts, terms, times = bags
    done = np.int64(0)
    for i in range(len(members)):
        before, run = np.int64(-1), np.int64(0)
        for at in range(offsets[members[i]], offsets[members[i] + 1]):
            token = np.int64(tokens[at])
            number = np.int64(numbers[token])
            known, again = np.int64(number < count), np.int64(token == before)
            run = 1 + again * run
            place = done - (known & again)
            terms[place], times[place] = number, run
            done += known & (1 - again)
            before = token
        starts[i + 1] = done


@compiled
def tally(terms: Any, frequencies: Any) -> None:
    """Count documents by term.

    Args:
        terms: distinct terms of each document, one behind the other.
        frequencies: int64 ``[terms]``, raised.
    """
    for term in terms:
        frequencies[term] += 1


@compiled
def invert(bags: Any, postings: Any) -> None:
    """Turn the terms of some documents round.

    Args:
        bags: :class:`~pipeline.retrieve.postings.types.Terms` of the documents.
        postings: :class:`~pipeline.retrieve.postings.types.Postings` with zeros for edges; written.
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
def weigh(postings: Any, idf: Any, scale: float, weights: Any) -> None:
    """Compute what each posting adds to the score of its document at most, where a query has its term once.

    That is the float32 of the formula in units of ``1 / scale``, rounded to a whole number and one more: at least a
    half and at most one and a half above it.

    Args:
        postings: :class:`~pipeline.retrieve.postings.types.Postings`.
        idf: float32 ``[terms]``.
        scale: units of 1; no ``idf`` is more than :data:`LARGEST_IMPACT` units.
        weights: :class:`~pipeline.retrieve.postings.types.Weights` with empty lines; impacts and lines are written.
    """
    edges, documents, frequencies = postings
    norms, impacts, line_of, lines = weights
    units = np.float32(scale)
    for term in range(len(idf)):
        weight = idf[term]
        for at in range(edges[term], edges[term + 1]):
            added = weight - weight / (np.float32(1) + np.float32(frequencies[at]) * norms[documents[at]])
            impacts[at] = np.uint16(added * units + np.float32(1.5))
        if line_of[term] >= 0:
            line = lines[line_of[term]]
            for at in range(edges[term], edges[term + 1]):
                line[documents[at]] = impacts[at]


@compiled
def score(
    first: int,
    last: int,
    queries: Any,
    idf: Any,
    scale: float,
    rows: Any,
    bags: Any,
    postings: Any,
    weights: Any,
    removed: Any,
    depth: int,
    best: Any,
) -> None:
    """Score a block of documents for some queries, and keep the best of each query.

    Sums of whole numbers say what each document can have at most; what may be among the best is scored as Lucene does.
    A list of keys that is full is cut to the best ``depth``; what a key must beat from then on is the query's floor.

    Args:
        first: the first of the queries to score.
        last: the one behind the last.
        queries: :class:`~pipeline.retrieve.postings.types.Terms` of all queries.
        idf: float32 ``[terms]``.
        scale: of the weights.
        rows: uint32 ``[documents]``.
        bags: :class:`~pipeline.retrieve.postings.types.Terms` of the documents.
        postings: :class:`~pipeline.retrieve.postings.types.Postings` of the documents.
        weights: :class:`~pipeline.retrieve.postings.types.Weights` of the postings.
        removed: :class:`~pipeline.retrieve.postings.types.Removed`.
        depth: how many are wanted.
        best: :class:`~pipeline.retrieve.postings.types.Best`; changed.
    """
    most, near = np.empty(len(rows), np.uint32), np.empty(len(rows), np.int64)
    asked, common = np.zeros(len(idf), np.float32), np.empty(len(idf) + 1, np.int64)
    rounded = np.empty(1, np.float32)
    rounded_bits = rounded.view(np.uint32)
    for query in range(first, last):
        slack = _add_up(query, queries, postings, weights, most)
        for at in range(removed.starts[query], removed.starts[query + 1]):
            most[removed.positions[at]] = 0
        floor, held = best.floors[query], best.counts[query]
        keys = best.keys[query]
        count = _gather(most, _least_units(floor, scale), near)
        if count > 2 * depth:
            count = _best_of(most, near, count, depth, slack)
        enter(asked, queries, query, idf)
        for i in near[:count]:
            rounded[0] = np.float32(_lucene(i, bags, asked, weights.norms[i], common))
            key = (np.uint64(rounded_bits[0] | np.uint32(0x80000000)) << np.uint64(32)) | np.uint64(rows[i])
            if key > floor:
                keys[held] = key
                held += 1
                if held == len(keys):
                    held = depth
                    floor = best_first(keys, depth)
        if held > depth + depth // 8:
            floor = best_first(keys[:held], depth)
            held = depth
        clear(asked, queries, query)
        best.floors[query], best.counts[query] = floor, held


@compiled
def _add_up(query: Any, queries: Any, postings: Any, weights: Any, most: Any) -> Any:
    """Write what each document can score at most, in units; return by how many units more than it does that may be.

    Terms with lines come first: those the query has once four at a time, the empty line where there are fewer. The
    postings of the others are then added one by one.
    """
    edges, documents, _ = postings
    _, impacts, line_of, lines = weights
    first, last = queries.starts[query], queries.starts[query + 1]
    once, count, slack = np.full(last - first + 4, len(lines) - 1), 0, np.int64(0)
    for at in range(first, last):
        slack += np.int64(queries.times[at])
        line = line_of[queries.terms[at]]
        if line >= 0 and queries.times[at] == 1:
            once[count] = line
            count += 1
    for start in range(0, len(most), _STRETCH):
        part = most[start : start + _STRETCH]
        part[:] = 0
        for j in range(0, count, 4):
            a, b, c, d = (
                lines[once[j]][start : start + _STRETCH],
                lines[once[j + 1]][start : start + _STRETCH],
                lines[once[j + 2]][start : start + _STRETCH],
                lines[once[j + 3]][start : start + _STRETCH],
            )
            for i in range(len(part)):
                part[i] += np.uint32(np.uint16(a[i] + b[i] + c[i] + d[i]))
        for at in range(first, last):
            line, times = line_of[queries.terms[at]], queries.times[at]
            if line >= 0 and times > 1:
                a = lines[line][start : start + _STRETCH]
                for i in range(len(part)):
                    part[i] += times * np.uint32(a[i])
    for at in range(first, last):
        term, times = np.int64(queries.terms[at]), queries.times[at]
        if line_of[term] < 0:
            here, there = documents[edges[term] : edges[term + 1]], impacts[edges[term] : edges[term + 1]]
            if times == 1:
                for i in range(len(here)):
                    most[here[i]] += np.uint32(there[i])
            else:
                for i in range(len(here)):
                    most[here[i]] += times * np.uint32(there[i])
    return 2 * slack


@compiled
def _gather(most: Any, least: Any, near: Any) -> Any:
    """Write the positions of documents that have at least so much; return how many."""
    count = 0
    for start in range(0, len(most), _STRIDE):
        part = most[start : start + _STRIDE]
        some = 0
        for i in range(len(part)):
            some += part[i] >= least
        if some:
            for i in range(len(part)):
                near[count] = start + i
                count += part[i] >= least
    return count


@compiled
def _best_of(most: Any, near: Any, count: Any, depth: int, slack: Any) -> Any:
    """Keep of documents those that may be among the best ``depth`` of them; return how many."""
    some = np.empty(count, np.uint32)
    for i in range(count):
        some[i] = most[near[i]]
    least, kept = np.int64(best_first(some, depth)) - slack, 0
    for i in range(count):
        near[kept] = near[i]
        kept += np.int64(most[near[i]]) >= least
    return kept


@compiled
def enter(weights: Any, queries: Any, query: Any, idf: Any) -> Any:
    """Write the weights of a query's terms, all above 0, to float32 ``[terms]`` and return their sum."""
    total = 0.0
    for at in range(queries.starts[query], queries.starts[query + 1]):
        weight = np.float32(queries.times[at]) * idf[queries.terms[at]]
        weights[queries.terms[at]] = weight
        total += np.float64(weight)
    return total


@compiled
def clear(weights: Any, queries: Any, query: Any) -> None:
    """Take the weights of a query's terms away again."""
    for at in range(queries.starts[query], queries.starts[query + 1]):
        weights[queries.terms[at]] = 0


@compiled
def _lucene(document: Any, bags: Any, weights: Any, norm: Any, common: Any) -> Any:
    """Return the score of a document before it is rounded, in Lucene's arithmetic.

    Args:
        document: its position.
        bags: terms of the documents.
        weights: float32 ``[terms]``, those of the query.
        norm: inverse norm of the document.
        common: int64 ``[terms]``, written: where the terms of both are. No branch is guessed in finding them.
    """
    count: Any = 0
    for at in range(bags.starts[document], bags.starts[document + 1]):
        common[count] = at
        count += np.int64(weights[bags.terms[at]] > 0)
    total = 0.0
    for at in common[:count]:
        weight = weights[bags.terms[at]]
        total += np.float64(weight - weight / (np.float32(1) + np.float32(bags.times[at]) * norm))
    return total


@compiled
def _least_units(floor: Any, scale: float) -> Any:
    """Return what a document must have at least for its score, rounded, to be as large as that of a key.

    What rounds to a float32 is more than the float32 before it. A document with none of the terms has nothing.
    """
    score_bits = np.uint32(floor >> np.uint64(32)) & np.uint32(0x7FFFFFFF)
    if score_bits == 0:
        return np.uint32(1)
    before = np.empty(1, np.uint32)
    before[0] = score_bits - np.uint32(1)
    return np.uint32(max(np.float64(before.view(np.float32)[0]) * scale, 1.0))
