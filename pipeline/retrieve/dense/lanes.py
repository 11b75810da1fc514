"""What a processor does to 64 numbers at once and Numba has no name for, for kernels.

Loading this loads Numba. Kernels that call it are kept on disk, and do not notice its changes: after an edit remove
``__pycache__/*.nb*``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

STRIDE = 64
"""Numbers looked at together: a bit each of a uint64."""

_LINE = 64
"""Bytes of a line of the cache."""

_FLOATS = ir.VectorType(ir.FloatType(), STRIDE)
_WORDS = ir.VectorType(ir.IntType(32), STRIDE)
_MASK = ir.IntType(STRIDE)
_SUMS = ir.VectorType(ir.IntType(32), STRIDE // 4)
_BYTES = ir.IntType(8).as_pointer()

_SUMS_OF_BYTES = "+avx512vnni"
"""What LLVM calls the instructions that multiply bytes and add four products each in 32 bits."""


def _load(context: Any, builder: Any, start: Any, kind: Any) -> Any:
    """Generate the 64 numbers from a pointer on."""
    lanes = ir.VectorType(kind, STRIDE)
    return builder.load(builder.bitcast(start, lanes.as_pointer()), align=kind.get_abi_size(context.target_data))


def _all(builder: Any, value: Any) -> Any:
    """Generate 64 times the same number."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, STRIDE), ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(_WORDS, [0] * STRIDE))


def _mask_of(builder: Any, lanes: Any) -> Any:
    return builder.bitcast(lanes, _MASK)


def row_of(builder: Any, array: Any, row: Any) -> Any:
    """Generate the pointer to a row of a matrix without gaps."""
    return builder.gep(array.data, [builder.mul(row, builder.extract_value(array.shape, 1))])


def for_each(context: Any, builder: Any, rows: list[Any], size: Any, use: Callable[[list[Any]], None]) -> None:
    """Generate the use of each 64 numbers of some rows of float32 so long, the last ones filled up with zeros."""
    step = size.type(STRIDE)
    rest = builder.urem(size, step)
    whole = builder.sub(size, rest)
    with cgutils.for_range_slice(builder, step.type(0), whole, step) as (at, _):
        use([_load(context, builder, builder.gep(row, [at]), ir.FloatType()) for row in rows])
    with builder.if_then(builder.icmp_unsigned("!=", rest, step.type(0))):
        filled = [cgutils.alloca_once(builder, ir.FloatType(), STRIDE) for _ in rows]
        for row, start in zip(rows, filled, strict=True):
            cgutils.memset(builder, start, step.type(4 * STRIDE), 0)
            cgutils.raw_memcpy(builder, start, builder.gep(row, [whole]), rest, 4)
        use([_load(context, builder, start, ir.FloatType()) for start in filled])


def folded(builder: Any, lanes: Any) -> Any:
    """Generate the sum of a vector's lanes: of its halves, of theirs, and so on."""
    while lanes.type.count > 1:
        width = lanes.type.count // 2
        picked = [
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width))) for start in (0, width)
        ]
        halves = (builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), p) for p in picked)
        lanes = (builder.add if isinstance(lanes.type.element, ir.IntType) else builder.fadd)(*halves)
    return builder.extract_element(lanes, ir.IntType(32)(0))


def as_floats(builder: Any, products: Any) -> Any:
    """Generate float32 of products, one or a vector of them: they are it, or bfloat16 by their bits, or int32."""
    vector = isinstance(products.type, ir.VectorType)

    def alike(kind: Any) -> Any:
        return ir.VectorType(kind, products.type.count) if vector else kind

    kind = products.type.element if vector else products.type
    if kind == ir.FloatType():
        return products
    if kind == ir.IntType(32):
        return builder.sitofp(products, alike(ir.FloatType()))
    word = alike(ir.IntType(32))
    upper = ir.Constant(word, [16] * products.type.count if vector else 16)
    return builder.bitcast(builder.shl(builder.zext(products, word), upper), alike(ir.FloatType()))


