"""Titles and abstracts of the synthetic corpus, written byte by byte."""

from __future__ import annotations

import numpy as np

from pipeline.core.compiled import compiled, signed
from pipeline.sources.synthetic_layout import Graph, Ints
from pipeline.sources.synthetic_lexicon import (
    BORROWED,
    COINED,
    FIELD_WORDS,
    OWN,
    SLOTS,
    Lexicon,
    borrowed_words,
    own_words,
)
from pipeline.sources.synthetic_words import GOLDEN, LONGEST, Bytes, WordTable, below, mix

# Out of 65,536: function words after one of them, and after another word; then the kinds of the other words.
_FUNCTION_AGAIN, _FUNCTION_NEXT = np.uint64(12_000), np.uint64(36_000)
_IS_GENERAL, _IS_FIELD, _IS_CONCEPT = np.uint64(27_000), np.uint64(38_000), np.uint64(51_500)
_TITLE_FUNCTION, _TITLE_GENERAL = np.uint64(17_000), np.uint64(25_000)
_TITLE_FIELD, _TITLE_CONCEPT = np.uint64(31_000), np.uint64(56_000)
_COMMA, _STOP = np.uint64(62_500), np.uint64(61_000)

SHORT_ABSTRACT = 2
"""Words of an abstract too short to be one (under 30 characters, nearly always)."""

_SPACE, _FULL_STOP, _COMMA_SIGN = ord(" "), ord("."), ord(",")
_CASE = ord("a") - ord("A")


@compiled
def _put(table: WordTable, word: int, capital: bool, out: Bytes, at: int) -> int:
    length = table.length[word]
    for letter in range(length):
        out[at + letter] = table.letters[word, letter]
    if capital:
        out[at] -= _CASE
    return at + signed(length)


@compiled
def _write_abstract(
    v: Lexicon, state: np.uint64, words: int, field: int, second: int, slots: WordTable, borrowed: int, out: Bytes
) -> int:
    """Write one abstract into ``out`` and return its length in bytes."""
    at = 0
    after_function, start, since = False, True, 0
    low = np.uint64(0xFFFF)
    for number in range(words):
        state += GOLDEN
        random = mix(state)
        kind, pick, other, mark = (
            random & low,
            (random >> np.uint64(16)) & low,
            (random >> np.uint64(32)) & low,
            random >> np.uint64(48),
        )
        function = bool(kind < (_FUNCTION_AGAIN if after_function else _FUNCTION_NEXT))
        if function and number + 1 < words:
            at = _put(v.words, v.pick_function[pick], start, out, at)
        elif other < _IS_GENERAL or words <= SHORT_ABSTRACT:
            at = _put(v.words, v.functions + signed(v.pick_general[pick]), start, out, at)
        elif other < _IS_FIELD:
            of = second if second >= 0 and mark & np.uint64(3) == np.uint64(0) else field
            at = _put(v.words, v.fields + of * FIELD_WORDS + signed(v.pick_field[pick]), start, out, at)
        elif other < _IS_CONCEPT:
            at = _put(slots, v.pick_concept[pick >> np.uint64(8)], start, out, at)
        else:
            own = borrowed == 0 or pick < np.uint64(22_000)
            chosen = below(mix(random), COINED if own else borrowed)
            at = _put(slots, (OWN if own else BORROWED) + chosen, start, out, at)
        since += 1
        start = bool(number + 1 < words and not function and since > 7 and mark > _STOP)
        if start or number + 1 == words:
            out[at] = _FULL_STOP
            at += 1
            since = 0
        elif not function and since > 2 and mark > _COMMA:
            out[at] = _COMMA_SIGN
            at += 1
        if number + 1 < words:
            out[at] = _SPACE
            at += 1
        after_function = function and not start
    return at


@compiled
def _write_title(v: Lexicon, state: np.uint64, words: int, field: int, slots: WordTable, out: Bytes) -> int:
    """Write one title into ``out`` and return its length in bytes."""
    at = 0
    after_function = True
    used = np.uint64(0)
    for number in range(words):
        state += GOLDEN
        random = mix(state)
        kind, pick = random & np.uint64(0xFFFF), (random >> np.uint64(16)) & np.uint64(0xFFFF)
        start = number == 0
        if kind < _TITLE_FUNCTION and not after_function and number + 1 < words:
            at = _put(v.words, v.pick_function[pick], start, out, at)
            after_function = True
        else:
            slot = v.pick_concept[pick >> np.uint64(8)] if kind < _TITLE_CONCEPT else OWN + below(random, COINED)
            named = np.uint64(1) << np.uint64(slot)
            if kind < _TITLE_GENERAL:
                at = _put(v.words, v.functions + signed(v.pick_general[pick]), start, out, at)
            elif kind < _TITLE_FIELD or used & named:
                at = _put(v.words, v.fields + field * FIELD_WORDS + signed(v.pick_field[pick]), start, out, at)
            else:
                used |= named
                at = _put(slots, slot, start, out, at)
            after_function = False
        if number + 1 < words:
            out[at] = _SPACE
            at += 1
    return at


@compiled
def abstracts(
    g: Graph, v: Lexicon, rows: Ints, topics: Ints, second: Ints, words: Ints, indptr: Ints, cited: Ints, offsets: Ints
) -> Bytes:
    """Write the abstracts of ``rows``.

    Args:
        g: the graph.
        v: the vocabulary.
        rows: int64 ``[n]``.
        topics: int64 ``[n]``.
        second: int64 ``[n]``, a further field of the paper, or -1.
        words: int64 ``[n]``, length of each abstract; 0 for none.
        indptr: int64 ``[n + 1]``, offsets into ``cited``.
        cited: int64, rows each paper cites.
        offsets: int64 ``[n + 1]``, filled with the offsets of the texts.

    Returns:
        UTF-8 of all abstracts.
    """
    longest = LONGEST + 2
    out = np.empty(words.sum() * longest + 1, np.uint8)
    slots = WordTable(np.empty((SLOTS, LONGEST), np.uint8), np.empty(SLOTS, np.uint8))
    at = 0
    offsets[0] = 0
    for number in range(len(rows)):
        row = rows[number]
        if words[number]:
            own_words(g, v, row, topics[number], slots)
            borrowed = borrowed_words(g, v, row, cited[indptr[number] : indptr[number + 1]], slots)
            state = mix(v.salts[2] + np.uint64(row) * GOLDEN)
            field = g.topic_field[topics[number]]
            at += _write_abstract(v, state, words[number], field, second[number], slots, borrowed, out[at:])
        offsets[number + 1] = at
    return out[:at].copy()


@compiled
def titles(g: Graph, v: Lexicon, rows: Ints, topics: Ints, offsets: Ints) -> Bytes:
    """Write the titles of ``rows`` (int64 ``[n]``), fill ``offsets`` (int64 ``[n + 1]``) and return the UTF-8."""
    out = np.empty(len(rows) * 32 * (LONGEST + 1) + 1, np.uint8)
    slots = WordTable(np.empty((SLOTS, LONGEST), np.uint8), np.empty(SLOTS, np.uint8))
    at = 0
    offsets[0] = 0
    for number in range(len(rows)):
        own_words(g, v, rows[number], topics[number], slots)
        state = mix(v.salts[3] + np.uint64(rows[number]) * GOLDEN)
        words = signed(v.title_words[state & np.uint64(len(v.title_words) - 1)])
        at += _write_title(v, state, words, g.topic_field[topics[number]], slots, out[at:])
        offsets[number + 1] = at
    return out[:at].copy()
