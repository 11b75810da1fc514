"""Compiled kernels of the grid search; :mod:`pipeline.retrieve.postings.grid` says what they are for."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from pipeline.core.compiled import compiled
from pipeline.retrieve.postings.entries import entry
from pipeline.retrieve.postings.kernels import clear, enter, turn

NODES = 8
"""Norms at which every document is scored."""

_ROW = ir.VectorType(ir.FloatType(), NODES)


@intrinsic  # type: ignore[untyped-decorator]
def _add_row(_typing: Any, sums: Any, to: Any, table: Any, at: Any, weight: Any) -> Any:
    """Add ``weight`` times the nodes from ``table[at]`` on to those from ``sums[to]`` on, together."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _row(context, builder, arguments[0], arguments[1], signature.args[0])
        added = builder.load(_row(context, builder, arguments[2], arguments[3], signature.args[2]), align=4)
        first = builder.insert_element(ir.Constant(_ROW, ir.Undefined), arguments[4], ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), NODES), [0] * NODES)
        weights = builder.shuffle_vector(first, ir.Constant(_ROW, ir.Undefined), lanes)
        total = builder.fadd(builder.load(place, align=4), builder.fmul(weights, added))
        builder.store(total, place, align=4)
        return context.get_dummy_value()

    return numba.types.void(sums, to, table, at, weight), generate


