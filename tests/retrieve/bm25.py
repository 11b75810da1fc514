"""BM25 as Lucene 9 computes it, in plain Python: for texts of words that the analyzer leaves as they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def stored_length(length: int) -> int:
    """Return the length a document is taken to have after it went through one byte (Lucene's SmallFloat.intToByte4).

    Lengths to 23 are exact; what is above 24 keeps its four leading bits.
    """
    if length < 24:
        return length
    above = length - 24
    shift = max(above.bit_length() - 4, 0)
    return 24 + (above >> shift << shift)


def bm25_scores(documents: Sequence[str], query: str, k1: float, b: float) -> dict[int, float]:
    """Return the score of each document that shares a word with the query, by position."""
    bags = [Counter(text.split()) for text in documents]
    indexed = sum(1 for bag in bags if bag)
    average = sum(bag.total() for bag in bags) / max(indexed, 1)
    scores: dict[int, float] = {}
    for word, times in Counter(query.split()).items():
        frequency = sum(1 for bag in bags if word in bag)
        idf = math.log(1 + (indexed - frequency + 0.5) / (frequency + 0.5))
        for number, bag in enumerate(bags):
            if word in bag:
                norm = k1 * (1 - b + b * stored_length(bag.total()) / average)
                scores[number] = scores.get(number, 0.0) + times * idf * bag[word] / (bag[word] + norm)
    return scores
