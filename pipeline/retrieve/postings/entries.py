"""Bags of terms in few bytes: one uint32, an entry, for each distinct term of a text.

Its upper eight bits say how often the text has the term, the others which term it is. Where one of the two is too large
for that, three numbers stand instead: 0, the term, how often. The terms of a block of texts are numbered by falling
frequency, and rise within a bag: what is met most often lies together in every table over the terms, and what kernels
do with an entry depends on its place in the bag, which processors guess well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.compiled import compiled

_TERM_BITS = 24
_TERMS = 1 << _TERM_BITS
_MOST = 255


@compiled
def entry(entries: Any, at: int) -> Any:
    """Return the term of the entry at a place, how often the text has it, and the place behind."""
    packed = np.int64(entries[at])
    times = packed >> _TERM_BITS
    if times > 0:
        return packed & (_TERMS - 1), times, at + 1
    return np.int64(entries[at + 1]), np.int64(entries[at + 2]), at + 3


@compiled
def pack(starts: Any, terms: Any, times: Any, numbers: Any) -> Any:
    """Make entries of the distinct terms of some texts. They are turned round twice, which puts them in order.

    Args:
        starts: int64 ``[texts + 1]``, where each text's terms start.
        terms: uint32, each once in a text.
        times: uint32, how often the text has each.
        numbers: int64 ``[vocabulary]``, the number each is to have.

    Returns:
        Where each bag starts, int64 ``[texts + 1]``, and the entries, uint32.
    """
    edges = np.zeros(len(numbers) + 1, np.int64)
    for term in terms:
        edges[numbers[term] + 1] += 1
    for number in range(len(numbers)):
        edges[number + 1] += edges[number]
    offsets = np.zeros(len(starts), np.int64)
    text_of, times_of = np.empty(len(terms), np.uint32), np.empty(len(terms), np.uint32)
    for text in range(len(starts) - 1):
        offsets[text + 1] = offsets[text]
        for at in range(starts[text], starts[text + 1]):
            number = numbers[terms[at]]
            place = edges[number]
            edges[number] = place + 1
            text_of[place], times_of[place] = text, times[at]
            offsets[text + 1] += 1 if _fits(number, times[at]) else 3
    entries, ends, place = np.empty(offsets[-1], np.uint32), offsets.copy(), np.int64(0)
    for number in range(len(numbers)):
        while place < edges[number]:
            at = ends[text_of[place]]
            if _fits(number, times_of[place]):
                entries[at] = np.int64(times_of[place]) << _TERM_BITS | number
                ends[text_of[place]] = at + 1
            else:
                entries[at], entries[at + 1], entries[at + 2] = 0, number, times_of[place]
                ends[text_of[place]] = at + 3
            place += 1
    return offsets, entries


@compiled
def sound(offsets: Any, entries: Any, lengths: Any, terms: int) -> Any:
    """Return whether bags are such as :func:`pack` makes, so that no kernel leaves its arrays on them.

    Args:
        offsets: int64 ``[bags + 1]``, where each starts.
        entries: uint32.
        lengths: uint32 ``[bags]``, tokens of each.
        terms: size of the vocabulary.
    """
    for bag in range(len(lengths)):
        at, end = offsets[bag], offsets[bag + 1]
        before, tokens = np.int64(-1), np.int64(0)
        if at < 0 or end > len(entries):
            return False
        while at < end:
            if entries[at] < _TERMS and (entries[at] != 0 or at + 3 > end):
                return False
            term, times, at = entry(entries, at)
            if term <= before or term >= terms:
                return False
            before, tokens = term, tokens + times
        if at != end or tokens != lengths[bag]:
            return False
    return True


@compiled
def _fits(number: Any, times: Any) -> Any:
    return number < _TERMS and times <= _MOST