@intrinsic  # type: ignore[untyped-decorator]
def widened(_typing: Any, value: Any) -> Any:
    """Return a product as float32: it is one, or the 16 bits of a bfloat16, the upper half of one, or an int32."""
    if value not in (types.float32, types.uint16, types.int32):
        raise TypingError(f"there is no product of type {value}")
    return types.float32(value), lambda _context, builder, _signature, arguments: as_floats(builder, arguments[0])


@intrinsic  # type: ignore[untyped-decorator]
def ask_for(_typing: Any, matrix: Any, _row: Any) -> Any:
    """Have a row of a float32 matrix brought into the cache while something else is computed."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        array = context.make_array(matrix)(context, builder, arguments[0])
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, word, word, word])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        row = builder.bitcast(row_of(builder, array, arguments[1]), _BYTES)
        size = builder.mul(builder.extract_value(array.shape, 1), ir.IntType(64)(4))
        with cgutils.for_range_slice(builder, size.type(0), size, size.type(_LINE)) as (place, _):
            builder.call(ask, [builder.gep(row, [place]), word(0), word(2), word(1)])
        return context.get_dummy_value()

    return types.void(matrix, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def whole_products(_typing: Any, some: Any, rows: Any, _first: Any, other: Any) -> Any:
    """Return the products of some rows of whole numbers, from a column on, with others, int32.

    Args:
        some: int8 ``[q, w]``.
        rows: which of them, int64; two take less than each by itself, for the others are read once.
        first: of the columns.
        other: uint8, as many as columns are wanted: a multiple of 64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = (context.make_array(kind)(context, builder, arguments[n]) for n, kind in ((0, some), (3, other)))
        several = cgutils.unpack_tuple(builder, arguments[1])
        starts = [builder.gep(row_of(builder, a, row), [arguments[2]]) for row in several]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [0] * _SUMS.count)) for _ in starts]
        add = _add_by_instruction if _SUMS_OF_BYTES in context.codegen().magic_tuple()[-1] else _add_in_words
        size = builder.extract_value(b.shape, 0)
        with cgutils.for_range_slice(builder, size.type(0), size, size.type(STRIDE)) as (at, _):
            unsigned = _load(context, builder, builder.gep(b.data, [at]), ir.IntType(8))
            for lanes, start in zip(sums, starts, strict=True):
                signed = _load(context, builder, builder.gep(start, [at]), ir.IntType(8))
                builder.store(add(builder, builder.load(lanes), unsigned, signed), lanes)
        found = [folded(builder, builder.load(lanes)) for lanes in sums]
        return context.make_tuple(builder, signature.return_type, found)

    whole = types.UniTuple(types.int64, len(rows))
    return types.UniTuple(types.int32, len(rows))(some, whole, types.int64, other), generate


