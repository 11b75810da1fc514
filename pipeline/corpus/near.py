"""Find near-duplicates: pairs of papers with similar titles and abstracts, such as a preprint and its article."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pipeline.core.csr import Ints
from pipeline.corpus.prefilter import Mask
from pipeline.corpus.reader import AnyRows, Corpus, Rows

_MIN_TITLE, _MIN_ABSTRACT = Fraction(4, 5), Fraction(1, 2)
"""Minimum Jaccard index of the words of two titles, and of two abstracts if both papers have one."""

_BLOCK = 65_536

_WORDS = re.compile(r"\w+")

Words = frozenset[str]


def near_pairs(corpus: Corpus, queries: Rows, candidates: Rows) -> Ints:
    """Return (query, row) pairs of the candidates that are near-duplicates of a query, int64 ``[n, 2]``.

    Prefix filtering: two titles with Jaccard index t share one of any ``len - ceil(t len) + 1`` words of either. So a
    candidate is compared only if it has one of this number of words of the query's title, the rarest ones.
    """
    titles = _words(corpus, queries, "title")
    frequency = Counter(word for title in titles for word in title)
    queries_with: dict[str, list[int]] = defaultdict(list)
    for query, title in enumerate(titles):
        rarest = sorted(title, key=lambda word: (frequency[word], word))
        for word in rarest[: len(title) - math.ceil(_MIN_TITLE * len(title)) + 1]:
            queries_with[word].append(query)
    similar: list[tuple[int, int]] = []
    for start in range(0, len(candidates), _BLOCK):
        rows = candidates[start : start + _BLOCK]
        for row, title in zip(rows.tolist(), _words(corpus, rows, "title"), strict=True):
            sharing = {query for word in title for query in queries_with.get(word, ())}
            others = [query for query in sharing if queries[query] != row]
            similar += [(query, row) for query in others if _similar(titles[query], title, _MIN_TITLE)]
    pairs = np.array(sorted(similar), np.int64).reshape(-1, 2)
    return pairs[_abstracts_similar(corpus, queries[pairs[:, 0]], pairs[:, 1])]


def are_near(corpus: Corpus, papers: AnyRows, others: AnyRows) -> Mask:
    """Return whether ``papers[i]`` and ``others[i]`` are near-duplicates, bool ``[pairs]``."""
    near = _texts_similar(corpus, papers, others, "title", _MIN_TITLE)
    near[near] = _abstracts_similar(corpus, papers[near], others[near])
    return near


def _abstracts_similar(corpus: Corpus, papers: AnyRows, others: AnyRows) -> Mask:
    chars = corpus.attributes["abstract_chars"]
    absent = (chars[papers] == 0) | (chars[others] == 0)
    similar: Mask = absent | _texts_similar(corpus, papers, others, "abstract", _MIN_ABSTRACT)
    return similar


def _texts_similar(corpus: Corpus, papers: AnyRows, others: AnyRows, column: str, threshold: Fraction) -> Mask:
    rows = np.union1d(papers, others)
    words = dict(zip(rows.tolist(), _words(corpus, rows, column), strict=True))
    pairs = zip(papers.tolist(), others.tolist(), strict=True)
    return np.array([_similar(words[paper], words[other], threshold) for paper, other in pairs], bool)


def _words(corpus: Corpus, rows: AnyRows, column: str) -> Sequence[Words]:
    texts = corpus.take(rows, [column]).column(0).to_pylist()
    return [frozenset(_WORDS.findall(text.casefold())) for text in texts]


def _similar(words: Words, others: Words, threshold: Fraction) -> bool:
    """Whether the Jaccard index of two sets of words is at least ``threshold``; false for two empty sets."""
    return len(words & others) >= threshold * len(words | others) > 0
