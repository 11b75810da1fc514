"""Keys of ids and titles, compiled: what :mod:`pipeline.core.text` says, for many strings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.blake2b import digest
from pipeline.core.characters import UNKNOWN, title_forms
from pipeline.core.compiled import Bytes, Ints, Keys, compiled, signed

DIGITS = 18
"""Digits of a number that is its own key."""

_DIGITS_AFTER_LETTER = 16

Forms = npt.NDArray[np.uint16]


@compiled
def write_character(out: Bytes, at: int, code: int) -> int:
    """Write a character below U+10000 to ``out[at:]`` in UTF-8 and return the place behind it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at], out[at + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
        return at + 2
    out[at], out[at + 1], out[at + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
    return at + 3


@compiled
def id_key(data: Bytes, start: int, end: int, work: Keys) -> np.uint64:
    """Return :func:`pipeline.core.text.id_key` of ``data[start:end]``; ``work`` as for :func:`digest`."""
    first = start
    letter = np.uint64(0)
    if end > start and (65 <= data[start] <= 90 or 97 <= data[start] <= 122):
        letter = np.uint64(data[start])
        first += 1
    digits = end - first
    number = np.uint64(0)
    if 0 < digits <= (_DIGITS_AFTER_LETTER if letter else DIGITS) and (data[first] != 48 or digits == 1):
        place = first
        while place < end and 48 <= data[place] <= 57:
            number = number * np.uint64(10) + np.uint64(data[place] - np.uint8(48))
            place += 1
        if place == end:
            if letter:
                return np.uint64(1) << np.uint64(62) | (letter - np.uint64(64)) << np.uint64(56) | number
            return number
    return digest(data, start, end, work) | np.uint64(1) << np.uint64(63)


@compiled
def _title_form(data: Bytes, start: int, end: int, forms: Forms, form: Bytes) -> int:
    """Write the compared form of the title in ``data[start:end]`` and return its length; -1 where the rule is asked."""
    size = 0
    while start < end:
        first = signed(data[start])
        code = first
        more = 0
        if first >= 0xE0:
            code, more = first & 0x0F, 2
        elif first >= 0x80:
            code, more = first & 0x1F, 1
        for place in range(start + 1, start + 1 + more):
            code = code << 6 | signed(data[place]) & 0x3F
        start += 1 + more
        if first >= 0xF0 or code >= len(forms) or forms[code] == UNKNOWN:
            return -1
        code = signed(forms[code])
        if code == 0:
            continue
        size = write_character(form, size, code)
    return size


@compiled
def _id_keys(ends: Ints, data: Bytes, keys: Keys, work: Keys) -> None:
    for row in range(len(keys)):
        keys[row] = id_key(data, ends[row], ends[row + 1], work)


@compiled
def _title_keys(ends: Ints, data: Bytes, forms: Forms, keys: Keys, others: Ints, form: Bytes, work: Keys) -> int:
    """Fill the keys of titles, put the rows of those without key in ``others``, and return how many these are."""
    count = 0
    for row in range(len(keys)):
        size = _title_form(data, ends[row], ends[row + 1], forms, form)
        if size < 0:
            others[count] = row
            count += 1
        else:
            keys[row] = max(digest(form, 0, size, work), np.uint64(1)) if size else np.uint64(0)
    return count


def id_keys(ids: pa.LargeStringArray) -> Keys:
    """Return the key of each id, uint64 ``[n]``."""
    keys = np.empty(len(ids), np.uint64)
    _id_keys(*_buffers(ids), keys, np.empty(24, np.uint64))
    return keys


def title_keys(titles: pa.LargeStringArray) -> tuple[Keys, Ints]:
    """Return the key of each title, uint64 ``[n]``, and the rows of those that have none yet."""
    ends, data = _buffers(titles)
    keys, others = np.empty(len(titles), np.uint64), np.empty(len(titles), np.int64)
    form = np.empty(3 * int(np.diff(ends).max(initial=0)), np.uint8)
    count = _title_keys(ends, data, title_forms(), keys, others, form, np.empty(24, np.uint64))
    return keys, others[:count]


def _buffers(strings: pa.LargeStringArray) -> tuple[Ints, Bytes]:
    _, ends, characters = strings.buffers()
    rows = slice(strings.offset, strings.offset + len(strings) + 1)
    return np.frombuffer(ends, np.int64)[rows], np.frombuffer(characters or b"", np.uint8)
