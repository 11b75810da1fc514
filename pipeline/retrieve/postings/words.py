"""Cutting texts into words and numbering each distinct one, over bytes: the part of analysis that is not Lucene's.

Lucene's tokenizer reads a text from left to right by a grammar without look-behind (Unicode Standard Annex 29), and no
token holds a separator: an ASCII character that is neither letter nor digit nor one of ``_ ' . : , ; " # *``. So what
stands between two separators, a word, is analysed the same alone as in its text. A word of ASCII characters alone may
lose ``. : , ; " '`` at its ends as well: there they join no letters or digits.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.compiled import compiled
from pipeline.retrieve.postings.types import Numbers, Offsets

Bytes = npt.NDArray[np.uint8]

_OF_WORDS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'.:,;\"#*" + bytes(range(128, 256))
_TRIMMED = b".:,;\"'"

_SEPARATOR, _LETTER, _TRIM, _FOREIGN = 0, 1, 2, 3


def kinds(*, whole: bool = False) -> Bytes:
    """Return what each byte is to :func:`number`, uint8 ``[256]``.

    Args:
        whole: only spaces separate, and nothing is trimmed: for text that is a list of words already.
    """
    table = np.full(256, _LETTER if whole else _SEPARATOR, np.uint8)
    if whole:
        table[ord(" ")] = _SEPARATOR
        return table
    table[list(_OF_WORDS)] = _LETTER
    table[list(_TRIMMED)] = _TRIM
    table[128:] = _FOREIGN
    return table


class WordTable:
    """Distinct words, numbered from 0 in the order in which they were met.

    Attributes:
        count: how many there are.
        starts: int64 ``[count + 1 or more]``, where each word starts in ``letters``.
        letters: uint8, the words in UTF-8, one behind the other.
    """

    def __init__(self, kinds: Bytes) -> None:
        self._kinds = kinds
        self._slots = np.full(1 << 12, -1, np.int32)
        self._hashes = np.empty(1 << 11, np.uint64)
        self.count = 0
        self.starts: Offsets = np.zeros((1 << 11) + 1, np.int64)
        self.letters: Bytes = np.empty(1 << 14, np.uint8)

    def number(self, data: Bytes, offsets: Offsets) -> tuple[Numbers, Offsets]:
        """Return the number of every word of some texts; new words are added.

        Args:
            data: uint8, UTF-8.
            offsets: int64 ``[texts + 1]``, where each text starts in ``data``.

        Returns:
            The words, uint32 ``[words]``, and how many the texts up to each have, int64 ``[texts + 1]``.
        """
        size = int(offsets[-1] - offsets[0])
        self._make_room(size // 2 + len(offsets), size)
        words = np.empty(size // 2 + len(offsets), np.uint32)
        ends = np.zeros(len(offsets), np.int64)
        self.count = number(
            data,
            offsets,
            self._kinds,
            self._slots,
            self._hashes,
            self.starts,
            self.letters,
            self.count,
            words,
            ends,
        )
        return words[: ends[-1]].copy(), ends

    def spelled(self, first: int) -> list[str]:
        """Return the words from number ``first`` on."""
        whole = self.letters[: self.starts[self.count]].tobytes()
        edges = self.starts[first : self.count + 1].tolist()
        return [whole[a:b].decode() for a, b in itertools.pairwise(edges)]

    def array(self, words: npt.NDArray[np.integer]) -> pa.Array:
        """Return words by number, as large strings."""
        lengths = np.diff(self.starts[: self.count + 1])
        offsets = np.concatenate([[0], np.cumsum(lengths[words])])
        places = np.repeat(self.starts[words] - offsets[:-1], lengths[words]) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(self.letters[places])]
        return pa.Array.from_buffers(pa.large_string(), len(words), buffers)

    def _make_room(self, words: int, size: int) -> None:
        wanted = self.count + words
        if wanted > len(self._hashes):
            room = 1 << int(wanted).bit_length()
            self._hashes = np.resize(self._hashes, room)
            self.starts = np.resize(self.starts, room + 1)
            self._slots = np.full(2 * room, -1, np.int32)
            place(self._slots, self._hashes, self.count)
        wanted = int(self.starts[self.count]) + size
        if wanted > len(self.letters):
            self.letters = np.resize(self.letters, 1 << wanted.bit_length())


def text_bytes(texts: pa.Array) -> tuple[Bytes, Offsets]:
    """Return the bytes of large strings and where each starts, by reference."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8), offsets


