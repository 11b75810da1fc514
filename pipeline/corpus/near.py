"""Near-duplicates: papers with nearly the title and the abstract of another, as a preprint and its article."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Ints
from pipeline.corpus.reader import AnyRows, Corpus, Rows

_TITLES, _ABSTRACTS = Fraction(4, 5), Fraction(1, 2)
"""Least Jaccard index of the words of two titles, and of two abstracts where both papers have one."""

_BLOCK = 65_536

_WORDS = re.compile(r"\w+")

Words = frozenset[str]


def near_pairs(corpus: Corpus, queries: Rows, candidates: Rows) -> Ints:
    """Return the candidates that are near-duplicates of a query, other than itself, int64 ``[n, 2]``: query and row.

    Two titles with an index of t share one of any ``len - ceil(t len) + 1`` words of either: only candidates that have
    one of so many words of the query's title, the rarest ones, are compared.
    """
    titles = _words(corpus, queries, "title")
    frequency = Counter(word for title in titles for word in title)
    queries_with: dict[str, list[int]] = defaultdict(list)
    for query, title in enumerate(titles):
        rarest = sorted(title, key=lambda word: (frequency[word], word))
        for word in rarest[: len(title) - math.ceil(_TITLES * len(title)) + 1]:
            queries_with[word].append(query)
    found: list[tuple[int, int]] = []
    for start in range(0, len(candidates), _BLOCK):
        rows = candidates[start : start + _BLOCK]
        for row, title in zip(rows.tolist(), _words(corpus, rows, "title"), strict=True):
            sharing = {query for word in title for query in queries_with.get(word, ())}
            found += [
                (query, row) for query in sharing if queries[query] != row and _alike(titles[query], title, _TITLES)
            ]
    pairs = np.array(sorted(found), np.int64).reshape(-1, 2)
    return pairs[_abstracts_alike(corpus, queries[pairs[:, 0]], pairs[:, 1])]


def are_near(corpus: Corpus, papers: AnyRows, others: AnyRows) -> npt.NDArray[np.bool_]:
    """Return which pairs of papers are near-duplicates, bool ``[pairs]``."""
    near = _compared(corpus, papers, others, "title", _TITLES)
    near[near] = _abstracts_alike(corpus, papers[near], others[near])
    return near


def _abstracts_alike(corpus: Corpus, papers: AnyRows, others: AnyRows) -> npt.NDArray[np.bool_]:
    chars = corpus.attributes["abstract_chars"]
    lacking = (chars[papers] == 0) | (chars[others] == 0)
    alike: npt.NDArray[np.bool_] = lacking | _compared(corpus, papers, others, "abstract", _ABSTRACTS)
    return alike


def _compared(corpus: Corpus, papers: AnyRows, others: AnyRows, column: str, least: Fraction) -> npt.NDArray[np.bool_]:
    rows = np.union1d(papers, others)
    words = dict(zip(rows.tolist(), _words(corpus, rows, column), strict=True))
    pairs = zip(papers.tolist(), others.tolist(), strict=True)
    return np.array([_alike(words[paper], words[other], least) for paper, other in pairs], bool)


def _words(corpus: Corpus, rows: AnyRows, column: str) -> Sequence[Words]:
    texts = corpus.take(rows, [column]).column(0).to_pylist()
    return [frozenset(_WORDS.findall(text.casefold())) for text in texts]


def _alike(words: Words, others: Words, least: Fraction) -> bool:
    """Whether two sets of words have at least a Jaccard index; empty ones are like none."""
    return len(words & others) >= least * len(words | others) > 0
