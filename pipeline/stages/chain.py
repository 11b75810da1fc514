"""The chain of one pool and one system: which tasks make its vectors or index, its ranking, its scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import InputError, nearest
from pipeline.core.task import Task
from pipeline.stages.dense import SEVERAL, dense_ranking_task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.index import lucene_task
from pipeline.stages.ranking import DenseSearch
from pipeline.stages.score import score_task
from pipeline.stages.search import DEFAULT_DEPTH, bm25_ranking_task, postings_ranking_task
from pipeline.stages.systems import Bm25, Dense, System
from pipeline.stages.terms import terms_tasks
from pipeline.stages.tune import Tuning, find_tuning

Stop = Literal["embed", "index", "search"]

BM25_ENGINES = ("postings", "lucene")


@dataclass(frozen=True)
class Cell:
    """One system on one pool.

    Attributes:
        embed: tasks that embed the pool's papers (and ad-hoc queries); empty for BM25.
        index: tasks that index the pool; empty where flat search reads the vectors themselves.
        ranking: the task that ranks.
        score: the task that scores.
        tuning: what decided the parameters of BM25, if anything did.
    """

    embed: tuple[Task, ...]
    index: tuple[Task, ...]
    ranking: Task
    score: Task
    tuning: Tuning | None = None

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
    bm25_engine: str = "postings",
    tunings: Sequence[Artifact] = (),
) -> list[Cell]:
    """Return a cell for each pool and system, pool by pool.

    Args:
        corpus: the corpus of the pools.
        pools: what is ranked.
        systems: what ranks.
        measures: what is scored.
        depth: entries ranked a query.
        engine: dense search: ``auto``, ``exact`` or ``faiss``; the ranking is the same.
        bm25_engine: BM25: one of :data:`BM25_ENGINES`; the ranking is the same.
        tunings: published tunings of BM25.

    Raises:
        InputError: there is no such engine of BM25, or no tuning of a pool for which one is required.
    """
    if bm25_engine not in BM25_ENGINES:
        raise InputError(f"there is no BM25 engine {bm25_engine!r}", nearest(bm25_engine, BM25_ENGINES))
    found = [
        _bm25_cell(corpus, pool, system, measures, depth, bm25_engine, tunings)
        if isinstance(system, Bm25)
        else _dense_cell(corpus, pool, system, measures, depth, engine)
        for pool in pools
        for system in systems
    ]
    return list({cell.score.id: cell for cell in found}.values())


def _bm25_cell(
    corpus: Artifact,
    pool: Task,
    system: Bm25,
    measures: tuple[str, ...],
    depth: int,
    engine: str,
    tunings: Sequence[Artifact],
) -> Cell:
    tuning = find_tuning(tunings, corpus, canonical(pool.config)) if system.tuning != "none" else None
    if tuning is not None:
        system = Bm25(tuning.k1, tuning.b, "required")
    elif system.tuning == "required":
        raise InputError(
            f"BM25 was not tuned for {pool.slug}",
            "Run mdcr tune with the same --corpus, --field, --year, --seed and rules and at least as many --queries; "
            "it serves test pools",
        )
    origin = tuning.artifact if tuning is not None else None
    index: tuple[Task, ...]
    if engine == "lucene":
        index = (lucene_task(corpus, pool),)
        ranking = bm25_ranking_task(corpus, pool, index[0], k1=system.k1, b=system.b, depth=depth, tuning=origin)
    else:
        terms = terms_tasks(corpus, pool)
        index = tuple(terms.values())
        ranking = postings_ranking_task(corpus, pool, terms, k1=system.k1, b=system.b, depth=depth, tuning=origin)
    return Cell((), index, ranking, _score(ranking, pool, corpus, system.name, measures), tuning)


def _dense_cell(
    corpus: Artifact, pool: Task, system: Dense, measures: tuple[str, ...], depth: int, engine: str
) -> Cell:
    embedded = embed_tasks(corpus, pool, system.model)
    ranking = dense_ranking_task(
        corpus,
        pool,
        embedded,
        name=system.model.slug,
        metric=system.model.distance,
        depth=depth,
        engine=engine,
        several=system.model.several,
    )
    units = DenseSearch(system.model.slug, system.model.distance, depth, SEVERAL if system.model.several else engine)
    ranking = dataclasses.replace(ranking, units=units)
    return Cell(tuple(embedded.values()), (), ranking, _score(ranking, pool, corpus, system.name, measures))


def _score(ranking: Task, pool: Task, corpus: Artifact, system: str, measures: tuple[str, ...]) -> Task:
    sample = int(canonical(pool.config)["sample"])
    return score_task(ranking, pool, corpus, system=system, sample=sample, measures=measures)
