"""Rankings of candidate lists: BM25 with an index of each list, and the check that every pair has a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import pairs
from pipeline.report.identity import RECORDED
from pipeline.retrieve.base import Ranking, no_exclusions
from pipeline.stages.bm25 import Bm25Config, index_of, installed_analyzer
from pipeline.stages.search import open_pool, read_ranking, slug_of, write_ranking
from pipeline.stages.systems import Bm25, Fused, Reranked, System
from pipeline.studies.mdcr.lists import Lists

Bm25Index = Literal["corpus", "query"]
"""Whose documents BM25 counts: those of all lists of a field, or of each query's own list."""

INDEXES = ("corpus", "query")


@dataclass(frozen=True)
class OwnIndexConfig(Bm25Config):
    """What decides a BM25 ranking with an index of each list."""

    index: str = "query"


@dataclass(frozen=True)
class CompleteConfig:
    """What decides a complete ranking: whether a pair without a score is the last of its list, or an error."""

    missing: Literal["last", "error"]


def own_index_task(corpus: Artifact, pool: Task, indexes: Mapping[str, Task], system: Bm25, depth: int) -> Task:
    """Return the task that ranks each list by BM25 with document frequencies and lengths of that list alone."""

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.bm25.collection import Collection, QueryTerms
        from pipeline.retrieve.bm25.search import search

        opened, index = open_pool(inputs), index_of(inputs["paper"])
        queries = QueryTerms.read(index, opened.query_rows)
        found, lists = [], _own_rows(opened)
        for number, rows in enumerate(lists):
            collection = Collection.read(index, rows, queries.vocabulary, resources.workers)
            own = queries.part(number, number + 1)
            found.append(search(collection, own, no_exclusions(1), k1=system.k1, b=system.b, depth=depth, threads=1))
        counts = np.array(list(map(len, found)), np.int64)
        row, score = (np.concatenate([getattr(each, name) for each in found]) for name in ("row", "score"))
        return write_ranking(Ranking.from_counts(counts, row, score), opened, depth, out)

    config = OwnIndexConfig(*installed_analyzer(), system.k1, system.b, depth)
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    slug = f"bm25-own-{system.k1:g}-{system.b:g}-{slug_of(pool)}"
    return Task("search", 2, RANKINGS, slug, config, inputs, run, derived=indexes)


def complete_task(corpus: Artifact, pool: Task, ranking: Task, system: System) -> Task:
    """Return the task that checks that a ranking has every pair of a pool of lists.

    BM25 gives no score to candidates without a shared term: they are last in their list.

    Raises:
        InputError: once run: another system has no score of a pair; the message names it.
    """
    config = CompleteConfig("last" if _only_bm25(system) else "error")

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened, found = open_pool(inputs), read_ranking(inputs["ranking"])
        ranked, own = pairs(found.query, found.row), Lists(Pool(inputs["pool"], opened.corpus)).pairs()
        missing = np.setdiff1d(own, ranked)
        if len(missing) and config.missing == "error":
            query, row = int(missing[0] >> np.uint64(32)), int(missing[0] & np.uint64(0xFFFFFFFF))
            (candidate,) = opened.corpus.ids(np.array([row]))
            raise InputError(
                f"{system.name} must score every pair, got none for query {opened.query_ids()[query]} and "
                f"candidate {candidate} of {opened.artifact.manifest.config['field']}",
                "Score all candidates of the benchmark",
            )
        least = float(found.score.min(initial=1))  # a cross-encoder's scores may be negative
        scores = np.append(found.score, np.full(len(missing), 0 if least > 0 else least - 1, np.float32))
        made = inputs["ranking"].manifest.provenance
        out.note(**{name: made[name] for name in RECORDED if name in made})
        ranking = in_order(np.concatenate([ranked, missing]), scores, len(opened.query_rows))
        depth = int(np.bincount(ranking.query).max())
        return {**write_ranking(ranking, opened, depth, out), "without_shared_term": len(missing)}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    return Task("complete", 1, RANKINGS, f"complete-{ranking.slug}", config, inputs, run)


def in_order(packed: np.ndarray, scores: np.ndarray, queries: int) -> Ranking:
    """Return the ranking of some pairs in the one total order.

    Args:
        packed: uint64 ``[n]``, query and row (:func:`pipeline.measure.inputs.pairs`).
        scores: float32 ``[n]``, finite; higher is better.
        queries: number of queries.
    """
    query = (packed >> np.uint64(32)).astype(np.int64)
    order = np.lexsort(((packed & np.uint64(0xFFFFFFFF)).astype(np.int64), scores, -query))[::-1]
    rows = packed[order].astype(np.uint32)
    return Ranking.from_counts(np.bincount(query, minlength=queries), rows, scores[order])


def _only_bm25(system: System) -> bool:
    if isinstance(system, Reranked):
        return _only_bm25(system.first)
    return all(isinstance(part, Bm25) for part in (system.parts if isinstance(system, Fused) else (system,)))


def _own_rows(pool: Pool) -> list[np.ndarray]:
    own = Lists(pool).pairs()
    starts = np.searchsorted(own >> np.uint64(32), np.arange(1, len(pool.query_rows)))
    return np.split(own.astype(np.uint32), starts)
