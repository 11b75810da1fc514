"""Texts to terms, exactly as Lucene's analyzer does it, at many times its speed: each distinct word is analysed once.

Lucene's tokenizer reads a text from left to right by a grammar without look-behind (Unicode Standard Annex 29), and no
token contains a separator: an ASCII character that is neither a letter, a digit nor one of ``_ ' . : , ; " # *``. So a
word, which is what stands between two separators, has the same terms alone as within its text.
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
from pipeline.retrieve.bm25.forward_index import Block
from pipeline.retrieve.lucene import Lucene

_WORD_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'.:,;\"#*" + bytes(range(128, 256))
_SEPARATED = np.full(256, ord(" "), np.uint8)
_SEPARATED[list(_WORD_BYTES)] = list(_WORD_BYTES)

MARK = "qz90210zq90210zq"
"""A word that analysis leaves alone, between words that are analysed in one call."""

WORDS_PER_CALL = 50_000

_BYTES_A_WORD = 256
"""Memory of a word in the cache beside its spelling, about."""


def terms_of_words(lucene: Lucene, words: Sequence[str]) -> list[list[str]]:
    """Return the terms of each word, from analyses of many together."""
    terms_by_word: list[list[str]] = []
    for start in range(0, len(words), WORDS_PER_CALL):
        part = words[start : start + WORDS_PER_CALL]
        terms = lucene.terms(f" {MARK} ".join(part))
        cuts = [-1, *(place for place, term in enumerate(terms) if term == MARK), len(terms)]
        if len(cuts) == len(part) + 1:
            terms_by_word += [terms[a + 1 : b] for a, b in itertools.pairwise(cuts)]
        else:  # a word contains the mark
            terms_by_word += map(lucene.terms, part)
    return terms_by_word


class CachedAnalyzer:
    """Analyses blocks of texts; words that it has seen are not analysed again.

    Args:
        lucene: analyses words.
        capacity: bytes of the words to remember, about; beyond it, the next part of a block starts with an empty cache.
    """

    def __init__(self, lucene: Lucene, capacity: int) -> None:
        self._lucene, self._capacity = lucene, capacity
        self._clear()

    def _clear(self) -> None:
        self._held = 0
        self._words: dict[str, int] = {}
        self._vocabulary: dict[str, int] = {}
        self._offsets: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._terms: npt.NDArray[np.uint32] = np.empty(0, np.uint32)

    def block(self, texts: Iterable[pa.Array]) -> Block:
        """Analyse a block of texts, large strings that come in parts.

        Returns:
            Their terms, numbered in the order of their first use in the block.
        """
        spelled = [pa.array([], pa.large_string())]
        numbered = 0  # terms in ``spelled``
        numbers: npt.NDArray[np.int32] = np.empty(0, np.int32)
        used: npt.NDArray[np.int64] = np.empty(0, np.int64)
        used_terms = 0
        counts, terms, frequencies, lengths = ([np.empty(0, np.uint32)] for _ in range(4))
        for part in texts:
            if self._held > self._capacity:
                spelled.append(self._spelled(used[:used_terms]))
                numbered, used_terms = numbered + used_terms, 0
                numbers, used = numbers[:0], used[:0]
                self._clear()
            offsets, words = self._numbered(part)
            missing = len(self._vocabulary) - len(numbers)
            numbers = np.concatenate([numbers, np.full(missing, -1, np.int32)])
            used = np.concatenate([used, np.empty(missing, np.int64)])
            ends = np.concatenate([[0], np.cumsum(np.diff(self._offsets)[words])])
            size, seen = ends[-1], np.zeros(len(numbers), np.uint32)
            columns = np.empty(len(part), np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
            used_terms, entries = count_terms(
                offsets, words, self._offsets, self._terms, numbers, used, used_terms, seen, *columns
            )
            counts.append(columns[0])
            terms.append(columns[1][:entries] + np.uint32(numbered))
            frequencies.append(columns[2][:entries].copy())
            lengths.append(np.diff(ends[offsets]).astype(np.uint32))
        vocabulary = pa.concat_arrays([*spelled, self._spelled(used[:used_terms])])
        entries = np.concatenate(terms)
        if numbered:  # a term has a number for each time that the cache was emptied
            encoded = vocabulary.dictionary_encode()
            entries, vocabulary = encoded.indices.to_numpy().astype(np.uint32)[entries], encoded.dictionary
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        return Block(starts, entries, np.concatenate(frequencies), np.concatenate(lengths), vocabulary)

    def _spelled(self, terms: npt.NDArray[np.int64]) -> pa.Array:
        return pa.array(list(self._vocabulary), pa.large_string()).take(pa.array(terms))

    def _numbered(self, texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the words of each text start, int64 ``[texts + 1]``, and the number of each word."""
        words = pc.ascii_split_whitespace(_separated(texts))
        encoded = words.flatten().dictionary_encode()
        spelled = encoded.dictionary.to_pylist()
        new = [word for word in spelled if word not in self._words]
        self._held += sum(map(len, new)) + _BYTES_A_WORD * len(new)
        self._words.update(zip(new, range(len(self._words), len(self._words) + len(new)), strict=True))
        terms_by_word = terms_of_words(self._lucene, new)
        terms = [self._vocabulary.setdefault(term, len(self._vocabulary)) for part in terms_by_word for term in part]
        ends = self._offsets[-1] + np.cumsum(np.fromiter(map(len, terms_by_word), np.int64, len(terms_by_word)))
        self._offsets = np.concatenate([self._offsets, ends])
        self._terms = np.concatenate([self._terms, np.array(terms, np.uint32)])
        numbers = np.array([self._words[word] for word in spelled], np.int64)
        offsets = words.offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0], numbers[encoded.indices.to_numpy()]