@compiled
def place(slots: Any, hashes: Any, count: int) -> None:
    """Enter words into an empty table of slots, int32 ``[power of two]``, -1 where empty."""
    mask = np.uint64(len(slots) - 1)
    for word in range(count):
        slot = hashes[word] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@compiled
def number(
    data: Any,
    offsets: Any,
    kinds: Any,
    slots: Any,
    hashes: Any,
    starts: Any,
    letters: Any,
    count: int,
    words: Any,
    ends: Any,
) -> int:
    """Do what :meth:`WordTable.number` says; return how many words there are now."""
    mask = np.uint64(len(slots) - 1)
    done = 0
    for text in range(len(offsets) - 1):
        at, stop = offsets[text], offsets[text + 1]
        while at < stop:
            while at < stop and kinds[data[at]] == _SEPARATOR:
                at += 1
            first, foreign = at, False
            while at < stop and kinds[data[at]] != _SEPARATOR:
                foreign |= kinds[data[at]] == _FOREIGN
                at += 1
            last = at
            if not foreign:
                while first < last and kinds[data[first]] == _TRIM:
                    first += 1
                while first < last and kinds[data[last - 1]] == _TRIM:
                    last -= 1
            if first == last:
                continue
            key = np.uint64(14695981039346656037)
            for i in range(first, last):
                key = (key ^ np.uint64(data[i])) * np.uint64(1099511628211)
            key ^= key >> np.uint64(29)
            slot = key & mask
            length = last - first
            while True:
                word = np.int64(slots[slot])
                if word < 0:
                    word = np.int64(count)
                    slots[slot] = word
                    hashes[word] = key
                    begin = starts[word]
                    for i in range(length):
                        letters[begin + i] = data[first + i]
                    starts[word + 1] = begin + length
                    count += 1
                    break
                if hashes[word] == key and starts[word + 1] - starts[word] == length:
                    begin, same = starts[word], True
                    for i in range(length):
                        same &= letters[begin + i] == data[first + i]
                    if same:
                        break
                slot = (slot + np.uint64(1)) & mask
            words[done] = word
            done += 1
        ends[text + 1] = done
    return count


@compiled
def collect(
    words: Any, ends: Any, term_starts: Any, terms: Any, numbers: Any, vocabulary: Any, known: int, bags: Any
) -> int:
    """Write the distinct terms of each text, and number the terms of a block of texts by first use.

    Args:
        words: uint32 ``[words]``, of all texts.
        ends: int64 ``[texts + 1]``.
        term_starts: int64 ``[distinct words + 1]``, the terms of each word.
        terms: uint32 ``[...]``.
        numbers: int32 ``[distinct terms]``, number of each term in the block, -1 where it has none yet; changed.
        vocabulary: uint32 ``[distinct terms]``, the reverse; changed.
        known: how many terms the block has.
        bags: :class:`~pipeline.retrieve.postings.types.Terms` with room for all tokens, a zero at the start; written,
            with terms by number in the block.

    Returns:
        How many terms the block has now.
    """
    starts, met, times_of = bags
    times = np.zeros(len(numbers), np.uint32)
    done = 0
    for text in range(len(ends) - 1):
        first = done
        for place in range(ends[text], ends[text + 1]):
            word = words[place]
            for at in range(term_starts[word], term_starts[word + 1]):
                term = terms[at]
                local = numbers[term]
                if local < 0:
                    local = np.int32(known)
                    numbers[term], vocabulary[known] = local, term
                    known += 1
                if times[local] == 0:
                    met[done] = local
                    done += 1
                times[local] += 1
        for at in range(first, done):
            times_of[at] = times[met[at]]
            times[met[at]] = 0
        starts[text + 1] = done
    return known
