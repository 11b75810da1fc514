"""Compiled copying of JSON into columns: normalised texts, and keys of lists of ids."""

from __future__ import annotations

import numpy as np

from pipeline.core.characters import ODD, SPACE
from pipeline.core.compiled import BLOCK, Bytes, Keys, compiled, copy_block, lowest_bit, text_masks
from pipeline.core.keykernels import DIGITS, id_key, write_character
from pipeline.sources.jsonscan import UNSURE, character, plain_end, skip_space, skip_word

_QUOTE, _COMMA, _OPEN_LIST, _CLOSE_LIST, _NULL = 34, 44, 91, 93, 110
_GAPS = (75_991, 25_330, 8_443, 2_814, 938, 301, 132, 57, 23, 10, 4, 1)


@compiled
def copy_text(data: Bytes, at: int, out: Bytes, to: int, classes: Bytes) -> tuple[int, int]:
    """Copy the string that begins behind ``at``, normalised: runs of white space as one space, stripped.

    Args:
        data: uint8.
        at: behind the opening quotation mark.
        out: uint8, with room for the string and a block.
        to: where to write.
        classes: :func:`pipeline.core.characters.classes`.

    Returns:
        Where the string ends, behind its quotation mark (or :data:`UNSURE`), and where the copy ends.
    """
    start = to
    after_space = np.uint64(1)
    while True:
        ends, oddities, spaces = text_masks(data, at)
        again = spaces & (spaces << np.uint64(1) | after_space)
        found = lowest_bit(ends | oddities | again)
        copy_block(data, at, out, to)
        at += found
        to += found
        if found:
            after_space = np.uint64(data[at - 1] == 32)
        if found == BLOCK:
            continue
        if data[at] == _QUOTE:
            return at + 1, to - 1 if after_space and to > start else to
        if data[at] == 32:
            at += 1
            continue
        code, at = character(data, at)
        if code < 0 or classes[code] == ODD:
            return UNSURE, start
        if classes[code] == SPACE:
            if not after_space:
                out[to] = 32
                to += 1
                after_space = np.uint64(1)
            continue
        after_space = np.uint64(0)
        to = write_character(out, to, code)


@compiled
def copy_keys(data: Bytes, at: int, out: Keys, to: int, work: Keys) -> tuple[int, int]:
    """Copy the keys of a list of plain ids, or of null.

    Args:
        data: uint8.
        at: where the value begins.
        out: uint64, with room for one key each 4 bytes of the list.
        to: where to write.
        work: uint64 ``[24]``, overwritten.

    Returns:
        Where the value ends (or :data:`UNSURE`), and where the copy ends.
    """
    if data[at] != _OPEN_LIST:
        at = skip_word(data, at) if data[at] == _NULL else UNSURE
        return at, to
    at = skip_space(data, at + 1)
    if data[at] == _CLOSE_LIST:
        return at + 1, to
    while True:
        if data[at] != _QUOTE:
            return UNSURE, to
        start = at + 1
        at = start
        number = np.uint64(0)
        while 48 <= data[at] <= 57:
            number = number * np.uint64(10) + np.uint64(data[at] - np.uint8(48))
            at += 1
        if data[at] != _QUOTE or at == start or at - start > DIGITS or (data[start] == 48 and at - start > 1):
            at = plain_end(data, start)
            if at < 0:
                return UNSURE, to
            number = id_key(data, start, at, work)
        out[to] = number
        to += 1
        at = skip_space(data, at + 1)
        if data[at] == _CLOSE_LIST:
            return at + 1, to
        if data[at] != _COMMA:
            return UNSURE, to
        at = skip_space(data, at + 1)


@compiled
def distinct(keys: Keys, start: int, end: int, own: np.uint64) -> int:
    """Sort ``keys[start:end]`` in place, leave one of each and none that is ``own``, and return the new end."""
    for gap in _GAPS:  # Shell's method: lists are short, most of them nearly sorted
        for place in range(start + gap, end):
            key = keys[place]
            while place - gap >= start and keys[place - gap] > key:
                keys[place] = keys[place - gap]
                place -= gap
            keys[place] = key
    kept = start
    for place in range(start, end):
        key = keys[place]
        if key != own and (kept == start or key != keys[kept - 1]):
            keys[kept] = key
            kept += 1
    return kept
