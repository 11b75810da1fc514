"""Compiled kernels of the postings engine: from bags of terms to postings, and from postings to the best documents.

Nothing here may be compiled with fast-math, which would let the compiler change Lucene's arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled
from pipeline.retrieve.postings.entries import entry
from pipeline.retrieve.postings.lines import TILE, add_lines
from pipeline.retrieve.topk import best_first

_STRIDE = 32

LARGEST_IMPACT = 16_000
"""Units that a posting adds at most."""


@compiled
def mark(offsets: Any, entries: Any, members: Any, used: Any) -> None:
    """Mark the terms that some bags have.

    Args:
        offsets: int64 ``[stored bags + 1]``, where each bag starts.
        entries: uint32, bags one behind the other, see :mod:`pipeline.retrieve.postings.entries`.
        members: int64 ``[n]``, which of the bags.
        used: bool ``[vocabulary]``, raised.
    """
    for member in members:
        at, end = offsets[member], offsets[member + 1]
        while at < end:
            term, _, at = entry(entries, at)
            used[term] = True


@compiled
def decode(offsets: Any, entries: Any, members: Any, numbers: Any, bags: Any) -> None:
    """Write the terms of some bags.

    Args:
        offsets: as in :func:`mark`.
        entries: as in :func:`mark`.
        members: int64 ``[n]``, which of the bags.
        numbers: ``[vocabulary]``, the number that each term is to have.
        bags: :class:`~pipeline.retrieve.postings.types.Terms` with room for all entries, a zero at the start; written.
    """
    starts, terms, times = bags
    done = 0
    for i in range(len(members)):
        at, end = offsets[members[i]], offsets[members[i] + 1]
        while at < end:
            term, times[done], at = entry(entries, at)
            terms[done] = numbers[term]
            done += 1
        starts[i + 1] = done


@compiled
def tally(documents: Any, counts: Any) -> None:
    """Count documents by term.

    Args:
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        counts: ``[terms + 1]``, raised; the last takes all terms that no query has, so that none is asked for.
    """
    entries, numbers = documents.entries, documents.numbers
    for member in documents.members:
        at, end = documents.offsets[member], documents.offsets[member + 1]
        while at < end:
            term, _, at = entry(entries, at)
            counts[numbers[term]] += 1


@compiled
def invert(documents: Any, postings: Any) -> None:
    """Turn documents round.

    Args:
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        postings: :class:`~pipeline.retrieve.postings.types.Postings` with edges; the others are written.
    """
    entries, numbers = documents.entries, documents.numbers
    ends, count = postings.edges[:-1].copy(), len(postings.edges) - 1
    for document in range(len(documents.members)):
        member = documents.members[document]
        at, end = documents.offsets[member], documents.offsets[member + 1]
        while at < end:
            term, times, at = entry(entries, at)
            number = np.int64(numbers[term])
            if number < count:
                place = ends[number]
                ends[number] = place + 1
                postings.documents[place], postings.frequencies[place] = document, times


@compiled
def weigh(documents: Any, units: Any, shares: Any, norms: Any, weights: Any) -> None:
    """Turn documents round into what each posting adds to the score of its document at most.

    That is the formula where a query has the term once, rounded to a whole number of units and one more: at least
    nearly a half and at most hardly more than one and a half above Lucene's.

    Args:
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        units: float32 ``[terms + 1]``, weight of each term, at most :data:`LARGEST_IMPACT`.
        shares: float32 ``[256, frequencies]``, the part of the weight that a document of each stored length has for
            each of the smallest frequencies.
        norms: float32 ``[256]``, inverse norm of each stored length.
        weights: :class:`~pipeline.retrieve.postings.types.Weights` with edges, lines of zeros and which terms have
            them; postings and lines are written.
    """
    entries, numbers, postings, line_of = documents.entries, documents.numbers, weights.postings, weights.line_of
    lines, tile, count = weights.lines.reshape(-1), weights.lines.shape[1] * TILE, len(units) - 1
    ends = weights.edges[:-1].copy()
    for document in range(len(documents.members)):
        member, code = documents.members[document], documents.codes[document]
        here = document // TILE * tile + document % TILE
        at, end = documents.offsets[member], documents.offsets[member + 1]
        while at < end:
            term, times, at = entry(entries, at)
            number = np.int64(numbers[term])
            if number == count:
                continue
            if times < shares.shape[1]:
                share = shares[code, times]
            else:
                share = np.float32(1) - np.float32(1) / (np.float32(1) + np.float32(times) * norms[code])
            impact = np.uint32(np.int32(units[number] * share + np.float32(1.5)))
            line = np.int64(line_of[number])
            if line >= 0:
                lines[here + line * TILE] = impact
            else:
                place = ends[number]
                ends[number] = place + 1
                postings[place] = np.uint32(document << 16) | impact


@compiled
def score(
    first: int,
    last: int,
    queries: Any,
    idf: Any,
    units: Any,
    scale: float,
    norms: Any,
    documents: Any,
    number: int,
    weights: Any,
    removed: Any,
    depth: int,
    sums: Any,
    near: Any,
    best: Any,
) -> None:
    """Find in a block of documents those that may be among the best of some queries.

    Sums of whole numbers say what each document can have at most. Documents whose turn this may be wait to be scored
    until all were met, when most are known to be too low. Where more than there is room for have nearly the same, as
    copies of one text do, the block's are scored at once. A list of keys that is full is cut to the best ``depth``;
    what a key must beat from then on is the query's floor.

    Args:
        first: the first of the queries to score.
        last: the one behind the last.
        queries: :class:`~pipeline.retrieve.postings.types.Terms` of all queries.
        idf: float32 ``[terms + 1]``, 0 at the end.
        units: float32 ``[terms + 1]``, the same in units.
        scale: units of 1.
        norms: float32 ``[256]``, inverse norm of each stored length.
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        number: of the first document.
        weights: :class:`~pipeline.retrieve.postings.types.Weights` of the documents.
        removed: :class:`~pipeline.retrieve.postings.types.Removed`.
        depth: how many are wanted.
        sums: uint32 ``[last - first or more, documents or more]``, scratch; rows are of whole tiles.
        near: :class:`~pipeline.retrieve.postings.types.Near`; changed.
        best: :class:`~pipeline.retrieve.postings.types.Best`; changed.
    """
    found = np.empty(len(documents.rows), np.int64)
    add_lines(first, last, queries, units, weights, sums)
    for query in range(first, last):
        most = sums[query - first, : len(documents.rows)]
        _add_postings(query, queries, weights, most)
        for at in range(removed.starts[query], removed.starts[query + 1]):
            most[removed.positions[at]] = 0
        count = _gather(most, _least(query, near, best, scale), depth, near.slack[query], found)
        if near.counts[query] + count > near.keys.shape[1]:
            cut(query, depth, near)
            count = _gather(most, _least(query, near, best, scale), depth, near.slack[query], found)
        held = near.counts[query]
        if held + count <= near.keys.shape[1]:
            for i in found[:count]:
                near.keys[query, held] = np.uint64(most[i]) << np.uint64(32) | np.uint64(number + i)
                held += 1
            near.counts[query] = held
            if held > 2 * depth or near.floors[query] == 0:
                cut(query, depth, near)
        else:
            _keep(found[:count], query, queries, idf, norms, documents, depth, best)


@compiled
def cut(query: int, depth: int, near: Any) -> None:
    """Drop documents that cannot be among the best ``depth`` any more."""
    keys, kept = near.keys[query, : near.counts[query]], 0
    if len(keys) > depth:
        floor = np.int64(best_first(keys, depth) >> np.uint64(32)) - near.slack[query]
        near.floors[query] = max(near.floors[query], floor)
    for key in keys:
        near.keys[query, kept] = key
        kept += np.int64(key >> np.uint64(32)) >= near.floors[query]
    near.counts[query] = kept


@compiled
def judge(pair_query: Any, pair_document: Any, queries: Any, idf: Any, norms: Any, documents: Any, keys: Any) -> None:
    """Write the keys of some pairs of a query and a document.

    Args:
        pair_query: int64 ``[pairs]``, pairs of one query together.
        pair_document: int64 ``[pairs]``, by position.
        queries: as in :func:`score`.
        idf: as in :func:`score`.
        norms: as in :func:`score`.
        documents: as in :func:`score`.
        keys: uint64 ``[pairs]``, written.
    """
    asked, common = np.zeros(len(idf), np.float32), np.empty((2, len(idf) + 1), np.float32)
    query = -1
    for pair in range(len(pair_query)):
        query = turn(asked, queries, query, pair_query[pair], idf)
        keys[pair] = _key(pair_document[pair], documents, asked, norms, common)


@compiled
def _keep(found: Any, query: Any, queries: Any, idf: Any, norms: Any, documents: Any, depth: int, best: Any) -> None:
    """Score documents and keep the best of them."""
    asked, common = np.zeros(len(idf), np.float32), np.empty((2, len(idf) + 1), np.float32)
    floor, held, keys = best.floors[query], best.counts[query], best.keys[query]
    enter(asked, queries, query, idf)
    for document in found:
        key = _key(document, documents, asked, norms, common)
        if key > floor:
            keys[held] = key
            held += 1
            if held == len(keys):
                held = depth
                floor = best_first(keys, depth)
    if held > depth + depth // 8:
        floor = best_first(keys[:held], depth)
        held = depth
    best.floors[query], best.counts[query] = floor, held


@compiled
def _add_postings(query: Any, queries: Any, weights: Any, most: Any) -> None:
    """Add the postings of terms without lines to what documents can have at most."""
    for at in range(queries.starts[query], queries.starts[query + 1]):
        term, times = queries.terms[at], np.uint32(queries.times[at])
        here = weights.postings[weights.edges[term] : weights.edges[term + 1]]
        if times == 1:
            for posting in here:
                most[posting >> np.uint32(16)] += posting & np.uint32(0xFFFF)
        else:
            for posting in here:
                most[posting >> np.uint32(16)] += times * (posting & np.uint32(0xFFFF))


@compiled
def _gather(most: Any, least: Any, depth: int, slack: Any, found: Any) -> Any:
    """Write the positions of documents that have at least so much; return how many.

    Where these are many more than wanted, only those that may be among the best ``depth`` of them count.
    """
    count = 0
    for start in range(0, len(most), _STRIDE):
        part = most[start : start + _STRIDE]
        some = 0
        for i in range(len(part)):
            some += part[i] >= least
        if some:
            for i in range(len(part)):
                found[count] = start + i
                count += part[i] >= least
    if count <= 2 * depth:
        return count
    values = np.empty(count, np.uint32)
    for i in range(count):
        values[i] = most[found[i]]
    floor, kept = np.int64(best_first(values, depth)) - slack, 0
    for i in range(count):
        found[kept] = found[i]
        kept += np.int64(most[found[i]]) >= floor
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
def turn(weights: Any, queries: Any, before: Any, query: Any, idf: Any) -> Any:
    """Put the weights of a query's terms in the place of those of the query before, if any (-1: none); return it."""
    if query != before:
        if before >= 0:
            clear(weights, queries, before)
        enter(weights, queries, query, idf)
    return query


