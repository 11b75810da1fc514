"""Stage ``search``: the ranking of one system for one pool."""

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
from pipeline.corpus.reader import Corpus, Rows, Text
from pipeline.encode.spec import Role
from pipeline.encode.store import VectorStore
from pipeline.retrieve.base import Block, Metric, Ranking, Vectors, block_rows, check_depth, dense_engine
from pipeline.stages.embed import store_of
from pipeline.stages.index import FOLDER
from pipeline.stages.terms import terms_of

DEFAULT_DEPTH = 500
"""Entries ranked a query (protocol 4)."""


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


@dataclass(frozen=True)
class DenseConfig:
    """What decides a ranking by vectors beside the vectors.

    Attributes:
        metric: ``l2``, ``inner_product`` or ``cosine``.
        depth: entries a query.
        search: ``exact``: every engine gives the same bytes, so which one ran is no part of this.
    """

    metric: Metric
    depth: int
    search: str = "exact"


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
        return _write(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "index": index}
    if tuning is not None:
        inputs["tuning"] = tuning
    slug = f"bm25-{k1:g}-{b:g}-{_slug(pool)}"
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
        from pipeline.retrieve.postings_pool import Collection, Queries
        from pipeline.retrieve.postings_search import search

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
                done=progress.add,
            )
        return _write(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs.update((str(role), analysed) for role, analysed in terms.items())
    if tuning is not None:
        inputs["tuning"] = tuning
    slug = f"bm25-{k1:g}-{b:g}-{_slug(pool)}"
    return Task("search", 1, RANKINGS, slug, Bm25Config(k1, b, depth, "postings"), inputs, run)


def dense_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    *,
    name: str,
    metric: Metric,
    depth: int = DEFAULT_DEPTH,
    engine: str = "auto",
) -> Task:
    """Return the task that ranks a pool's candidates by an encoder's vectors.

    Args:
        corpus: the corpus of the pool.
        pool: whose queries are run.
        vectors: what embeds the pool (:func:`pipeline.stages.embed.embed_tasks`).
        name: the encoder's, for the folder (:attr:`pipeline.encode.spec.Model.slug`).
        metric: how its vectors are compared (:attr:`pipeline.encode.spec.Model.distance`).
        depth: entries a query.
        engine: ``auto``, ``exact`` or ``faiss``: how, not what.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        store = store_of(inputs["paper"])
        size = block_rows(store.dimension, resources.memory)
        queries = _matrix(store_of(inputs["query"]) if "query" in inputs else store, opened.query_rows, size)
        chosen = dense_engine(engine, resources)
        out.note(engine=type(chosen).__name__)
        with Progress(len(opened.candidates), f"search {name}", "docs") as progress:
            ranking = chosen.search(
                queries,
                _counted_blocks(store.blocks(opened.candidates, size), progress),
                metric=metric,
                depth=depth,
                excluded=opened.exclusions,
                resources=resources,
            )
        return _write(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs.update((str(role), embedded) for role, embedded in vectors.items())
    return Task("search", 1, RANKINGS, f"{name}-{_slug(pool)}", DenseConfig(metric, depth), inputs, run)


def _write(ranking: Ranking, pool: Pool, depth: int, out: Workdir) -> Counts:
    queries = len(pool.query_rows)
    out.arrow("ranking.arrow", ranking.table(), RANKING)
    return {
        "queries": queries,
        "queries_without_results": queries - len(np.unique(ranking.query)),
        "candidates": len(pool.candidates),
        "excluded": len(pool.exclusions[1]),
        "entries": len(ranking),
        "depth": depth,
    }


def _matrix(store: VectorStore, rows: Rows, size: int) -> Vectors:
    """Return one vector a row, float32 ``[n, d]``."""
    blocks = list(store.blocks(rows, size))
    found = np.concatenate([np.empty(0, np.uint32), *(block.rows for block in blocks)])
    if not np.array_equal(found, rows):
        raise InputError(
            f"{len(rows):,} queries have {len(found):,} vectors", "Rank with an encoder of one vector a paper"
        )
    return np.concatenate([np.empty((0, store.dimension), np.float32), *(block.vectors for block in blocks)])


def _counted_blocks(blocks: Iterable[Block], progress: Progress) -> Iterator[Block]:
    for rows, vectors in blocks:
        yield rows, vectors
        progress.add(len(rows))


def _counted_texts(blocks: Iterable[list[Text]], progress: Progress) -> Iterator[list[Text]]:
    for block in blocks:
        yield block
        progress.add(len(block))


def _slug(pool: Task | Artifact) -> str:
    return pool.slug if isinstance(pool, Task) else pool.manifest.slug