def _separated(texts: pa.Array) -> pa.Array:
    """Return texts with a space in the place of every separator."""
    _, offsets, data = texts.buffers()
    if data is None:
        return texts
    separated = _SEPARATED[np.frombuffer(data, np.uint8)]
    return pa.Array.from_buffers(
        pa.large_string(), len(texts), [None, offsets, pa.py_buffer(separated)], offset=texts.offset
    )


@compiled
def count_terms(
    offsets: Any, words: Any, term_offsets: Any, terms: Any, numbers: Any, used: Any, used_terms: int, seen: Any,
    counts: Any, entries: Any, frequencies: Any,
) -> Any:  # fmt: skip
    """Write the distinct terms of each text and their frequencies.

    Args:
        offsets: int64 ``[texts + 1]``, where the words of each text start.
        words: int64 ``[words]``.
        term_offsets: int64 ``[distinct words + 1]``, where the terms of each word start.
        terms: uint32, the terms of the words.
        numbers: int32 ``[distinct terms]``, number of each term in the block, -1 where it has none yet; changed.
        used: int64 ``[distinct terms]``, the terms of the block by number; changed.
        used_terms: how many terms of the block have a number.
        seen: uint32 ``[distinct terms]``, zeros; scratch: place of each term in the current text, from 1.
        counts: uint32 ``[texts]``, written: number of distinct terms.
        entries: uint32, written: the terms of each text.
        frequencies: uint32, written.

    Returns:
        How many terms of the block have a number now, and how many entries were written.
    """
    done = 0
    for text in range(len(offsets) - 1):
        begin = done
        for at in range(offsets[text], offsets[text + 1]):
            for place in range(term_offsets[words[at]], term_offsets[words[at] + 1]):
                term = terms[place]
                if numbers[term] < 0:
                    numbers[term] = used_terms
                    used[used_terms] = term
                    used_terms += 1
                number = numbers[term]
                if seen[number] == 0:
                    entries[done] = number
                    frequencies[done] = 0
                    done += 1
                    seen[number] = done - begin
                frequencies[begin + seen[number] - 1] += 1
        for at in range(begin, done):
            seen[entries[at]] = 0
        counts[text] = done - begin
    return used_terms, done
