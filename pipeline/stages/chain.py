"""The chain of one pool and one system: the tasks that make its vectors or index, its ranking and its scores."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, digest
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import read
from pipeline.core.task import Task
from pipeline.encode.model import Model
from pipeline.encode.names import Name
from pipeline.retrieve.engines import IndexSettings, parse_settings
from pipeline.stages.bm25 import bm25_ranking_task, lucene_task, terms_tasks
from pipeline.stages.dense import approximate_ranking_task, dense_ranking_task
from pipeline.stages.embed import embed_tasks
from pipeline.stages.rankings import baseline_task, fusion_task, import_task
from pipeline.stages.rerank import rerank_task
from pipeline.stages.score import score_tasks
from pipeline.stages.settings import RANKED, Ranked
from pipeline.stages.systems import TUNED, Baseline, Bm25, Reranker, System
from pipeline.stages.tune import Tuning, find_tuning

ENGINES = ("exact", "faiss:INDEX")
"""Engines of dense search. An index of Faiss is approximate and part of the system's name, as in
``scincl@faiss:HNSW32``."""


@dataclass(frozen=True)
class Evaluation:
    """One system on one pool: the task that ranks, and those that score (default measures, then each further one).

    ``embed`` has tasks that embed, ``index`` those that index the pool; ``tuning`` gives the parameters of BM25, and
    ``exact`` is the evaluation by exact search of an approximate one.
    """

    ranking: Task
    scores: tuple[Task, ...]
    system: Name
    embed: tuple[Task, ...] = ()
    index: tuple[Task, ...] = ()
    tuning: Tuning | None = None
    exact: Evaluation | None = None


@dataclass(frozen=True)
class Chain(Ranked):
    """How pools of one corpus are ranked and scored; InputError if there is no such engine.

    ``untuned``: a tuned ``bm25`` is also evaluated with Anserini's parameters, after the tuned ranking. ``smaller`` has
    the next smaller of nested pools, by the identity of a pool; :meth:`evaluations` finds them.
    """

    corpus: Artifact
    tunings: Sequence[Artifact] = ()
    untuned: bool = False
    smaller: Mapping[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        read(RANKED, {name: getattr(self, name) for name in ("bm25_engine", "missing_positives", "measure_engine")})
        if self.index is None:
            require_known(self.engine, ENGINES, f"there is no search engine {self.engine!r}")

    @property
    def index(self) -> IndexSettings | None:
        """The index of approximate search; None: search is exact."""
        return parse_settings(self.engine)

    def evaluations(self, pools: Iterable[Task], systems: Sequence[System]) -> list[Evaluation]:
        """Return an evaluation for each pool and system, pool by pool.

        Raises:
            InputError: an engine is given that no system uses; a pool lacks a required tuning; or a measure is deeper
                than the rankings.
        """
        rankers = [leaf.ranker for system in systems for leaf in system.leaves]
        if self.engine != "exact" and not any(isinstance(ranker, Model) for ranker in rankers):
            problem = f"--engine={self.engine} must have an encoder to search by"
            raise InputError(problem, "Leave it out, or name an encoder")
        if self.bm25_engine != "postings" and not any(isinstance(ranker, Bm25) for ranker in rankers):
            problem = f"--bm25-engine {self.bm25_engine} must go with bm25"
            raise InputError(problem, "Leave it out, or name bm25")
        by_scores: dict[str, Evaluation] = {}
        pools = list(pools)
        chain = dataclasses.replace(self, smaller=_next_smaller(pools))
        for pool, system in itertools.product(pools, systems):
            evaluation = chain._evaluation(pool, system)
            tuned = system.ranker == Bm25(tuning="any") and evaluation.tuning is not None
            ranked = (
                evaluation.exact,
                evaluation,
                self._evaluation(pool, System.bm25()) if self.untuned and tuned else None,
            )
            by_scores |= {evaluated.scores[0].id: evaluated for evaluated in ranked if evaluated is not None}
        return list(by_scores.values())

    def _evaluation(self, pool: Task, system: System) -> Evaluation:
        match system.ranker:
            case Bm25() as bm25:
                return self._bm25(pool, bm25)
            case Model() as model:
                return self._dense(pool, system, model)
            case Baseline() as baseline:
                return self._scored(pool, baseline_task(self.corpus, pool, baseline, depth=self.depth), system.title)
            case Path() as path:
                ranking = import_task(
                    self.corpus, pool, path, system.name, depth=self.depth, allow_unknown=self.allow_unknown
                )
                return self._scored(pool, ranking, system.title)
            case Reranker() as reranker:
                return self._reranked(pool, system, reranker)
            case _:
                return self._fused(pool, system)

    def _bm25(self, pool: Task, bm25: Bm25) -> Evaluation:
        corpus, depth = self.corpus, self.depth
        tuning = find_tuning(self.tunings, corpus.id, canonical(pool.config)) if bm25.tuning != "none" else None
        if tuning is not None:
            bm25 = Bm25(tuning.k1, tuning.b, "required")
        elif bm25.tuning == "required":
            raise InputError(
                f"BM25 was not tuned for {pool.slug}",
                "Run mdcr tune with the same --corpus, --field, --year, --seed and rules and at least as many "
                "--queries; it serves test pools",
            )
        tuning_artifact = tuning.artifact if tuning is not None else None
        lucene = self.bm25_engine == "lucene"
        index: Mapping[str, Task] = {"lucene": lucene_task(corpus, pool)} if lucene else terms_tasks(corpus, pool)
        ranking = bm25_ranking_task(corpus, pool, index, k1=bm25.k1, b=bm25.b, depth=depth, tuning=tuning_artifact)
        return self._scored(pool, ranking, bm25.title, index=tuple(index.values()), tuning=tuning)

    def _dense(self, pool: Task, system: System, model: Model) -> Evaluation:
        index, ranking = self.index, self._exact(pool, model)
        vectors = embed_tasks(self.corpus, pool, model)
        exact = self._scored(pool, ranking, system.title, embed=tuple(vectors.values()))
        if index is None:
            return exact
        if model.multi_vector:
            raise InputError(
                f"{system.name} has several vectors per paper, which {index.name} cannot search", "--engine=exact"
            )
        ranking = approximate_ranking_task(self.corpus, pool, vectors, model, ranking, depth=self.depth, settings=index)
        title = dataclasses.replace(system.title, index=index.name)
        return self._scored(pool, ranking, title, embed=exact.embed, exact=exact)

    def _exact(self, pool: Task, model: Model) -> Task:
        """Return the task of exact search; it goes on from the ranking of the next smaller of nested pools."""
        smaller = self.smaller.get(pool.id)
        part = None if smaller is None else (smaller, self._exact(smaller, model))
        vectors = embed_tasks(self.corpus, pool, model)
        return dense_ranking_task(self.corpus, pool, vectors, model, depth=self.depth, smaller=part)

    def _fused(self, pool: Task, system: System) -> Evaluation:
        evaluations = [self._evaluation(pool, part) for part in system.parts]
        pairs = zip(evaluations, system.parts, strict=True)
        keys = tuple(TUNED if evaluation.tuning else part.key for evaluation, part in pairs)
        rankings = [evaluation.ranking for evaluation in evaluations]
        return self._scored(
            pool,
            fusion_task(self.corpus, pool, rankings, parts=keys, depth=self.depth),
            system.of(dataclasses.replace(evaluation.system, index="") for evaluation in evaluations),
            embed=tuple(task for evaluation in evaluations for task in evaluation.embed),
            index=tuple(task for evaluation in evaluations for task in evaluation.index),
            tuning=next((evaluation.tuning for evaluation in evaluations if evaluation.tuning is not None), None),
        )

    def _reranked(self, pool: Task, system: System, reranker: Reranker) -> Evaluation:
        if reranker.head > self.depth:
            raise InputError(f"{system.name} must rerank at most --depth {self.depth} entries", "Give a larger --depth")
        first = self._evaluation(pool, system.parts[0])
        first = first.exact or first
        ranking = rerank_task(self.corpus, pool, first.ranking, reranker.model, head=reranker.head)
        origin = {"embed": first.embed, "index": first.index, "tuning": first.tuning}
        return self._scored(pool, ranking, system.of([first.system]), **origin)

    def _scored(self, pool: Task, ranking: Task, system: Name, **origin: Any) -> Evaluation:
        scores = score_tasks(
            ranking, pool, self.corpus, system=system, depth=self.depth, measures=self.measures,
            missing_positives=self.missing_positives, engine=self.measure_engine,
        )  # fmt: skip
        return Evaluation(ranking, scores, system, **origin)


def _next_smaller(pools: Iterable[Task]) -> dict[str, Task]:
    """Return the next smaller of nested pools that differ in size alone, by the identity of the larger pool."""
    by_settings: dict[str, dict[float, Task]] = {}
    for pool in pools:
        settings = dict(canonical(pool.config))
        if settings.get("nested"):
            size = float(str(settings.pop("size")).replace("all", "inf"))
            by_settings.setdefault(digest(settings), {})[size] = pool
    nested = (itertools.pairwise(by_size[size] for size in sorted(by_size)) for by_size in by_settings.values())
    return {larger.id: smaller for smaller, larger in itertools.chain.from_iterable(nested)}
