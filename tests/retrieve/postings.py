"""BM25 by postings and by Lucene on the same texts, and texts on which they could differ."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Rows, Text
from pipeline.retrieve.base import Exclusions, Ranking, no_exclusions
from pipeline.retrieve.lucene_build import build_index
from pipeline.retrieve.lucene_index import LuceneIndex
from pipeline.retrieve.postings import grid as postings_grid
from pipeline.retrieve.postings.pool import Collection, Queries
from pipeline.retrieve.postings.search import search
from pipeline.retrieve.postings.store import Bags, TermStore
from pipeline.runner import Runner
from pipeline.stages.terms import terms_of, terms_tasks
from tests.builders import make_corpus, make_pool
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
        rows = [np.unique(np.asarray(each, np.uint32)) for each in (queries, candidates)]
        return cls(*rows, excluded or no_exclusions(len(rows[0])))


def publish(root: Path, texts: Sequence[Text], shard_rows: int = 1 << 20) -> Artifact:
    """Publish a corpus in which the row of a text is its position."""
    papers = [{"paper_id": f"{n:06d}", "title": t.title, "abstract": t.abstract} for n, t in enumerate(texts)]
    return make_corpus(root, papers, shard_rows=shard_rows)


def analysed(root: Path, corpus: Artifact, *asked: Asked) -> TermStore:
    """Analyse pools one after the other and return the store that all of them are in."""
    for number, each in enumerate(asked):
        pool = make_pool(root, corpus, each.queries.tolist(), each.candidates.tolist(), slug=f"pool{number}")
        segment = Runner(root, Resources(memory=MEMORY, workers=2)).make(terms_tasks(corpus, pool)["paper"])
    return terms_of(segment)


def by_postings(
    store: TermStore,
    asked: Asked,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    depth: int = 500,
    threads: int = 2,
    memory: int = 1 << 20,
) -> Ranking:
    queries = Queries.read(store, asked.queries, threads)
    collection = Collection.read(store, asked.candidates, queries.vocabulary, threads, memory)
    return search(collection, queries, asked.excluded, k1=k1, b=b, depth=depth, threads=threads)


def grid_ranks(
    store: TermStore,
    asked: Asked,
    relevant: Exclusions,
    points: Sequence[tuple[float, float]],
    *,
    depth: int = 500,
    threads: int = 2,
    memory: int = 1 << 20,
) -> npt.NDArray[np.int64]:
    queries = Queries.read(store, asked.queries, threads)
    collection = Collection.read(store, asked.candidates, queries.vocabulary, threads, memory)
    return postings_grid.ranks(
        collection, queries, relevant, asked.excluded, points=points, depth=depth, threads=threads
    )


def by_lucene(
    folder: Path, texts: Sequence[Text], asked: Asked, *points: tuple[float, float], depth: int = 500
) -> list[Ranking]:
    """Return Lucene's ranking at every point."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        build_index([[texts[row] for row in asked.candidates]], asked.candidates, folder, 2, MEMORY)
    with closing(LuceneIndex(folder, MEMORY)) as index:
        queries = [[texts[row] for row in asked.queries]]
        return [index.search(queries, asked.excluded, k1=k1, b=b, depth=depth, threads=2) for k1, b in points]


def pairs_of(bags: Bags, text: int) -> list[tuple[int, int]]:
    """Return the terms of a text and how often it has each, as its entries tell them."""
    entries = iter(bags.entries[bags.offsets[text] : bags.offsets[text + 1]].tolist())
    return [(entry % (1 << 24), entry >> 24) if entry >> 24 else (next(entries), next(entries)) for entry in entries]


def random_texts(count: int, seed: int, words: int = 400) -> list[Text]:
    """Return texts of words by Zipf's law: empty ones, ones told twice (ties), very long ones, words many times."""
    rng = np.random.default_rng([seed, count])
    texts = []
    for number in range(count):
        length = int(rng.choice([0, 1, 5, 40, 120, 300, 1_200], p=[0.03, 0.07, 0.2, 0.4, 0.2, 0.09, 0.01]))
        chosen = [f"w{n}x" for n in rng.zipf(1.3, length) % words]
        if rng.random() < 0.05:
            chosen += [f"w{rng.integers(20)}x"] * int(rng.integers(3, 200))
        texts.append(Text(f"unique{number}" if rng.random() < 0.5 else "", " ".join(chosen)))
        if texts and rng.random() < 0.2:
            texts[-1] = texts[int(rng.integers(len(texts)))]
    return texts


def real_texts(name: str) -> list[Text]:
    """Return the titles and abstracts of real papers, in the order of the files."""
    found = []
    for path in sorted(real(name).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                paper = json.loads(line)
                text = " ".join((paper.get("abstract") or paper.get("text") or "").split())
                found.append(Text(" ".join((paper["title"] or "").split()), text))
    return found
