"""Stage ``search`` by vectors: the rankings of one encoder, for one pool or for several in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Batch, Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Rows
from pipeline.encode.spec import Role
from pipeline.encode.store import VectorStore
from pipeline.retrieve.base import (
    MAX_SUBSETS,
    Metric,
    Ranking,
    Subset,
    Vectors,
    block_rows,
    check_depth,
)
from pipeline.retrieve.engines import dense_engine
from pipeline.stages.embed import store_of
from pipeline.stages.search import DEFAULT_DEPTH, slug_of, write_ranking

_FILE = "ranking.arrow"

SEVERAL = "best pair"
"""The engine of papers with several vectors."""

_SENTENCES = 16
"""Vectors of such a paper, at most as a rule: so many fewer papers are read at once."""


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


@dataclass(frozen=True)
class _Job:
    pool: Pool
    paper: Artifact
    query: Artifact
    out: Workdir


def dense_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    *,
    name: str,
    metric: Metric,
    depth: int = DEFAULT_DEPTH,
    engine: str = "auto",
    several: bool = False,
) -> Task:
    """Return the task that ranks a pool's candidates by an encoder's vectors.

    Tasks of pools of one corpus, with the same encoder and settings, can be made together: pools with the same queries
    are then ranked from one pass over the union of their candidates.

    Args:
        corpus: the corpus of the pool.
        pool: whose queries are run.
        vectors: what embeds the pool (:func:`pipeline.stages.embed.embed_tasks`).
        name: the encoder's, for the folder (:attr:`pipeline.encode.spec.Model.slug`).
        metric: how its vectors are compared (:attr:`pipeline.encode.spec.Model.distance`).
        depth: entries a query.
        engine: ``auto``, ``exact`` or ``faiss``: how, not what.
        several: whether a paper has several vectors, of which the best pair counts; there is one engine for that.
    """
    check_depth(depth)
    config = DenseConfig(metric, depth)

    def run_together(jobs: Sequence[tuple[Inputs, Workdir]], resources: Resources) -> list[Counts]:
        return _rank(jobs, name, config, SEVERAL if several else engine, resources)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return run_together([(inputs, out)], resources)[0]

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs.update((str(role), embedded) for role, embedded in vectors.items())
    stores = {role: task.room if isinstance(task, Task) else str(task.path.parent) for role, task in vectors.items()}
    batch = Batch(digest({"stores": stores, "config": config, "engine": engine}), run_together)
    return Task("search", 1, RANKINGS, f"{name}-{slug_of(pool)}", config, inputs, run, batch)


def _rank(
    tasks: Sequence[tuple[Inputs, Workdir]], name: str, config: DenseConfig, engine: str, resources: Resources
) -> list[Counts]:
    jobs = []
    for inputs, out in tasks:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        jobs.append(_Job(pool, inputs["paper"], inputs.get("query", inputs["paper"]), out))
    passes = _passes([job for job in jobs if not job.out.done(_FILE)], config.depth, resources.memory)
    for number, together in enumerate(passes, 1):
        title = f"search {name}" + (f" ({number} of {len(passes)})" if len(passes) > 1 else "")
        _pass(together, title, config, engine, resources)
    return [job.out.counts(_FILE) for job in jobs]


def _passes(jobs: Iterable[_Job], depth: int, memory: int) -> list[list[_Job]]:
    """Divide pools into passes: those of one pass have the same queries, and their lists take a quarter of memory."""
    passes: dict[bytes, list[list[_Job]]] = {}
    for job in jobs:
        queries = job.pool.query_rows
        most = int(np.clip(memory // 4 // (8 * depth * max(len(queries), 1)), 1, MAX_SUBSETS))
        alike = passes.setdefault(queries.tobytes(), [[]])
        if len(alike[-1]) == most:
            alike.append([])
        alike[-1].append(job)
    return [together for alike in passes.values() for together in alike]


def _pass(jobs: Sequence[_Job], title: str, config: DenseConfig, engine: str, resources: Resources) -> None:
    """Rank several pools with the same queries, and write each ranking."""
    subsets = [Subset(None if len(jobs) == 1 else job.pool.candidates, job.pool.exclusions) for job in jobs]
    inputs = {"paper": jobs[0].paper, "query": jobs[0].query}
    union = _union([job.pool.candidates for job in jobs])
    rankings, ran = rank_pools(inputs, jobs[0].pool.query_rows, union, subsets, title, config, engine, resources)
    for job, ranking in zip(jobs, rankings, strict=True):
        job.out.note(engine=ran, pools_in_pass=len(jobs))
        write_ranking(ranking, job.pool, config.depth, job.out)


def rank_pools(
    vectors: Inputs,
    query_rows: Rows,
    candidates: Rows,
    subsets: Sequence[Subset],
    title: str,
    config: DenseConfig,
    engine: str,
    resources: Resources,
) -> tuple[list[Ranking], str]:
    """Rank candidates for queries in one pass over their vectors, once for each subset; return what engine did, too.

    Args:
        vectors: published segments by role: ``paper`` and, where queries are none, ``query``.
        query_rows: of the queries, rising.
        candidates: rows, rising, of all subsets together.
        subsets: the pools, or one of all candidates.
        title: what progress is called.
        config: metric and depth.
        engine: ``auto``, ``exact``, ``faiss`` or :data:`SEVERAL`.
        resources: memory, threads and device.
    """
    store, query_store = store_of(vectors["paper"]), store_of(vectors.get("query", vectors["paper"]))
    size = block_rows(store.dimension, resources.memory)
    with Progress(len(candidates), title, "docs") as progress:
        if engine == SEVERAL:
            from pipeline.retrieve.maxsim import Groups, MaxSimEngine

            groups = query_store.grouped(query_rows)
            grouped = MaxSimEngine()
            rankings = grouped.search_pools(
                Groups(*groups),
                store.blocks(candidates, max(size // _SENTENCES, 1)),
                subsets,
                metric=config.metric,
                depth=config.depth,
                resources=resources,
                done=progress.add,
            )
            return rankings, type(grouped).__name__
        queries = matrix(query_store, query_rows, size)
        chosen = dense_engine(engine, 2.0 * queries.size * len(candidates))
        rankings = chosen.search_pools(
            queries,
            store.blocks(candidates, size),
            subsets,
            metric=config.metric,
            depth=config.depth,
            resources=resources,
            done=progress.add,
        )
        return rankings, type(chosen).__name__


def _union(rows: Sequence[Rows]) -> Rows:
    return rows[0] if len(rows) == 1 else np.unique(np.concatenate(rows))


def matrix(store: VectorStore, rows: Rows, size: int) -> Vectors:
    """Return one vector a row, float32 ``[n, d]``."""
    blocks = list(store.blocks(rows, size))
    found = np.concatenate([np.empty(0, np.uint32), *(block.rows for block in blocks)])
    if not np.array_equal(found, rows):
        raise InputError(
            f"{len(rows):,} queries have {len(found):,} vectors", "Rank with an encoder of one vector a paper"
        )
    return np.concatenate([np.empty((0, store.dimension), np.float32), *(block.vectors for block in blocks)])
