"""BM25 by the forward index, by Lucene and in plain Python, and texts on which they could differ."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Rows, Text
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.retrieve.bm25 import grid
from pipeline.retrieve.bm25.collection import Collection, QueryTerms
from pipeline.retrieve.bm25.forward_index import ForwardIndex, TermsBlock
from pipeline.retrieve.bm25.search import search
from pipeline.retrieve.lucene import LuceneIndex, build_index
from pipeline.stages.bm25 import index_of, terms_tasks
from tests.builders import make_corpus, make_pool
from tests.retrieve.cases import no_exclusions
from tests.shared import real

MEMORY = 1 << 30
POINTS = ((0.9, 0.4), (1.2, 0.75), (2.1, 1.0), (0.5, 0.1), (0.0, 0.5), (1.5, 0.0))


class Asked(NamedTuple):
    """A pool: which papers are queries, which are candidates, and what is removed."""

    queries: Rows
    candidates: Rows
    excluded: Exclusions

    @classmethod
    def of(cls, queries: Sequence[int], candidates: Sequence[int], excluded: Exclusions | None = None) -> Asked:
        rows = [np.unique(np.asarray(papers, np.uint32)) for papers in (queries, candidates)]
        return cls(*rows, excluded or no_exclusions(len(rows[0])))


def publish(root: Path, texts: Sequence[Text], shard_rows: int = 1 << 20) -> Artifact:
    """Publish a corpus in which the row of a text is its position."""
    papers = [{"paper_id": f"{n:06d}", "title": t.title, "abstract": t.abstract} for n, t in enumerate(texts)]
    return make_corpus(root, papers, shard_rows=shard_rows)


def analysed(root: Path, corpus: Artifact, *asked: Asked) -> ForwardIndex:
    """Analyse pools one after the other and return the store that all of them are in."""
    for number, of_pool in enumerate(asked):
        pool = make_pool(root, corpus, of_pool.queries.tolist(), of_pool.candidates.tolist(), slug=f"pool{number}")
        segment = Runner(root, Resources(memory=MEMORY, workers=2)).make(terms_tasks(corpus, pool)["paper"])
    return index_of(segment)


def opened(index: ForwardIndex, asked: Asked, threads: int = 2) -> tuple[Collection, QueryTerms]:
    queries = QueryTerms.read(index, asked.queries)
    return Collection.read(index, asked.candidates, queries.vocabulary, threads), queries


def by_index(
    index: ForwardIndex, asked: Asked, *, k1: float = 0.9, b: float = 0.4, depth: int = 500, threads: int = 2
) -> Ranking:
    read = opened(index, asked, threads)
    return search(*read, asked.excluded, k1=k1, b=b, depth=depth, threads=threads)


def grid_ranks(
    index: ForwardIndex,
    asked: Asked,
    relevant: Exclusions,
    points: Sequence[tuple[float, float]],
    *,
    depth: int = 500,
    threads: int = 2,
) -> npt.NDArray[np.int64]:
    read = opened(index, asked, threads)
    return grid.ranks(*read, relevant, asked.excluded, points=points, depth=depth, threads=threads)


def by_lucene(
    folder: Path, texts: Sequence[Text], asked: Asked, *points: tuple[float, float], depth: int = 500
) -> list[Ranking]:
    """Return Lucene's ranking at every point."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        build_index([[texts[row] for row in asked.candidates]], asked.candidates, folder, 2, MEMORY)
    with closing(LuceneIndex(folder, asked.candidates, MEMORY)) as index:
        queries = [[texts[row] for row in asked.queries]]
        return [index.search(queries, asked.excluded, k1=k1, b=b, depth=depth, threads=2) for k1, b in points]


def pairs_of(block: TermsBlock, text: int) -> list[tuple[int, int]]:
    """Return the terms of a text and how often it has each."""
    entries = slice(block.offsets[text], block.offsets[text + 1])
    return list(zip(block.terms[entries].tolist(), block.frequencies[entries].tolist(), strict=True))


def random_texts(count: int, seed: int, words: int = 400) -> list[Text]:
    """Return texts of words by Zipf's law: empty ones, copies (ties), very long ones, words many times."""
    rng = np.random.default_rng([seed, count])
    texts = []
    for number in range(count):
        length = int(rng.choice([0, 1, 5, 40, 120, 300, 1_200], p=[0.03, 0.07, 0.2, 0.4, 0.2, 0.09, 0.01]))
        drawn = [f"w{n}x" for n in rng.zipf(1.3, length) % words]
        if rng.random() < 0.05:
            drawn += [f"w{rng.integers(20)}x"] * int(rng.integers(3, 200))
        texts.append(Text(f"unique{number}" if rng.random() < 0.5 else "", " ".join(drawn)))
        if texts and rng.random() < 0.2:
            texts[-1] = texts[int(rng.integers(len(texts)))]
    return texts


def real_texts(name: str) -> list[Text]:
    """Return the titles and abstracts of real papers, in the order of the files."""
    texts = []
    for path in sorted(real(name).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                paper = json.loads(line)
                text = " ".join((paper.get("abstract") or paper.get("text") or "").split())
                texts.append(Text(" ".join((paper["title"] or "").split()), text))
    return texts


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
