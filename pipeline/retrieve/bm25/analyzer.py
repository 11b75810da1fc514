"""Terms of texts, identical to those of Lucene's analyzer but much faster: each distinct word is analysed once.

Lucene's tokenizer reads a text from left to right by a grammar without look-behind (Unicode Standard Annex 29), and no
token contains a separator: an ASCII character that is neither a letter, a digit nor one of ``_ ' . : , ; " # *``. So a
word, the text between two separators, has the same terms alone and in a text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.compiled import compiled
from pipeline.retrieve.bm25.forward_index import TermsBlock
from pipeline.retrieve.lucene import Lucene

_WORD_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'.:,;\"#*" + bytes(range(128, 256))
_SEPARATED = np.full(256, ord(" "), np.uint8)
_SEPARATED[list(_WORD_BYTES)] = list(_WORD_BYTES)

MARK = "qz90210zq90210zq"
"""A word that the analyzer does not change; it separates words that are analysed in one call."""

WORDS_PER_CALL = 50_000

_BYTES_A_WORD = 256
"""Approximate memory of a cached word in addition to its spelling."""


def terms_of_words(lucene: Lucene, words: Sequence[str]) -> list[list[str]]:
    """Return the terms of words, many of which are analysed in one call."""
    terms_by_word: list[list[str]] = []
    for start in range(0, len(words), WORDS_PER_CALL):
        batch = words[start : start + WORDS_PER_CALL]
        terms = lucene.terms(f" {MARK} ".join(batch))
        cuts = [-1, *(position for position, term in enumerate(terms) if term == MARK), len(terms)]
        if len(cuts) == len(batch) + 1:
            terms_by_word += [terms[start + 1 : end] for start, end in itertools.pairwise(cuts)]
        else:  # a word contains the mark
            terms_by_word += map(lucene.terms, batch)
    return terms_by_word


class CachedAnalyzer:
    """Analyses blocks of texts with a cache of words.

    Args:
        lucene: analyses words.
        capacity: approximate bytes of the cache; when it is full, the next chunk of a block starts with an empty cache.
    """

    def __init__(self, lucene: Lucene, capacity: int) -> None:
        self._lucene, self._capacity = lucene, capacity
        self._clear()

    def _clear(self) -> None:
        self._cached_bytes = 0
        self._words: dict[str, int] = {}
        self._vocabulary: dict[str, int] = {}
        self._offsets: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._terms: npt.NDArray[np.uint32] = np.empty(0, np.uint32)

    def block(self, texts: Iterable[pa.Array]) -> TermsBlock:
        """Return the terms of a block of texts, given as chunks of large strings.

        Terms are numbered in the order of their first use in the block.
        """
        spelled = [pa.array([], pa.large_string())]
        spelled_terms = 0  # terms in ``spelled``
        numbers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        used: npt.NDArray[np.int64] = np.empty(0, np.int64)
        used_terms = 0
        counts, terms, frequencies, lengths = ([np.empty(0, np.uint32)] for _ in range(4))
        for chunk in texts:
            if self._cached_bytes > self._capacity:
                spelled.append(self._spell(used[:used_terms]))
                spelled_terms, used_terms = spelled_terms + used_terms, 0
                numbers, used = numbers[:0], used[:0]
                self._clear()
            offsets, words = self._number_words(chunk)
            missing = len(self._vocabulary) - len(numbers)
            numbers = np.concatenate([numbers, np.full(missing, -1, np.int32)])
            used = np.concatenate([used, np.empty(missing, np.int64)])
            ends = np.concatenate([[0], np.cumsum(np.diff(self._offsets)[words])])
            size, slots = ends[-1], np.zeros(len(numbers), np.uint32)
            columns = np.empty(len(chunk), np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
            used_terms, entries = count_terms(
                offsets, words, self._offsets, self._terms, numbers, used, used_terms, slots, *columns
            )
            counts.append(columns[0])
            terms.append(columns[1][:entries] + np.uint32(spelled_terms))
            frequencies.append(columns[2][:entries].copy())
            lengths.append(np.diff(ends[offsets]).astype(np.uint32))
        vocabulary = pa.concat_arrays([*spelled, self._spell(used[:used_terms])])
        entries = np.concatenate(terms)
        if spelled_terms:  # after the cache was emptied, a term may have several numbers
            encoded = vocabulary.dictionary_encode()
            entries, vocabulary = encoded.indices.to_numpy().astype(np.uint32)[entries], encoded.dictionary
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        return TermsBlock(starts, entries, np.concatenate(frequencies), np.concatenate(lengths), vocabulary)

    def _spell(self, terms: npt.NDArray[np.int64]) -> pa.Array:
        return pa.array(list(self._vocabulary), pa.large_string()).take(pa.array(terms))

    def _number_words(self, texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the offsets of the words of texts, int64 ``[texts + 1]``, and the numbers of the words."""
        words = pc.ascii_split_whitespace(_separate(texts))
        encoded = words.flatten().dictionary_encode()
        spelled = encoded.dictionary.to_pylist()
        new_words = [word for word in spelled if word not in self._words]
        self._cached_bytes += sum(map(len, new_words)) + _BYTES_A_WORD * len(new_words)
        self._words.update(zip(new_words, range(len(self._words), len(self._words) + len(new_words)), strict=True))
        terms_by_word = terms_of_words(self._lucene, new_words)
        vocabulary, spelled_terms = self._vocabulary, itertools.chain.from_iterable(terms_by_word)
        terms = [vocabulary.setdefault(term, len(vocabulary)) for term in spelled_terms]
        ends = self._offsets[-1] + np.cumsum(np.fromiter(map(len, terms_by_word), np.int64, len(terms_by_word)))
        self._offsets = np.concatenate([self._offsets, ends])
        self._terms = np.concatenate([self._terms, np.array(terms, np.uint32)])
        numbers = np.array([self._words[word] for word in spelled], np.int64)
        offsets = words.offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0], numbers[encoded.indices.to_numpy()]


def _separate(texts: pa.Array) -> pa.Array:
    """Return texts with separators replaced by spaces."""
    _, offsets, data = texts.buffers()
    if data is None:
        return texts
    separated = _SEPARATED[np.frombuffer(data, np.uint8)]
    return pa.Array.from_buffers(
        pa.large_string(), len(texts), [None, offsets, pa.py_buffer(separated)], offset=texts.offset
    )


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
