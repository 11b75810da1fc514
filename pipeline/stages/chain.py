"""The chain of one pool and one system: which tasks make its vectors or index, its ranking, its scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.task import Task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.index import lucene_task
from pipeline.stages.score import score_task
from pipeline.stages.search import DEFAULT_DEPTH, bm25_ranking_task, dense_ranking_task
from pipeline.stages.systems import Bm25, System

Stop = Literal["embed", "index", "search"]


@dataclass(frozen=True)
class Cell:
    """One system on one pool.

    Attributes:
        embed: tasks that embed the pool's papers (and ad-hoc queries); empty for BM25.
        index: tasks that index the pool; empty where flat search reads the vectors themselves.
        ranking: the task that ranks.
        score: the task that scores.
    """

    embed: tuple[Task, ...]
    index: tuple[Task, ...]
    ranking: Task
    score: Task

    def upto(self, stage: Stop) -> tuple[Task, ...]:
        """Return the tasks after which the chain is done up to a stage."""
        return {"embed": self.embed, "index": self.index or self.embed, "search": (self.ranking,)}[stage]


def cells(
    corpus: Artifact,
    pools: Iterable[Task],
    systems: Sequence[System],
    measures: tuple[str, ...],
    *,
    depth: int = DEFAULT_DEPTH,
    engine: str = "auto",
) -> list[Cell]:
    """Return a cell for each pool and system, pool by pool.

    Args:
        corpus: the corpus of the pools.
        pools: what is ranked.
        systems: what ranks.
        measures: what is scored.
        depth: entries ranked a query.
        engine: dense search: ``auto``, ``exact`` or ``faiss``; the ranking is the same.
    """
    return [_cell(corpus, pool, system, measures, depth, engine) for pool in pools for system in systems]


def _cell(corpus: Artifact, pool: Task, system: System, measures: tuple[str, ...], depth: int, engine: str) -> Cell:
    embed: tuple[Task, ...] = ()
    index: tuple[Task, ...] = ()
    if isinstance(system, Bm25):
        index = (lucene_task(corpus, pool),)
        ranking = bm25_ranking_task(corpus, pool, index[0], k1=system.k1, b=system.b, depth=depth)
    else:
        embedded = embed_tasks(corpus, pool, system.model)
        embed = tuple(embedded.values())
        ranking = dense_ranking_task(
            corpus,
            pool,
            embedded,
            name=system.model.slug,
            metric=system.model.distance,
            depth=depth,
            engine=engine,
        )
    sample = int(canonical(pool.config)["sample"])
    score = score_task(ranking, pool, corpus, system=system.name, sample=sample, measures=measures)
    return Cell(embed, index, ranking, score)
