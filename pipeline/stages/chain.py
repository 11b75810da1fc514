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
from pipeline.retrieve.engines import EXACT_ENGINES, KINDS, IndexSettings, parse_settings
from pipeline.stages.approximate import approximate_ranking_task
from pipeline.stages.dense import SEVERAL, dense_ranking_task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.fusion import fusion_task, weigh_task
from pipeline.stages.index import lucene_task
from pipeline.stages.ranking import DenseSearch
from pipeline.stages.score import score_task
from pipeline.stages.search import DEFAULT_DEPTH, bm25_ranking_task, postings_ranking_task
from pipeline.stages.systems import Bm25, Dense, Fused, System
from pipeline.stages.terms import terms_tasks
from pipeline.stages.tune import Tuning, find_tuning

Stop = Literal["embed", "index", "search"]

BM25_ENGINES = ("postings", "lucene")
ENGINES = ("auto", *EXACT_ENGINES, *KINDS)
"""Engines of dense search. Those of :mod:`pipeline.retrieve.ann` change the ranking: their systems have names of their
own, as ``scincl@ivf``."""


@dataclass(frozen=True)
class Evaluation:
    """One system on one pool.

    Attributes:
        embed: tasks that embed the pool's papers (and ad-hoc queries); empty for BM25.
        index: tasks that index the pool; empty where flat search reads the vectors themselves.
        ranking: the task that ranks.
        score: the task that scores.
        tuning: what decided the parameters of BM25, if anything did.
        exact: the same by exact search, where this one is approximate.
    """

    embed: tuple[Task, ...]
    index: tuple[Task, ...]
    ranking: Task
    score: Task
    tuning: Tuning | None = None
    exact: Evaluation | None = None

    def upto(self, stage: Stop) -> tuple[Task, ...]:
        """Return the tasks after which the chain is done up to a stage."""
        return {"embed": self.embed, "index": self.index or self.embed, "search": (self.ranking,)}[stage]


def evaluations(
    corpus: Artifact,
    pools: Iterable[Task],
    systems: Sequence[System],
    measures: tuple[str, ...],
    *,
    depth: int = DEFAULT_DEPTH,
    engine: str = "auto",
    bm25_engine: str = "postings",
    tunings: Sequence[Artifact] = (),
    validation: Sequence[Task] = (),
) -> list[Evaluation]:
    """Return an evaluation for each pool and system, pool by pool.

    Args:
        corpus: the corpus of the pools.
        pools: what is ranked.
        systems: what ranks.
        measures: what is scored.
        depth: entries ranked a query.
        engine: dense search: ``auto``, ``exact`` or ``faiss``, whose rankings are the same; or an index of
            :func:`pipeline.retrieve.engines.parse_settings`, as ``ivf:probes=0.1``, whose ranking is approximate:
            there is an evaluation of the exact search before it.
        bm25_engine: BM25: one of :data:`BM25_ENGINES`; the ranking is the same.
        tunings: published tunings of BM25.
        validation: pools of validation queries, for the weights of fused systems.

    Raises:
        InputError: there is no such engine, or no tuning of a pool for which one is required.
    """
    index = parse_settings(engine)
    if index is None and engine not in ENGINES:
        raise InputError(f"there is no search engine {engine!r}", nearest(engine, ENGINES))
    if bm25_engine not in BM25_ENGINES:
        raise InputError(f"there is no BM25 engine {bm25_engine!r}", nearest(bm25_engine, BM25_ENGINES))
    make = _Evaluations(corpus, measures, depth, "auto" if index else engine, index, bm25_engine, tunings, validation)
    found = [evaluation for pool in pools for system in systems for evaluation in make.with_exact(pool, system)]
    return list({evaluation.score.id: evaluation for evaluation in found}.values())


