"""Compiled scanning of JSON: strict, and quick to give up.

Every kernel either says where a value ends, or that it is not sure (:data:`UNSURE`). A value is only accepted where any
reader would accept it and agree on what it is; the caller hands the rest to a real one. The arrays that are scanned
end with at least :data:`pipeline.core.compiled.BLOCK` zero bytes, so that every string meets an end.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.compiled import BLOCK, Bytes, compiled, lowest_bit, signed, text_masks
from pipeline.core.keykernels import DIGITS

UNSURE = -1

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125
_DEEPEST = 60


@compiled
def skip_space(data: Bytes, at: int) -> int:
    """Return where the white space of a line, if any, ends."""
    while data[at] == 32 or data[at] == 9 or data[at] == 13:
        at += 1
    return at


@compiled
def plain_end(data: Bytes, at: int) -> int:
    """Return where the string that began before ``at`` ends, if it is printable ASCII without escapes."""
    while True:
        ends, oddities, _ = text_masks(data, at)
        found = lowest_bit(ends | oddities)
        at += found
        if found < BLOCK:
            return at if data[at] == _QUOTE else UNSURE


@compiled
def _hex(data: Bytes, at: int) -> int:
    code = 0
    for place in range(at, at + 4):
        digit = signed(data[place])
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        elif 65 <= digit <= 70:
            digit -= 55
        else:
            return UNSURE
        code = code * 16 + digit
    return code


@compiled
def _escape(data: Bytes, at: int) -> tuple[int, int]:
    """Return the code point of the escape whose backslash is at ``at``, and where it ends."""
    kind = data[at + 1]
    if kind == 117:  # u
        return _hex(data, at + 2), at + 6
    if kind in (_QUOTE, _BACKSLASH, 47):
        return signed(kind), at + 2
    if kind == 110:  # n
        return 10, at + 2
    if kind == 116:  # t
        return 9, at + 2
    if kind == 114:  # r
        return 13, at + 2
    if kind == 98:  # b
        return 8, at + 2
    if kind == 102:  # f
        return 12, at + 2
    return UNSURE, at


@compiled
def _utf8(data: Bytes, at: int) -> tuple[int, int]:
    """Return the code point of the two or three bytes of UTF-8 at ``at``, and where they end."""
    first, second, third = signed(data[at]), signed(data[at + 1]), signed(data[at + 2])
    if second & 0xC0 != 0x80:
        return UNSURE, at
    if 0xC2 <= first <= 0xDF:
        return (first & 0x1F) << 6 | second & 0x3F, at + 2
    code = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    if first & 0xF0 != 0xE0 or third & 0xC0 != 0x80 or code < 0x800:
        return UNSURE, at
    return code, at + 3


@compiled
def character(data: Bytes, at: int) -> tuple[int, int]:
    """Return the code point, under 65,536, of what stopped a scan at ``at``, and where it ends."""
    if data[at] == _BACKSLASH:
        return _escape(data, at)
    if data[at] >= 0xC2:
        return _utf8(data, at)
    return UNSURE, at


@compiled
def _skip_string(data: Bytes, at: int) -> int:
    """Return where the string that began before ``at`` ends, behind its quotation mark."""
    while True:
        ends, oddities, _ = text_masks(data, at)
        found = lowest_bit(ends | oddities)
        at += found
        if found == BLOCK:
            continue
        if data[at] == _QUOTE:
            return at + 1
        code, at = character(data, at)
        if code < 0 or 0xD800 <= code <= 0xDFFF:
            return UNSURE


@compiled
def skip_word(data: Bytes, at: int) -> int:
    """Return where a literal or a whole number ends."""
    a, b, c, d, e = data[at], data[at + 1], data[at + 2], data[at + 3], data[at + 4]
    if a == 110 and b == 117 and c == 108 and d == 108:  # null
        return at + 4
    if a == 116 and b == 114 and c == 117 and d == 101:  # true
        return at + 4
    if a == 102 and b == 97 and c == 108 and d == 115 and e == 101:  # false
        return at + 5
    if a == 45:  # -
        at += 1
    end = at
    while 48 <= data[end] <= 57:
        end += 1
    if end == at or end - at > DIGITS or (data[at] == 48 and end - at > 1):
        return UNSURE
    return UNSURE if data[end] == 46 or data[end] == 69 or data[end] == 101 else end


@compiled
def key_and_value(data: Bytes, at: int) -> tuple[int, int]:
    """Return where the plain key whose quotation mark is at ``at`` ends, and where its value begins."""
    end = plain_end(data, at + 1) if data[at] == _QUOTE else UNSURE
    if end < 0:
        return UNSURE, UNSURE
    at = skip_space(data, end + 1)
    return end, skip_space(data, at + 1) if data[at] == _COLON else UNSURE


@compiled
def skip_value(data: Bytes, at: int) -> int:
    """Return where the value that begins at ``at`` ends."""
    depth = 0
    objects = np.uint64(0)  # bit 0: the innermost container is an object, bit 1: the one around it
    while True:
        first = data[at]
        if first == _QUOTE:
            at = _skip_string(data, at + 1)
        elif first in (_OPEN_LIST, _OPEN_OBJECT):
            is_object = first == _OPEN_OBJECT
            at = skip_space(data, at + 1)
            if data[at] == (_CLOSE_OBJECT if is_object else _CLOSE_LIST):
                at += 1
            else:
                if depth == _DEEPEST:
                    return UNSURE
                depth += 1
                objects = objects << np.uint64(1) | np.uint64(is_object)
                if is_object:
                    at = key_and_value(data, at)[1]
                    if at < 0:
                        return UNSURE
                continue
        else:
            at = skip_word(data, at)
        while depth:
            if at < 0:
                return UNSURE
            at = skip_space(data, at)
            is_object = objects & np.uint64(1) == np.uint64(1)
            if data[at] == _COMMA:
                at = skip_space(data, at + 1)
                if is_object:
                    at = key_and_value(data, at)[1]
                    if at < 0:
                        return UNSURE
                break
            if data[at] != (_CLOSE_OBJECT if is_object else _CLOSE_LIST):
                return UNSURE
            at += 1
            depth -= 1
            objects >>= np.uint64(1)
        if depth == 0:
            return at
