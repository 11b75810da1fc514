"""Sums over the terms that many documents of a block have, 128 documents at a time.

The impacts of such a term lie as a line over the documents. All lines over the same 128 documents, a tile, lie together
in a core's nearest cache, where many queries read them one after the other; the sums of a query over a tile stay in
registers, in 16 bits, as long as they are sure to fit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from pipeline.core.compiled import compiled

TILE = 128
"""Documents of a tile: a vector of so many 16-bit numbers is eight registers of 256 bits."""

_HALVES, _WHOLES = (ir.VectorType(ir.IntType(bits), TILE) for bits in (16, 32))
_MOST = 65_535


@intrinsic  # type: ignore[untyped-decorator]
def _add_lines(
    _typing: Any, lines: Any, base: Any, starts: Any, times: Any, first: Any, last: Any, sums: Any, to: Any
) -> Any:
    """Add ``times[i] * lines[base + starts[i]:]`` to ``sums[to:]`` for ``first <= i < last``, a tile of each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, arguments[which]).data

        lines, starts, times, sums = map(data, (0, 2, 3, 6))
        first, last = arguments[4], arguments[5]
        before, loop, behind = builder.block, *map(builder.append_basic_block, ("line", "behind"))
        builder.cbranch(builder.icmp_signed("<", first, last), loop, behind)

        builder.position_at_end(loop)
        i, total = builder.phi(ir.IntType(64)), builder.phi(_HALVES)
        start = builder.add(arguments[1], builder.load(builder.gep(starts, [i])))
        line = builder.load(builder.bitcast(builder.gep(lines, [start]), _HALVES.as_pointer()), align=2)
        factor = builder.insert_element(
            ir.Constant(_HALVES, ir.Undefined), builder.load(builder.gep(times, [i])), ir.Constant(ir.IntType(32), 0)
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), TILE), None)
        factors = builder.shuffle_vector(factor, ir.Constant(_HALVES, ir.Undefined), lanes)
        added = builder.add(total, builder.mul(factors, line))
        following = builder.add(i, ir.Constant(ir.IntType(64), 1))
        for phi, outside, inside in ((i, first, following), (total, ir.Constant(_HALVES, None), added)):
            phi.add_incoming(outside, before)
            phi.add_incoming(inside, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, behind)

        builder.position_at_end(behind)
        result = builder.phi(_HALVES)
        result.add_incoming(ir.Constant(_HALVES, None), before)
        result.add_incoming(added, loop)
        place = builder.bitcast(builder.gep(sums, [arguments[7]]), _WHOLES.as_pointer())
        builder.store(builder.add(builder.load(place, align=4), builder.zext(result, _WHOLES)), place, align=4)
        return context.get_dummy_value()

    return numba.types.void(lines, base, starts, times, first, last, sums, to), generate


@compiled
def add_lines(first: int, last: int, queries: Any, units: Any, weights: Any, sums: Any) -> None:
    """Write what the terms with lines add to each document, for some queries.

    Args:
        first: the first of the queries.
        last: the one behind the last.
        queries: :class:`~pipeline.retrieve.postings.types.Terms` of all queries.
        units: float32 ``[terms + 1]``, what each term adds at most.
        weights: :class:`~pipeline.retrieve.postings.types.Weights`.
        sums: uint32 ``[last - first or more, documents of all tiles]``, written.
    """
    count, size = weights.lines.shape[1], weights.lines.shape[1] * TILE
    lines, flat = weights.lines.reshape(-1), sums.reshape(-1)
    sums[: last - first] = 0
    starts, times, ends, query_of = _together(first, last, queries, units, weights.line_of)
    for tile in range(len(weights.lines) if count else 0):
        begin = 0
        for group in range(len(ends)):
            to = query_of[group] * sums.shape[1] + tile * TILE
            _add_lines(lines, tile * size, starts, times, begin, ends[group], flat, to)
            begin = ends[group]


@compiled
def _together(first: Any, last: Any, queries: Any, units: Any, line_of: Any) -> Any:
    """Divide the lines that queries ask for into groups whose sums are sure to fit 16 bits.

    Returns:
        Where each line starts in a tile, int64, how often it is added, uint16, where the groups end, int64, and their
        queries, int64 from 0. A term that a query has so often that this alone does not fit is divided too.
    """
    room = np.int64(0)
    for at in range(queries.starts[first], queries.starts[last]):
        room += 1 + np.int64(queries.times[at]) // 4
    starts, times = np.empty(room, np.int64), np.empty(room, np.uint16)
    ends, query_of = np.empty(room, np.int64), np.empty(room, np.int64)
    done, groups = 0, 0
    for query in range(first, last):
        total: Any = 0
        begin = done
        for at in range(queries.starts[query], queries.starts[query + 1]):
            term, left = queries.terms[at], np.int64(queries.times[at])
            if line_of[term] < 0:
                continue
            impact = np.int64(units[term]) + 2
            while left > 0:
                some = min(left, _MOST // impact)
                if total + some * impact > _MOST:
                    ends[groups], query_of[groups], total = done, query - first, 0
                    groups += 1
                    begin = done
                starts[done], times[done] = np.int64(line_of[term]) * TILE, some
                total += some * impact
                left -= some
                done += 1
        if done > begin:
            ends[groups], query_of[groups] = done, query - first
            groups += 1
    return starts[:done], times[:done], ends[:groups], query_of[:groups]