@dataclass(frozen=True)
class _Evaluations:
    """Makes evaluations, all with the same settings."""

    corpus: Artifact
    measures: tuple[str, ...]
    depth: int
    engine: str
    index: IndexSettings | None
    bm25_engine: str
    tunings: Sequence[Artifact]
    validation: Sequence[Task]

    def with_exact(self, pool: Task, system: System) -> list[Evaluation]:
        """Return the evaluation of a system, after the exact one where it is approximate."""
        evaluation = self.evaluation(pool, system)
        return [evaluation] if evaluation.exact is None else [evaluation.exact, evaluation]

    def evaluation(self, pool: Task, system: System) -> Evaluation:
        if isinstance(system, Fused):
            return self._fused(pool, system)
        return self._bm25(pool, system) if isinstance(system, Bm25) else self._dense(pool, system)

    def _bm25(self, pool: Task, system: Bm25) -> Evaluation:
        corpus, depth = self.corpus, self.depth
        tuning = find_tuning(self.tunings, corpus, canonical(pool.config)) if system.tuning != "none" else None
        if tuning is not None:
            system = Bm25(tuning.k1, tuning.b, "required")
        elif system.tuning == "required":
            raise InputError(
                f"BM25 was not tuned for {pool.slug}",
                "Run mdcr tune with the same --corpus, --field, --year, --seed and rules and at least as many "
                "--queries; it serves test pools",
            )
        origin = tuning.artifact if tuning is not None else None
        index: tuple[Task, ...]
        if self.bm25_engine == "lucene":
            index = (lucene_task(corpus, pool),)
            ranking = bm25_ranking_task(corpus, pool, index[0], k1=system.k1, b=system.b, depth=depth, tuning=origin)
        else:
            terms = terms_tasks(corpus, pool)
            index = tuple(terms.values())
            ranking = postings_ranking_task(corpus, pool, terms, k1=system.k1, b=system.b, depth=depth, tuning=origin)
        return Evaluation((), index, ranking, self._score(ranking, pool, system.name), tuning)

    def _dense(self, pool: Task, system: Dense) -> Evaluation:
        model = system.model
        embedded = embed_tasks(self.corpus, pool, model)
        ranking = dense_ranking_task(
            self.corpus,
            pool,
            embedded,
            name=model.slug,
            metric=model.distance,
            depth=self.depth,
            engine=self.engine,
            several=model.several,
        )
        units = DenseSearch(model.slug, model.distance, self.depth, SEVERAL if model.several else self.engine)
        ranking = dataclasses.replace(ranking, units=units)
        exact = Evaluation(tuple(embedded.values()), (), ranking, self._score(ranking, pool, system.name))
        index = self.index
        if index is None:
            return exact
        if model.several:
            raise InputError(
                f"{system.name} has several vectors a paper, which {index.kind} cannot search", "--engine exact"
            )
        found = approximate_ranking_task(
            self.corpus,
            pool,
            embedded,
            ranking,
            name=model.slug,
            metric=model.distance,
            depth=self.depth,
            settings=index,
        )
        return Evaluation(exact.embed, (), found, self._score(found, pool, f"{system.name}@{index.name}"), exact=exact)

    def _fused(self, pool: Task, system: Fused) -> Evaluation:
        parts = [self.evaluation(pool, part) for part in system.parts]
        names = tuple(
            "bm25:tuned" if evaluation.tuning else part.name
            for evaluation, part in zip(parts, system.parts, strict=True)
        )
        weights = None
        if system.method == "wsum":
            held_out = self._validation_of(pool, system)
            rankings = [
                self.evaluation(held_out, _as_in(evaluation, part)).ranking
                for evaluation, part in zip(parts, system.parts, strict=True)
            ]
            weights = weigh_task(self.corpus, held_out, rankings, parts=names, depth=self.depth)
        ranking = fusion_task(
            self.corpus,
            pool,
            [part.ranking for part in parts],
            method=system.method,
            parts=names,
            depth=self.depth,
            weights=weights,
        )
        return Evaluation(
            tuple(task for part in parts for task in part.embed),
            tuple(task for part in parts for task in part.index),
            ranking,
            self._score(ranking, pool, f"{system.method}({','.join(names)})"),
            next((part.tuning for part in parts if part.tuning is not None), None),
        )

    def _validation_of(self, pool: Task, system: Fused) -> Task:
        """Return the validation pool of the same field and size: what the weights of a sum are chosen on."""
        own = canonical(pool.config)
        if own["split"] == "validation":
            raise InputError(
                f"{system.name} is tuned on validation queries, which {pool.slug} holds", "Rank --split test"
            )
        for other in self.validation:
            settings = canonical(other.config)
            if settings["split"] == "validation" and all(settings[name] == own[name] for name in ("field", "size")):
                return other
        raise InputError(
            f"there are no validation queries for {system.name} on {pool.slug}",
            "Fuse by rank instead: rrf(...); a corpus that brings its own queries has none for validation",
        )

    def _score(self, ranking: Task, pool: Task, system: str) -> Task:
        sample = int(canonical(pool.config)["sample"])
        return score_task(ranking, pool, self.corpus, system=system, sample=sample, measures=self.measures)


def _as_in(evaluation: Evaluation, system: Bm25 | Dense) -> Bm25 | Dense:
    """Return a system with the parameters it has in an evaluation, whatever was tuned since or elsewhere."""
    if not isinstance(system, Bm25):
        return system
    return Bm25(system.k1, system.b) if evaluation.tuning is None else Bm25(evaluation.tuning.k1, evaluation.tuning.b)
