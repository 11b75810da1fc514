"""BM25 by postings against Pyserini and bm25s: same documents, same analyzer, same parameters, same run.

    python bench/retrieve_bm25.py [--quick] [--sizes 200k,1M] [--folder DIR]

Pools of synthetic papers of rising size, each within the next, and 380 queries, which are whole titles and abstracts;
500 entries a query; 2 threads each. We: queries and pool read from the store of terms, then searched, one point and
the 90 points of a tuning. Pyserini: ``LuceneSearcher.batch_search`` over an index built by Lucene with the same
analyzer. bm25s: its Lucene variant over the same tokens, with its numba backend, at the sizes where its index fits
(``--bm25s``). Rounds are interleaved and medians compared, of wall time and of processor time, which other work on
the machine moves less. What everybody finds is compared once. How long the store and the indexes take to make is
reported beside; they are kept in ``--folder`` (about 4 GB for 1M), so a second run only measures.

The limit: a bare loop that adds every posting of the pool to its document's score, over the same arrays in the same
blocks; and the bytes a second that a sum over an array in memory reads.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import progress, provenance
from pipeline.core.artifact import Artifact
from pipeline.core.compiled import compiled
from pipeline.core.config import format_count, parse_count
from pipeline.core.resources import Resources
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.retrieve.base import Ranking
from pipeline.retrieve.java import start_java
from pipeline.retrieve.lucene_classes import Lucene, joined
from pipeline.retrieve.postings import grid as postings_grid
from pipeline.retrieve.postings.pool import Collection, Queries, decoded
from pipeline.retrieve.postings.search import search
from pipeline.retrieve.postings.store import TermStore
from pipeline.runner import Runner
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.corpus import corpus_task
from pipeline.stages.index import FOLDER, lucene_task
from pipeline.stages.pool import pool_task
from pipeline.stages.terms import terms_of, terms_tasks
from pipeline.stages.tune import GRID_B, GRID_K1

K1, B, DEPTH, THREADS = 0.9, 0.4, 500, 2
MEMORY = 4 << 30
POINTS = list(itertools.product(GRID_K1, GRID_B))


class Made(NamedTuple):
    """A pool with what searches it."""

    pool: Pool
    store: TermStore
    index: Artifact | None


def prepare(folder: Path, sizes: Sequence[int], queries: int, peers: Sequence[int]) -> tuple[dict[int, Made], Any]:
    """Make corpus, pools, the store of terms and Lucene's indexes; the largest first, so that it analyses all papers.

    Three synthetic papers in five can be candidates.
    """
    runner = Runner(folder, Resources(memory=MEMORY, workers=THREADS, device="cpu"))
    corpus = runner.make(corpus_task("synthetic", Synthetic(int(1.75 * max(sizes)), seed=13)))
    made, costs = {}, {}
    for size in sorted(sizes, reverse=True):
        pool = runner.make(pool_task(corpus, PoolConfig(size=size, queries=queries, nested=True)))
        segment = runner.make(terms_tasks(corpus, pool)["paper"])
        if segment.manifest.counts["analysed"] > size // 2:
            seconds = segment.manifest.provenance["wall_seconds"]
            costs["terms docs/s"] = round(segment.manifest.counts["analysed"] / seconds)
        index = runner.make(lucene_task(corpus, pool)) if size in peers else None
        if index:
            seconds = index.manifest.provenance["wall_seconds"]
            costs[f"Lucene docs/s ({format_count(size)})"] = round(index.manifest.counts["documents"] / seconds)
        made[size] = Made(Pool(pool, Corpus(corpus)), terms_of(segment), index)
    return dict(sorted(made.items())), costs


def ours(made: Made) -> Ranking:
    queries = Queries.read(made.store, made.pool.query_rows, THREADS)
    collection = Collection.read(made.store, made.pool.candidates, queries.vocabulary, THREADS, MEMORY // 4)
    return search(collection, queries, made.pool.exclusions, k1=K1, b=B, depth=DEPTH, threads=THREADS)


def grid(made: Made) -> Any:
    queries = Queries.read(made.store, made.pool.query_rows, THREADS)
    collection = Collection.read(made.store, made.pool.candidates, queries.vocabulary, THREADS, MEMORY // 4)
    table = made.pool.qrels
    query, row = (table.column(name).to_numpy() for name in ("query", "row"))
    order = np.lexsort((row, query))
    relevant = np.searchsorted(query[order], np.arange(len(queries) + 1)), row[order]
    return postings_grid.ranks(
        collection, queries, relevant, made.pool.exclusions, points=POINTS, depth=DEPTH, threads=THREADS
    )


def pyserini(made: Made) -> Callable[[], Any]:
    os.environ.setdefault("OPENAI_API_KEY", "none is needed, but its presence is asked for")
    Lucene(MEMORY)  # the same Java, with room for queries of thousands of terms
    from pyserini.search.lucene import LuceneSearcher

    assert made.index is not None
    searcher = LuceneSearcher(str(made.index.path / FOLDER))
    searcher.set_bm25(K1, B)
    texts = [joined(text) for block in made.pool.query_texts() for text in block]
    names = [str(number) for number in range(len(texts))]
    return lambda: searcher.batch_search(texts, names, k=DEPTH + 1, threads=THREADS)


def agreement(ranking: Ranking, hits: Any, made: Made) -> float:
    """Return the share of our entries that Lucene has as well, a query's own paper left out."""
    found = 0
    for number, row in enumerate(made.pool.query_rows.tolist()):
        theirs = {int(hit.docid) for hit in hits[str(number)]} - {row}
        found += len(theirs.intersection(ranking.row[ranking.query == number].tolist()))
    return found / len(ranking)


