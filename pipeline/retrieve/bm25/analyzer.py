"""Terms of texts, identical to those of Lucene's analyzer but much faster: each distinct word is analysed once.

Lucene's tokenizer reads a text from left to right by a grammar without look-behind (Unicode Standard Annex 29), and no
token contains a separator: an ASCII character that is neither a letter, a digit nor one of ``_ ' . : , ; " # *``. So a
word, the text between two separators, has the same terms alone and in a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.compiled import compiled
from pipeline.retrieve.bm25.forward_index import TermsBlock
from pipeline.retrieve.lucene import Lucene

_WORD_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'.:,;\"#*" + bytes(range(128, 256))
_IN_WORD = np.zeros(256, np.bool_)
_IN_WORD[list(_WORD_BYTES)] = True

MARK = "qz90210zq90210zq"
"""A word that the analyzer does not change; it separates words that are analysed in one call."""

_MARKED = pa.scalar(f" {MARK} ", pa.large_string())

WORDS_PER_CALL = 50_000

_Offsets = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int32]


class Words:
    """Distinct words, ``count`` of them, numbered by first use, in an open hash table."""

    def __init__(self) -> None:
        self.count = 0
        self._slots = np.zeros(2**15, np.int32)
        self._hashes, self._starts = np.empty(2**14, np.uint64), np.zeros(2**14 + 1, np.int64)
        self._bytes = np.empty(2**17, np.uint8)

    @property
    def nbytes(self) -> int:
        """Memory of the table."""
        return self._slots.nbytes + self._hashes.nbytes + self._starts.nbytes + self._bytes.nbytes

    def number(self, texts: pa.Array) -> tuple[_Offsets, _Numbers]:
        """Return the offsets of the words of large strings, int64 ``[texts + 1]``, and the numbers of the words."""
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(data if data is not None else b"", np.uint8)
        numbers, starts = np.empty((int(ends[-1] - ends[0]) + len(texts)) // 2, np.int32), np.zeros_like(ends)
        table = self._slots, self._hashes, self._starts, self._bytes, self.count
        table = number_words(data, ends, _IN_WORD, numbers, starts, table)
        self._slots, self._hashes, self._starts, self._bytes, self.count = table
        return starts, numbers[: starts[-1]].copy()

    def spelled(self, first: int = 0) -> pa.Array:
        """Return the words from number ``first`` as large strings."""
        buffers = [None, pa.py_buffer(self._starts), pa.py_buffer(self._bytes)]
        return pa.Array.from_buffers(pa.large_string(), self.count - first, buffers, offset=first)


class CachedAnalyzer:
    """Analyses blocks of texts with a cache of words, of ``capacity`` bytes or so.

    When it is full, the next block starts with an empty cache.
    """

    def __init__(self, lucene: Lucene, capacity: int) -> None:
        self._lucene, self._capacity = lucene, capacity
        self._clear()

    def _clear(self) -> None:
        self._words, self._vocabulary = Words(), Words()
        self._vocabulary.number(pa.array([MARK], pa.large_string()))  # is number 0
        self._offsets: _Offsets = np.zeros(1, np.int64)
        self._terms: _Numbers = np.empty(0, np.int32)

    def block(self, texts: Iterable[pa.Array]) -> TermsBlock:
        """Return the terms of a block of texts, given as chunks of large strings.

        Terms are numbered in the order of their first use in the block.
        """
        if self._words.nbytes + self._vocabulary.nbytes > self._capacity:
            self._clear()
        numbers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        used: npt.NDArray[np.int64] = np.empty(0, np.int64)
        used_terms = 0
        counts, terms, frequencies, lengths = ([np.empty(0, np.uint32)] for _ in range(4))
        for chunk in texts:
            offsets, words = self._words.number(chunk)
            self._analyse_new_words()
            missing = self._vocabulary.count - len(numbers)
            numbers = np.concatenate([numbers, np.full(missing, -1, np.int32)])
            used = np.concatenate([used, np.empty(missing, np.int64)])
            ends = np.concatenate([[0], np.cumsum(np.diff(self._offsets)[words])])
            size, slots = ends[-1], np.zeros(len(numbers), np.uint32)
            columns = np.empty(len(chunk), np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
            used_terms, entries = count_terms(
                offsets, words, self._offsets, self._terms, numbers, used, used_terms, slots, *columns
            )
            counts.append(columns[0])
            terms.append(columns[1][:entries].copy())
            frequencies.append(columns[2][:entries].copy())
            lengths.append(np.diff(ends[offsets]).astype(np.uint32))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        vocabulary = self._vocabulary.spelled().take(pa.array(used[:used_terms]))
        entries, times = np.concatenate(terms), np.concatenate(frequencies)
        return TermsBlock(starts, entries, times, np.concatenate(lengths), vocabulary)

    def _analyse_new_words(self) -> None:
        """Append the terms of the words that have none yet; many words are analysed in one call."""
        new_words = self._words.spelled(len(self._offsets) - 1)
        for start in range(0, len(new_words), WORDS_PER_CALL):
            words = new_words[start : start + WORDS_PER_CALL]
            together = pc.binary_join(pa.ListArray.from_arrays([0, len(words)], words), _MARKED)
            _, terms = self._vocabulary.number(self._analyse(together))
            marks = np.flatnonzero(terms == 0)
            if len(marks) == len(words) - 1:
                ends = np.append(marks, len(terms)) - np.arange(len(words))
                terms = np.delete(terms, marks)
            else:  # a word contains the mark
                starts, terms = self._vocabulary.number(self._analyse(words))
                ends = starts[1:]
            self._offsets = np.concatenate([self._offsets, self._offsets[-1] + ends])
            self._terms = np.concatenate([self._terms, terms])

    def _analyse(self, texts: pa.Array) -> pa.Array:
        return pa.array([self._lucene.analyse(text) for text in texts.to_pylist()], pa.large_string())


@compiled
def number_words(data: Any, offsets: Any, in_word: Any, numbers: Any, starts: Any, table: Any) -> Any:
    """Write the numbers of the words of texts; a new word gets the next number.

    The table has open addressing and linear probing; it grows to be at most half full.

    Args:
        data: uint8, the bytes of the texts.
        offsets: int64 ``[texts + 1]``, start of each text in ``data``.
        in_word: bool ``[256]``, the bytes of words; all others separate words.
        numbers: int32, written: the numbers of the words of all texts.
        starts: int64 ``[texts + 1]``, written: start of each text in ``numbers``.
        table: int32 ``[2^n]``, 1 + the number of the word in each slot, or 0; by word, its hash, uint64, and its start
            among the bytes of all words, int64 (one more than words); these bytes, uint8; the number of words.

    Returns:
        The table, with larger arrays where the words need them.
    """
    slots, hashes, word_starts, spelled, count = table
    written = 0
    for text in range(len(offsets) - 1):
        place, end = offsets[text], offsets[text + 1]
        starts[text] = written
        while place < end:
            begin, code = place, np.uint64(14695981039346656037)  # FNV-1a
            while place < end and in_word[data[place]]:
                code = (code ^ np.uint64(data[place])) * np.uint64(1099511628211)
                place += 1
            length = place - begin
            place += 1
            if length == 0:
                continue
            slot = np.int64((code ^ code >> np.uint64(32)) & np.uint64(len(slots) - 1))
            while slots[slot] > 0:
                word = slots[slot] - 1
                start = word_starts[word]
                if hashes[word] == code and word_starts[word + 1] - start == length:
                    same = 0
                    while same < length and spelled[start + same] == data[begin + same]:
                        same += 1
                    if same == length:
                        break
                slot = slot + 1 & len(slots) - 1
            if slots[slot] == 0:
                if word_starts[count] + length > len(spelled):
                    spelled = np.concatenate((spelled, np.empty(len(spelled) + length, np.uint8)))
                spelled[word_starts[count] : word_starts[count] + length] = data[begin : begin + length]
                word_starts[count + 1], hashes[count] = word_starts[count] + length, code
                count += 1
                slots[slot] = count
                if count == len(hashes):
                    hashes = np.concatenate((hashes, np.empty_like(hashes)))
                    word_starts = np.concatenate((word_starts, np.empty(count, np.int64)))
                    slots = np.zeros(2 * len(slots), np.int32)
                    for other in range(count):
                        code = hashes[other]
                        slot = np.int64((code ^ code >> np.uint64(32)) & np.uint64(len(slots) - 1))
                        while slots[slot] > 0:
                            slot = slot + 1 & len(slots) - 1
                        slots[slot] = other + 1
                numbers[written] = count - 1
            else:
                numbers[written] = slots[slot] - 1
            written += 1
    starts[len(offsets) - 1] = written
    return slots, hashes, word_starts, spelled, count


@compiled
def count_terms(
    offsets: Any, words: Any, term_offsets: Any, terms: Any, numbers: Any, used: Any, used_terms: int, slots: Any,
    counts: Any, entries: Any, frequencies: Any,
) -> Any:  # fmt: skip
    """Write the distinct terms of each text and their frequencies.

    Args:
        offsets: int64 ``[texts + 1]``, start of the words of each text.
        words: int64 ``[words]``.
        term_offsets: int64 ``[distinct words + 1]``, start of the terms of each word.
        terms: uint32, the terms of the words.
        numbers: int32 ``[distinct terms]``, number of each term in the block, -1 for none yet; changed.
        used: int64 ``[distinct terms]``, the terms of the block by number; changed.
        used_terms: number of terms in ``used``.
        slots: uint32 ``[distinct terms]``, zeros; scratch: slot of each term in the current text, from 1.
        counts: uint32 ``[texts]``, written: number of distinct terms.
        entries: uint32, written: the terms of each text.
        frequencies: uint32, written.

    Returns:
        The new ``used_terms``, and the number of entries written.
    """
    written = 0
    for text in range(len(offsets) - 1):
        begin = written
        for word in range(offsets[text], offsets[text + 1]):
            for i in range(term_offsets[words[word]], term_offsets[words[word] + 1]):
                term = terms[i]
                if numbers[term] < 0:
                    numbers[term] = used_terms
                    used[used_terms] = term
                    used_terms += 1
                number = numbers[term]
                if slots[number] == 0:
                    entries[written] = number
                    frequencies[written] = 0
                    written += 1
                    slots[number] = written - begin
                frequencies[begin + slots[number] - 1] += 1
        for word in range(begin, written):
            slots[entries[word]] = 0
        counts[text] = written - begin
    return used_terms, written