def _add_by_instruction(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """Generate the sums of four products of bytes each, added to 16 sums: one instruction."""
    kind = ir.FunctionType(_SUMS, [_SUMS] * 3)
    add = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return builder.call(add, [sums, builder.bitcast(unsigned, _SUMS), builder.bitcast(signed, _SUMS)])


def _add_in_words(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """Generate sums of the same products, four of them each, for any processor: LLVM knows the pattern."""
    products = builder.mul(builder.zext(unsigned, _WORDS), builder.sext(signed, _WORDS))
    for half in range(0, STRIDE, STRIDE // 2):
        even, odd = (
            ir.Constant(ir.VectorType(ir.IntType(32), _SUMS.count), list(range(half + first, half + STRIDE // 2, 2)))
            for first in (0, 1)
        )
        pairs = (builder.shuffle_vector(products, ir.Constant(_WORDS, ir.Undefined), some) for some in (even, odd))
        sums = builder.add(sums, builder.add(*pairs))
    return sums


@intrinsic  # type: ignore[untyped-decorator]
def reaching(_typing: Any, values: Any, _first: Any, _least: Any) -> Any:
    """Return a mask, uint64: bit ``i`` where ``values[first + i]``, float32, is at least so much."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(values)(context, builder, arguments[0]).data
        loaded = _load(context, builder, builder.gep(data, [arguments[1]]), ir.FloatType())
        return _mask_of(builder, builder.fcmp_ordered(">=", loaded, _all(builder, arguments[2])))

    return types.uint64(values, types.int64, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def marked(_typing: Any, masks: Any, _first: Any, _number: Any) -> Any:
    """Return a mask, uint64: bit ``i`` where ``masks[first + i]``, unsigned, has the bit of a number."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(masks)(context, builder, arguments[0]).data
        kind = context.get_data_type(masks.dtype)
        loaded = _load(context, builder, builder.gep(data, [arguments[1]]), kind)
        number = builder.trunc(arguments[2], kind) if kind.width < arguments[2].type.width else arguments[2]
        found = builder.and_(loaded, _all(builder, builder.shl(kind(1), number)))
        return _mask_of(builder, builder.icmp_unsigned("!=", found, ir.Constant(found.type, [0] * STRIDE)))

    return types.uint64(masks, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def near(
    _typing: Any,
    tile: Any,
    _query: Any,
    _word: Any,
    known: Any,
    _start: Any,
    _unit: Any,
    _length: Any,
    _rounding: Any,
    thresholds: Any,
    marks: Any,
) -> Any:
    """Return a mask, uint64: which of 64 pairs of a tile's row could be among the best of a pool of the candidate.

    Those are they whose estimate and margin, as of :func:`pipeline.retrieve.dense.sieves.sieve`, reach the pool's
    threshold together. ``known`` is bias, spread and grains of the block; ``marks`` has a row for each pool, a bit a
    candidate.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        products_of, thresholds_of, marks_of = (
            context.make_array(kind)(context, builder, arguments[n])
            for n, kind in ((0, tile), (8, thresholds), (9, marks))
        )

        def place(array: Any, row: Any, column: Any) -> Any:
            at = builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), column)
            return builder.gep(array.data, [at])

        query, word = arguments[1:3]
        first = builder.mul(word, word.type(STRIDE))
        start = place(products_of, query, first)
        products = as_floats(builder, _load(context, builder, start, context.get_data_type(tile.dtype)))
        at = builder.add(arguments[4], first)
        bias, spread, grains = (
            _load(
                context,
                builder,
                builder.gep(context.make_array(kind)(context, builder, value).data, [at]),
                ir.FloatType(),
            )
            for kind, value in zip(known, cgutils.unpack_tuple(builder, arguments[3]), strict=True)
        )
        unit, length, rounding = (_all(builder, value) for value in arguments[5:8])
        if tile.dtype == types.int32:
            products = builder.fmul(products, builder.fmul(unit, grains))
        margin = builder.fmul(length, spread)
        if tile.dtype == types.uint16:
            positive = ir.Constant(_WORDS, [0x7FFFFFFF] * STRIDE)
            size = builder.bitcast(builder.and_(builder.bitcast(products, _WORDS), positive), _FLOATS)
            margin = builder.fadd(margin, builder.fmul(rounding, size))
        upper = builder.fadd(builder.fadd(products, bias), margin)
        found = cgutils.alloca_once_value(builder, _MASK(0))
        with cgutils.for_range(builder, builder.extract_value(thresholds_of.shape, 1)) as loop:
            least = _all(builder, builder.load(place(thresholds_of, query, loop.index)))
            here = builder.load(place(marks_of, loop.index, word))
            here = builder.and_(here, _mask_of(builder, builder.fcmp_ordered(">=", upper, least)))
            builder.store(builder.or_(builder.load(found), here), found)
        return builder.load(found)

    single, whole = types.float32, types.int64
    signature = types.uint64(tile, whole, whole, known, whole, single, single, single, thresholds, marks)
    return signature, generate