def bm25s_search(made: Made) -> tuple[Callable[[], Any], float]:
    """Return a search by bm25s, and how long its index took, tokens given."""
    import bm25s

    bags, names = [], {}
    for piece in made.store.pieces(made.pool.candidates):
        spelled = np.array([names.setdefault(term, len(names)) for term in piece.bags.vocabulary.to_pylist()], np.int32)
        starts, terms, times = decoded(piece, spelled)
        tokens = np.repeat(terms, times).tolist()
        ends = np.concatenate([[0], np.cumsum(times, dtype=np.int64)])[starts].tolist()
        bags += [tokens[first:last] for first, last in itertools.pairwise(ends)]
    queries = Queries.read(made.store, made.pool.query_rows)
    spelled = queries.vocabulary.to_pylist()
    texts = []
    for first, last in itertools.pairwise(queries.bags.starts):
        pairs = zip(queries.bags.terms[first:last].tolist(), queries.bags.times[first:last].tolist(), strict=True)
        texts.append([names[spelled[term]] for term, times in pairs for _ in range(times) if spelled[term] in names])
    started = time.perf_counter()
    retriever = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
    retriever.index((bags, names), show_progress=False)
    seconds = time.perf_counter() - started
    tokens = bm25s.tokenization.Tokenized(texts, names)
    return lambda: retriever.retrieve(tokens, k=DEPTH + 1, n_threads=THREADS, show_progress=False), round(seconds, 1)


