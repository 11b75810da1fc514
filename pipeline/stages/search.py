"""Stage ``search``: the ranking of one system for one pool; here BM25."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.spec import Role
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.stages.index import FOLDER
from pipeline.stages.terms import terms_of

DEFAULT_DEPTH = 500
"""Entries ranked a query (protocol 4)."""

FILE = "ranking.arrow"
"""The file of a ranking in its artifact."""


@dataclass(frozen=True)
class Bm25Config:
    """What decides a BM25 ranking beside the index.

    Attributes:
        k1: saturation of term frequency.
        b: normalisation by length.
        depth: entries a query.
        engine: ``lucene`` or ``postings``: they agree in every bit, but are made from different artifacts.
    """

    k1: float
    b: float
    depth: int
    engine: str = "lucene"


def bm25_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    index: Task | Artifact,
    *,
    k1: float,
    b: float,
    depth: int = DEFAULT_DEPTH,
    tuning: Artifact | None = None,
) -> Task:
    """Return the task that ranks a pool's candidates by BM25.

    Args:
        corpus: the corpus of the pool.
        pool: whose queries are run.
        index: the pool's Lucene index (:func:`pipeline.stages.index.lucene_task`).
        k1: saturation of term frequency.
        b: normalisation by length.
        depth: entries a query.
        tuning: where ``k1`` and ``b`` come from, if they were tuned.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.lucene_index import LuceneIndex

        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        inputs["index"].verify()
        with (
            closing(LuceneIndex(inputs["index"].path / FOLDER, resources.memory)) as index,
            Progress(len(opened.query_rows), "search bm25", "queries") as progress,
        ):
            if not np.array_equal(index.rows, opened.candidates):
                raise InputError(f"{inputs['index'].name} is the index of another pool", "Index this one first")
            texts = _counted_texts(opened.query_texts(block=64), progress)
            ranking = index.search(texts, opened.exclusions, k1=k1, b=b, depth=depth, threads=resources.workers)
        return write_ranking(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "index": index}
    if tuning is not None:
        inputs["tuning"] = tuning
    slug = f"bm25-{k1:g}-{b:g}-{slug_of(pool)}"
    return Task("search", 1, RANKINGS, slug, Bm25Config(k1, b, depth), inputs, run)


def postings_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    terms: Mapping[Role, Task | Artifact],
    *,
    k1: float,
    b: float,
    depth: int = DEFAULT_DEPTH,
    tuning: Artifact | None = None,
) -> Task:
    """Return the task that ranks a pool's candidates by BM25, by the terms of its papers instead of a Lucene index.

    Args:
        corpus: the corpus of the pool.
        pool: whose queries are run.
        terms: what analyses the pool (:func:`pipeline.stages.terms.terms_tasks`).
        k1: saturation of term frequency.
        b: normalisation by length.
        depth: entries a query.
        tuning: where ``k1`` and ``b`` come from, if they were tuned.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.postings.pool import Collection, Queries
        from pipeline.retrieve.postings.search import search

        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        store, threads = terms_of(inputs["paper"]), resources.workers
        queries = Queries.read(terms_of(inputs["query"]) if "query" in inputs else store, opened.query_rows, threads)
        collection = Collection.read(store, opened.candidates, queries.vocabulary, threads, resources.memory // 4)
        with Progress(len(opened.candidates), "search bm25", "docs") as progress:
            ranking = search(
                collection,
                queries,
                opened.exclusions,
                k1=k1,
                b=b,
                depth=depth,
                threads=threads,
                memory=resources.memory // 4,
                done=progress.add,
            )
        return write_ranking(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs.update((str(role), analysed) for role, analysed in terms.items())
    if tuning is not None:
        inputs["tuning"] = tuning
    slug = f"bm25-{k1:g}-{b:g}-{slug_of(pool)}"
    return Task("search", 1, RANKINGS, slug, Bm25Config(k1, b, depth, "postings"), inputs, run)


def write_ranking(ranking: Ranking, pool: Pool, depth: int, out: Workdir) -> Counts:
    """Write the ranking of a pool and return what is to be counted of it."""
    queries = len(pool.query_rows)
    counts = {
        "queries": queries,
        "queries_without_results": queries - len(np.unique(ranking.query)),
        "candidates": len(pool.candidates),
        "excluded": len(pool.exclusions[1]),
        "entries": len(ranking),
        "depth": depth,
    }
    out.arrow(FILE, ranking.table(), RANKING, **counts)
    return counts


def _counted_texts(blocks: Iterable[list[Text]], progress: Progress) -> Iterator[list[Text]]:
    for block in blocks:
        yield block
        progress.add(len(block))


def read_ranking(artifact: Artifact) -> Ranking:
    """Read a published ranking."""
    table = artifact.arrow(FILE).combine_chunks()
    return Ranking(*(table.column(name).to_numpy() for name in RANKING.names))


def open_pool(inputs: Inputs) -> Pool:
    """Open the pool among a task's inputs."""
    return Pool(inputs["pool"], Corpus(inputs["corpus"]))


def slug_of(pool: Task | Artifact) -> str:
    """Return the readable name of a pool."""
    return pool.slug if isinstance(pool, Task) else pool.manifest.slug
