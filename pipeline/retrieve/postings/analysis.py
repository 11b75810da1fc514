"""Texts to bags of terms, exactly as Lucene's analyzer would, at many times its speed.

Each distinct word is analysed once, by Lucene's analyzer itself; a text is the sum of its words (see
:mod:`pipeline.retrieve.postings.words` for why that is so).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.retrieve.java import declare
from pipeline.retrieve.lucene_classes import Lucene
from pipeline.retrieve.postings.entries import pack
from pipeline.retrieve.postings.store import Bags
from pipeline.retrieve.postings.types import Numbers, Offsets, Terms
from pipeline.retrieve.postings.words import WordTable, collect, kinds, text_bytes

_MARK = "qz90210zq90210zq"
"""A word that analysis leaves alone and no text holds, between words that are analysed together."""

_TOGETHER = 50_000


class LuceneAnalyzer:
    """Lucene's analyzer for many words at a time."""

    def __init__(self, lucene: Lucene) -> None:
        self._analyzer = lucene.analyzer
        analyze = "(Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;)Ljava/util/List;"
        self._analysis = declare("io/anserini/analysis/AnalyzerUtils", static=(("analyze", analyze),))
        join = "(Ljava/lang/CharSequence;Ljava/lang/Iterable;)Ljava/lang/String;"
        self._string = declare("java/lang/String", static=(("join", join),))

    def tokens(self, text: str) -> list[str]:
        """Return the terms of a text in order, as Lucene indexes them."""
        joined: str = self._string.join(" ", self._analysis.analyze(self._analyzer, text))
        return joined.split(" ") if joined else []

    def of_words(self, words: Sequence[str]) -> list[list[str]]:
        """Return the terms of each word."""
        found: list[list[str]] = []
        for start in range(0, len(words), _TOGETHER):
            part = words[start : start + _TOGETHER]
            tokens = self.tokens(f" {_MARK} ".join(part))
            cuts = [-1, *(place for place, token in enumerate(tokens) if token == _MARK), len(tokens)]
            if len(cuts) == len(part) + 1:
                found += [tokens[a + 1 : b] for a, b in itertools.pairwise(cuts)]
            else:  # a word that holds the mark
                found += map(self.tokens, part)
        return found


class Analysis:
    """Turns texts into bags of terms, block by block; words met before are not analysed again.

    Args:
        analyzer: Lucene's.
        words: distinct words it remembers, about; it starts anew at the block after more.
    """

    def __init__(self, analyzer: LuceneAnalyzer, words: int) -> None:
        self._analyzer, self._limit = analyzer, words
        self._forget()

    def _forget(self) -> None:
        self._words, self._terms = WordTable(kinds()), WordTable(kinds(whole=True))
        self._term_starts: Offsets = np.zeros(1, np.int64)
        self._terms_of_words: Numbers = np.empty(0, np.uint32)

    def block(self, texts: Iterable[pa.Array]) -> Bags:
        """Analyse a block of texts.

        Args:
            texts: large strings, some at a time.

        Returns:
            Their bags, with terms numbered by falling frequency, equally frequent ones by first use in the block.
        """
        if self._words.count > self._limit:
            self._forget()
        numbers = vocabulary = np.empty(0, np.int32)
        known, lengths, found = 0, [np.empty(0, np.int64)], [_bags(0, 0)]
        for part in texts:
            words, ends = self._words.number(*text_bytes(part))
            self._analyse_new_words()
            numbers, vocabulary = _extended(numbers, self._terms.count), _extended(vocabulary, self._terms.count)
            tokens = np.concatenate([[0], np.cumsum(np.diff(self._term_starts)[words])])
            found.append(_bags(len(part), tokens[-1]))
            known = collect(words, ends, self._term_starts, self._terms_of_words, numbers, vocabulary, known, found[-1])
            lengths.append(np.diff(tokens[ends]))
        starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(each.starts) for each in found]))])
        terms, times = (np.concatenate([each[of][: each.starts[-1]] for each in found]) for of in (1, 2))
        order = np.argsort(-np.bincount(terms, minlength=known), kind="stable")
        offsets, entries = pack(starts, terms, times, np.argsort(order))
        spelled = self._terms.array(vocabulary[:known][order])
        return Bags(offsets, entries, np.concatenate(lengths).astype(np.uint32), spelled)

    def _analyse_new_words(self) -> None:
        first = len(self._term_starts) - 1
        found = self._analyzer.of_words(self._words.spelled(first))
        joined = " ".join(token for tokens in found for token in tokens).encode()
        data = np.frombuffer(joined, np.uint8)
        terms, _ = self._terms.number(data, np.array([0, len(data)]))
        ends = self._term_starts[-1] + np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
        self._term_starts = np.concatenate([self._term_starts, ends])
        self._terms_of_words = np.concatenate([self._terms_of_words, terms])


def _extended(numbers: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    return np.concatenate([numbers, np.full(size - len(numbers), -1, np.int32)])


def _bags(texts: int, tokens: int) -> Terms:
    return Terms(np.zeros(texts + 1, np.int64), np.empty(tokens, np.uint32), np.empty(tokens, np.uint32))