def rounds_of(runs: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return medians of wall and of processor time, after a run that is not counted of each that had none."""
    wall: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            if turn == 0 and name == "pyserini":
                continue
            started, used = time.perf_counter(), time.process_time()
            run()
            if turn:
                wall[name].append(time.perf_counter() - started)
                processor[name].append(time.process_time() - used)
    return ({name: statistics.median(taken) for name, taken in each.items()} for each in (wall, processor))  # type: ignore[return-value]


@compiled
def plain(documents: Any, impacts: Any, scores: Any) -> None:
    """Add every posting: what a search cannot do with less."""
    for i in range(len(documents)):
        scores[documents[i]] += np.float64(impacts[i])


def limit(made: Made) -> dict[str, float]:
    """Return how many postings all queries have, and how fast this machine adds them at most."""
    queries = Queries.read(made.store, made.pool.query_rows)
    collection = Collection.read(made.store, made.pool.candidates, queries.vocabulary)
    asked = np.bincount(queries.bags.terms, minlength=len(queries.vocabulary))
    blocks = [collection.block(part).postings for part in collection.parts[:8]]
    total = sum(int((np.diff(block.edges)[: len(asked)] * asked).sum()) for block in blocks)
    total = total * len(made.pool.candidates) // sum(len(part.documents.codes) for part in collection.parts[:8])
    work = [(b.documents, np.ones(len(b.documents), np.float32), np.zeros(1 << 16)) for b in blocks]

    def add(place: int) -> int:
        documents, impacts, scores = work[place % len(work)]
        for _ in range(20):
            plain(documents, impacts, scores)
        return 20 * len(documents)

    memory = np.ones(1 << 27, np.float32)
    add(0)
    rates, bandwidth = [], []
    for _ in range(5):
        with ThreadPoolExecutor(THREADS) as threads:
            started = time.perf_counter()
            done = sum(threads.map(add, range(2 * THREADS)))
            rates.append(done / (time.perf_counter() - started))
            halves = np.split(memory, THREADS)
            started = time.perf_counter()
            list(threads.map(np.sum, halves))
            bandwidth.append(memory.nbytes / (time.perf_counter() - started))
    found = {"postings": total, "terms": len(queries.bags.terms), "length": collection.average}
    return found | {"rate": statistics.median(rates), "bandwidth": statistics.median(bandwidth)}


def measure(made: Made, rounds: int, with_bm25s: bool) -> dict[str, Any]:
    queries = len(made.pool.query_rows)
    figures: dict[str, Any] = {"candidates": len(made.pool.candidates), "queries": queries}
    runs: dict[str, Callable[[], Any]] = {"ours": lambda: ours(made), "ours, 90 points": lambda: grid(made)}
    if made.index:
        runs["pyserini"] = pyserini(made)
        figures["entries Lucene has too"] = round(agreement(ours(made), runs["pyserini"](), made), 6)
    if with_bm25s:
        runs["bm25s"], figures["bm25s index s"] = bm25s_search(made)
    wall, processor = rounds_of(runs, rounds)
    for name in runs:
        figures[f"{name} s"] = round(wall[name], 2)
        figures[f"{name} s (processor)"] = round(processor[name], 2)
    for name in runs:
        if name in ("pyserini", "bm25s"):
            figures[f"ours over {name}"] = round(wall[name] / wall["ours"], 1)
            figures[f"ours over {name} (processor)"] = round(processor[name] / processor["ours"], 1)
    figures["90 points over one"] = round(wall["ours, 90 points"] / wall["ours"], 2)
    figures["90 points over one (processor)"] = round(processor["ours, 90 points"] / processor["ours"], 2)
    bound = limit(made)
    figures["terms a query"] = round(bound["terms"] / queries, 1)
    figures["tokens a document"] = round(bound["length"], 1)
    rate = bound["postings"] / wall["ours"]
    figures["postings a query"] = round(bound["postings"] / queries)
    figures["postings/s, ours"] = f"{rate:.3g}"
    figures["postings/s, bare loop"] = f"{bound['rate']:.3g}"
    figures["share of the bare loop"] = round(rate / bound["rate"], 2)
    figures["share of memory bandwidth, 2 bytes a posting"] = round(2 * rate / bound["bandwidth"], 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20k and 40k documents, 100 queries, one round")
    parser.add_argument("--sizes", default="50k,100k,200k,1M", help="sizes of the pools (default: 50k,100k,200k,1M)")
    parser.add_argument("--peers", default="200k,1M", help="sizes at which Lucene runs too (default: 200k,1M)")
    parser.add_argument("--bm25s", default="200k", help="sizes at which bm25s runs too (default: 200k)")
    parser.add_argument("--queries", type=int, default=380)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where corpus, store and indexes are kept (default: nowhere)")
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