@intrinsic  # type: ignore[untyped-decorator]
def _reaches(_typing: Any, sums: Any, at: Any, bars: Any, to: Any) -> Any:
    """Whether a node from ``sums[at]`` on is at least its bar, from ``bars[to]`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = builder.load(_row(context, builder, arguments[0], arguments[1], signature.args[0]), align=4)
        least = builder.load(_row(context, builder, arguments[2], arguments[3], signature.args[2]), align=4)
        mask = builder.bitcast(builder.fcmp_ordered(">=", values, least), ir.IntType(NODES))
        return builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(NODES), 0))

    return numba.types.boolean(sums, at, bars, to), generate


def _row(context: Any, builder: Any, array: Any, at: Any, kind: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _ROW.as_pointer())


@compiled
def judge(queries: Any, idf: Any, documents: Any, norms: Any, pair_query: Any, pair_document: Any, keys: Any) -> None:
    """Write the keys of some pairs of a query and a document; 0 where they share no term.

    Args:
        queries: :class:`~pipeline.retrieve.postings.types.Terms` of all queries.
        idf: float32 ``[terms]``.
        documents: :class:`~pipeline.retrieve.postings.types.Documents`.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        pair_query: int64 ``[pairs]``, pairs of one query together.
        pair_document: int64 ``[pairs]``, by position.
        keys: uint64 ``[pairs, points]``, written.
    """
    weights = np.zeros(len(idf) + 1, np.float32)
    query = -1
    for pair in range(len(pair_query)):
        query = turn(weights, queries, query, pair_query[pair], idf)
        if not _score(weights, documents, pair_document[pair], norms, keys[pair]):
            keys[pair] = 0


@compiled
def meet(keys: Any, pair_query: Any, standing: Any, depth: int) -> None:
    """Count documents that were judged.

    Args:
        keys: uint64 ``[pairs, points]``, what :func:`judge` wrote.
        pair_query: int64 ``[pairs]``.
        standing: :class:`~pipeline.retrieve.postings.types.Standing`; changed.
        depth: how many ranks count.
    """
    better = np.empty(keys.shape[1], np.int64)
    for pair in range(len(keys)):
        _meet(keys[pair], pair_query[pair], standing, depth, better)


@compiled
def sift(
    first: int,
    last: int,
    queries: Any,
    idf: Any,
    documents: Any,
    postings: Any,
    norms: Any,
    places: Any,
    known: Any,
    standing: Any,
    depth: int,
) -> None:
    """Find the documents of a block that lie above a relevant one at any point, and count them.

    Every document is scored at :data:`NODES` norms. Between two of them its score is at most what the straight line
    between says, for it is convex; only where that reaches a relevant document's score is it scored at all points.

    Args:
        first: the first of the queries.
        last: the one behind the last.
        queries: :class:`~pipeline.retrieve.postings.types.Terms` of all queries.
        idf: float32 ``[terms]``.
        documents: :class:`~pipeline.retrieve.postings.types.Documents`, the block.
        postings: :class:`~pipeline.retrieve.postings.types.Postings` of the block.
        norms: float32 ``[256, points]``, inverse norm of each stored length.
        places: :class:`~pipeline.retrieve.postings.types.Places`.
        known: :class:`~pipeline.retrieve.postings.types.Pairs` that were met, or that are not to be found.
        standing: :class:`~pipeline.retrieve.postings.types.Standing`; changed.
        depth: how many ranks count.
    """
    rows = documents.rows
    lines = places.line_of[documents.codes]
    weights = np.zeros(len(idf) + 1, np.float32)
    sums = np.empty(len(rows) * NODES, np.float32)
    bars = np.empty((len(places.nodes), NODES), np.float32)
    flat_bars = bars.reshape(-1)
    better, keys = np.empty(norms.shape[1], np.int64), np.empty(norms.shape[1], np.uint64)
    for query in range(first, last):
        total = enter(weights, queries, query, idf)
        terms = queries.starts[query + 1] - queries.starts[query]
        if _raise_bars(query, standing, total, terms, places, bars):
            _add(query, queries, weights, postings, lines, places, sums)
            for document in range(len(rows)):
                if not _reaches(sums, np.int64(document) * NODES, flat_bars, np.int64(lines[document]) * NODES):
                    continue
                if _among(rows[document], known.rows, known.starts[query], known.starts[query + 1]):
                    continue
                if _score(weights, documents, document, norms, keys):
                    _meet(keys, query, standing, depth, better)
        clear(weights, queries, query)


@compiled
def _score(weights: Any, documents: Any, document: Any, norms: Any, keys: Any) -> Any:
    """Write a document's key at every point, in Lucene's arithmetic; return whether it has a term of the query."""
    entries, numbers, member = documents.entries, documents.numbers, documents.members[document]
    inverse = norms[documents.codes[document]]
    sums = np.zeros(len(inverse))
    found = False
    at, end = documents.offsets[member], documents.offsets[member + 1]
    while at < end:
        term, times, at = entry(entries, at)
        weight = weights[numbers[term]]
        if weight > 0:
            found = True
            frequency = np.float32(times)
            for point in range(len(inverse)):
                sums[point] += np.float64(weight - weight / (np.float32(1) + frequency * inverse[point]))
    rounded = np.empty(len(inverse), np.float32)
    for point in range(len(inverse)):
        rounded[point] = np.float32(sums[point])
    bits = rounded.view(np.uint32)
    row = np.uint64(documents.rows[document])
    for point in range(len(inverse)):
        keys[point] = (np.uint64(bits[point] | np.uint32(0x80000000)) << np.uint64(32)) | row
    return found


@compiled
def _meet(keys: Any, query: Any, standing: Any, depth: int, better: Any) -> None:
    """Count a document at every point where it lies above a relevant one that may be among the best."""
    first, last = standing.offsets[query], standing.offsets[query + 1]
    relevant, met = standing.relevant[first:last], standing.met[first + query : last + query + 1]
    lowest, above = standing.lowest[query], standing.above[query]
    better[:] = 0
    for i in range(len(relevant)):
        beaten = 0
        for point in range(len(keys)):
            beats = relevant[i, point] < keys[point]
            better[point] += beats
            beaten += beats
        if beaten == 0:
            break
    for point in range(len(keys)):
        if better[point] > lowest[point]:
            met[better[point], point] += 1
            above[point] += 1
            while lowest[point] < len(relevant) and above[point] >= depth:
                lowest[point] += 1
                above[point] -= met[lowest[point], point]


@compiled
def _add(query: Any, queries: Any, weights: Any, postings: Any, lines: Any, places: Any, sums: Any) -> None:
    """Score a block at every node, in float32."""
    sums[:] = 0.0
    table, nodes = places.table, places.nodes
    for at in range(queries.starts[query], queries.starts[query + 1]):
        term = np.int64(queries.terms[at])
        weight = weights[term]
        for i in range(postings.edges[term], postings.edges[term + 1]):
            document, frequency = np.int64(postings.documents[i]), np.int64(postings.frequencies[i])
            line = np.int64(lines[document])
            share_at = frequency * nodes.size + line * NODES
            if share_at < len(table):
                _add_row(sums, document * NODES, table, share_at, weight)
            else:
                for node in range(NODES):
                    share = np.float32(frequency / (frequency + nodes[line, node]))
                    sums[document * NODES + node] += weight * share


@compiled
def _raise_bars(query: Any, standing: Any, total: Any, terms: Any, places: Any, bars: Any) -> Any:
    """Write what the sums of a document must reach at one node or more, by its length; False: nothing will do.

    A bar is ``r`` times the shape, ``r`` the least quotient of a score that has to be reached and the shape's chord in
    the intervals on either side. A document below both bars around a point is below that score there, for its own chord
    is. The scores are lowered by what sums in float32, and Lucene's rounding, may be off.
    """
    first, last = standing.offsets[query], standing.offsets[query + 1]
    lowest = standing.lowest[query]
    needed = np.full(len(lowest), np.inf)
    bits = np.empty(1, np.uint32)
    for point in range(len(lowest)):
        if lowest[point] < last - first:
            key = standing.relevant[first + lowest[point], point]
            bits[0] = np.uint32(key >> np.uint64(32)) & np.uint32(0x7FFFFFFF)
            needed[point] = (bits.view(np.float32)[0] - total * 2.0**-20) * (1 - (terms + 32) * 2.0**-23)
    bars[:] = np.inf
    for line in range(len(bars)):
        for point in range(len(lowest)):
            quotient = needed[point] / places.chord[line, point]
            node = places.interval[line, point]
            bars[line, node] = min(bars[line, node], quotient)
            bars[line, node + 1] = min(bars[line, node + 1], quotient)
        for node in range(NODES):
            bars[line, node] *= places.shape[line, node]
    return needed.min() < np.inf


@compiled
def _among(row: Any, rows: Any, low: Any, high: Any) -> Any:
    """Return whether a row is among rising ones, from position ``low`` to before ``high``."""
    while low < high:
        middle = (low + high) // 2
        if rows[middle] == row:
            return True
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return False
