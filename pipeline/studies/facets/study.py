"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.config import file_name
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.frames import as_csv
from pipeline.sources.csfcube import FACETS, checked_facet
from pipeline.stages.score import score_task
from pipeline.stages.search import read_ranking
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.facets.analyses import (
    agreement_tables,
    citation_tables,
    grade_tables,
    paired,
    paired_figure,
    paired_tables,
    pooling_tables,
)
from pipeline.studies.facets.browse import browser
from pipeline.studies.facets.pools import FACET, WHOLE, Collection, CollectionRecipe, collection_task, facet_pool_task
from pipeline.studies.facets.rankings import FacetRanking, file_rankings, ranked_json, rankings
from pipeline.studies.facets.scoring import (
    best_row,
    chance_of,
    difference_tables,
    query_figure,
    score_tables,
    standardised,
    summaries,
    values_of,
)
from pipeline.studies.recipe import KEPT, REPLACED


@dataclass(frozen=True)
class Recipe(CollectionRecipe):
    """Settings of the study, beside those of the collection.

    Attributes:
        facets: which facets.
        systems: what ranks by the facet's sentences, with commas: any system, ``tfidf``, or ``ot(ENCODER)``, the
            optimal transport of an encoder's sentence vectors.
        whole: what ranks by the whole query paper, likewise.
        ranked: folder of ranked pools in the authors' layout; empty: none.
        baseline: the system that the others are compared with; empty: the first.
        relevant: the least relevant grade.
        measures: what is scored.
        shown: of the measures, those that the table of facets shows; the last is drawn, tested, and scored by
            citations.
        standardised: whether every value is standardised by a random ranking's (0; the best is 1).
        seed: of the intervals, tests and random rankings.
    """

    facets: tuple[str, ...]
    systems: str
    whole: str = field(metadata=REPLACED)
    ranked: str = field(metadata=KEPT)
    baseline: str
    relevant: int
    measures: tuple[str, ...]
    shown: tuple[str, ...]
    standardised: bool
    seed: int

    def __post_init__(self) -> None:
        for facet in self.facets:
            checked_facet(facet, "the recipe")
        if not self.facets or not self.shown or not set(self.shown) <= set(self.measures):
            raise InputError(
                "facets and shown must not be empty, and every measure of shown must be in measures",
                "Correct the recipe",
            )


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpus, then the scores of every system on every facet."""
    yield [recipe.corpus_task]
    corpus = recipe.made(workspace)
    scores = [_score_task(recipe, corpus, ranking) for ranking in _rankings(workspace, recipe, corpus)]
    yield [collection_task(corpus, recipe.release), *scores]


def _rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[FacetRanking]:
    """Return every system on every facet, those of files last."""
    collection = collection_task(corpus, recipe.release)
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    facet_rankings = rankings(workspace, corpus, collection, recipe.facets, systems, recipe.relevant)
    if recipe.ranked:
        facet_rankings += file_rankings(corpus, Path(recipe.ranked).expanduser(), recipe.facets, recipe.relevant)
    names = dict.fromkeys(ranking.system for ranking in facet_rankings)
    if not names:
        raise InputError("the study must have a system, got none", "Set systems, whole or ranked")
    if recipe.baseline not in ("", *names):
        raise InputError(
            f"the baseline must be one of {', '.join(names)}, got {recipe.baseline!r}", "Set it to '' for the first"
        )
    return facet_rankings


def _score_task(recipe: Recipe, corpus: Artifact, ranking: FacetRanking) -> Task:
    return score_task(ranking.ranking, ranking.pool, corpus, system=ranking.system, sample=1, measures=recipe.measures)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return tables, the figure of queries, their browser, and the ranked pools."""
    corpus, make = recipe.made(workspace), workspace.runner.make
    facet_rankings = _rankings(workspace, recipe, corpus)
    collection_artifact = make(collection_task(corpus, recipe.release))
    collection = Collection.read(collection_artifact)
    asked = {facet: facet_pool_task(corpus, facet, FACET, recipe.relevant) for facet in recipe.facets}
    tasks = [*asked.values(), *(ranking.pool for ranking in facet_rankings)]
    opened = {task.id: Pool(make(task), Corpus(corpus)) for task in tasks}
    pools = {facet: opened[task.id] for facet, task in asked.items()}
    ranked = {ranking[:3]: (opened[ranking.pool.id], read_ranking(make(ranking.ranking))) for ranking in facet_rankings}
    values = pl.concat(
        values_of(make(_score_task(recipe, corpus, ranking)), opened[ranking.pool.id], ranking.form)
        for ranking in facet_rankings
    )
    graded = values
    chance = pl.concat(chance_of(pool, recipe.measures, recipe.seed) for pool in pools.values())
    if recipe.standardised:
        values, chance = (standardised(frame, chance) for frame in (values, chance))
    figures, tested = summaries(pl.concat([values, chance]), collection.folds, recipe.seed), recipe.shown[-1]
    pairs = paired(values, tested)
    tables = [
        *score_tables(figures, recipe.shown, pools),
        *difference_tables(values, tested, recipe.baseline, recipe.seed),
        *agreement_tables({facet: collection.annotations[facet] for facet in recipe.facets}),
        *paired_tables(pairs, tested, recipe.seed),
        *grade_tables(pools),
        *citation_tables(pools, ranked, graded, tested, recipe.relevant),
        *pooling_tables(ranked, recipe.pooled_by(), tested, recipe.relevant),
    ]
    files = {"queries.csv": as_csv(values)}
    for (system, form, facet), (pool, ranking) in ranked.items():
        slug = file_name(system.casefold(), gap="_") + ("" if form == FACET else f"_{form}")
        files[f"test-pid2pool-{recipe.corpus}-{slug}-{facet}-ranked.json"] = ranked_json(pool, ranking)
    return StudyResult(
        tables,
        figures=[query_figure(values, tested), *([] if pairs.is_empty() else [paired_figure(pairs, tested)])],
        sources=[corpus.name, collection_artifact.name, *(pool.artifact.name for pool in opened.values())],
        files=files,
        parts=[browser(pools, collection, ranked, values)],
        best=best_row(figures, tested),
    )


def listing(recipe: Recipe) -> list[dict[str, object]]:
    """Return the queries of each facet that the input asks."""
    asked = recipe.release.query_facets()
    by_facet = {facet: [paper for paper, asked_facet in asked if asked_facet == facet] for facet in FACETS}
    return [{"facet": facet, "queries": len(papers), "papers": ", ".join(papers)} for facet, papers in by_facet.items()]


STUDY = Study(
    "facets",
    "faceted query by example on judged pools (CSFCube)",
    Recipe,
    batches,
    results,
    listing,
    needs="Its data are CSFCube's: git clone https://github.com/iesl/CSFCube csfcube, or give a folder with --input",
)