@compiled
def clear(weights: Any, queries: Any, query: Any) -> None:
    """Take the weights of a query's terms away again."""
    for at in range(queries.starts[query], queries.starts[query + 1]):
        weights[queries.terms[at]] = 0


@compiled
def _key(document: Any, documents: Any, weights: Any, norms: Any, common: Any) -> Any:
    """Return the score of a document in Lucene's arithmetic, with its row.

    Args:
        document: its position.
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        weights: float32 ``[terms + 1]``, those of the query, 0 at the end.
        norms: float32 ``[256]``, inverse norm of each stored length.
        common: float32 ``[2, terms + 2]``, written: weight and frequency of the terms both have. No branch is guessed
            in finding them.
    """
    entries, numbers, member = documents.entries, documents.numbers, documents.members[document]
    count: Any = 0
    at, end = documents.offsets[member], documents.offsets[member + 1]
    while at < end:
        term, times, at = entry(entries, at)
        weight = weights[numbers[term]]
        common[0, count], common[1, count] = weight, times
        count += np.int64(weight > 0)
    norm, total = norms[documents.codes[document]], 0.0
    for i in range(count):
        weight = common[0, i]
        total += np.float64(weight - weight / (np.float32(1) + common[1, i] * norm))
    rounded = np.empty(1, np.float32)
    rounded[0] = total
    score_bits = rounded.view(np.uint32)[0] | np.uint32(0x80000000)
    return np.uint64(score_bits) << np.uint64(32) | np.uint64(documents.rows[document])


@compiled
def _least(query: Any, near: Any, best: Any, scale: float) -> Any:
    """Return how many units a document must have for it may be among the best.

    Its score, rounded, is to be as large as that of the floor's key; what rounds to a float32 is more than the float32
    before it. A document with none of the terms has nothing.
    """
    score_bits = np.uint32(best.floors[query] >> np.uint64(32)) & np.uint32(0x7FFFFFFF)
    least = max(near.floors[query], 1)
    if score_bits > 0:
        before = np.empty(1, np.uint32)
        before[0] = score_bits - np.uint32(1)
        least = max(least, np.int64(np.float64(before.view(np.float32)[0]) * scale))
    return np.uint32(least)
