"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.config import file_name
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.frames import as_csv
from pipeline.sources.csfcube import FACETS, checked_facet
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.score import score_task
from pipeline.studies.base import StudyResult, old_study
from pipeline.studies.common import named_by
from pipeline.studies.facets import analyses, pools, scoring
from pipeline.studies.facets.pools import FACET, WHOLE, Collection, CollectionRecipe
from pipeline.studies.facets.rankings import FacetRanking, file_rankings, ranked_json, rankings


@dataclass(frozen=True, kw_only=True)
class Recipe(CollectionRecipe):
    """Settings of the study."""

    facets: tuple[str, ...] = required("which facets")
    systems: str = required("what ranks by the facet's sentences: any system, tfidf, or ot(ENCODER)")
    whole: str = required("what ranks by the whole query paper, with commas", systems="replaced")
    ranked: str = required("folder of ranked pools, such as csfcube/sample_ranked_pools; empty: none", systems="kept")
    baseline: str = required("the system that the others are compared with; empty: the first")
    relevant: int = required("the least relevant grade")
    measures: tuple[str, ...] = required("what is scored; csfcube-*: as the authors' script computes them")
    shown: tuple[str, ...] = required("measures of the table; the last is drawn, tested, and scored by citations")
    standardised: bool = required("true: values above those of random rankings, 0 to 1")
    seed: int = required("seed of the intervals, tests and random rankings")

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
    corpus = recipe.require_corpus(workspace)
    scores = [_score_task(recipe, corpus, ranking) for ranking in _rankings(workspace, recipe, corpus)]
    yield [pools.collection_task(corpus, recipe.release), *scores]


def _rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[FacetRanking]:
    """Return the ranking of every system on every facet; those read from files are last."""
    collection = pools.collection_task(corpus, recipe.release)
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    facet_rankings = rankings(workspace, corpus, collection, recipe.facets, systems, recipe.relevant)
    if recipe.ranked:
        facet_rankings += file_rankings(corpus, Path(recipe.ranked).expanduser(), recipe.facets, recipe.relevant)
    names = dict.fromkeys(ranking.system for ranking in facet_rankings)
    if not names:
        raise InputError("the study must have a system, got none", "Set systems, whole or ranked")
    if recipe.baseline:
        baseline = named_by(recipe.baseline, names)
        problem = f"the baseline must be one of {', '.join(names)}, got {baseline!r}"
        require_known(baseline, names, problem, "Set it to '' for the first")
    return facet_rankings


def _score_task(recipe: Recipe, corpus: Artifact, ranking: FacetRanking) -> Task:
    return score_task(ranking.ranking, ranking.pool, corpus, system=ranking.system, measures=recipe.measures)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the tables, the figures, the browser of queries, and the ranked pools as files."""
    corpus, make = recipe.require_corpus(workspace), workspace.runner.make
    facet_rankings = _rankings(workspace, recipe, corpus)
    collection_artifact = make(pools.collection_task(corpus, recipe.release))
    collection = Collection.read(collection_artifact)
    judged_tasks = {facet: pools.facet_pool_task(corpus, facet, FACET, recipe.relevant) for facet in recipe.facets}
    tasks = [*judged_tasks.values(), *(ranking.pool for ranking in facet_rankings)]
    pool_of = {task.id: Pool(make(task), Corpus(corpus)) for task in tasks}
    judged_pools = {facet: pool_of[task.id] for facet, task in judged_tasks.items()}
    ranked = {
        ranking[:3]: (pool_of[ranking.pool.id], read_ranking(make(ranking.ranking))) for ranking in facet_rankings
    }
    values = pl.concat(
        scoring.values_of(make(_score_task(recipe, corpus, ranking)), pool_of[ranking.pool.id], ranking.form)
        for ranking in facet_rankings
    )
    raw_values = values
    chance = pl.concat(scoring.chance_of(pool, recipe.measures, recipe.seed) for pool in judged_pools.values())
    if recipe.standardised:
        values, chance = (scoring.standardised(frame, chance) for frame in (values, chance))
    figures, measure = scoring.summaries(pl.concat([values, chance]), collection.folds, recipe.seed), recipe.shown[-1]
    pairs = analyses.paired(values, measure)
    tables = [
        *scoring.score_tables(figures, recipe.shown, judged_pools),
        *([] if recipe.standardised else scoring.published_tables(figures, recipe.corpus)),
        *scoring.difference_tables(values, measure, named_by(recipe.baseline, values["system"].unique()), recipe.seed),
        *analyses.agreement_tables({facet: collection.annotations[facet] for facet in recipe.facets}),
        *analyses.paired_tables(pairs, measure, recipe.seed),
        analyses.collection_table(judged_pools),
        *analyses.grade_tables(judged_pools),
        *analyses.citation_tables(judged_pools, ranked, raw_values, measure, recipe.relevant),
    ]
    files = {"queries.csv": as_csv(values)}
    for (system, form, facet), (pool, ranking) in ranked.items():
        slug = file_name(system.casefold(), gap="_") + ("" if form == FACET else f"_{form}")
        files[f"test-pid2pool-{recipe.corpus}-{slug}-{facet}-ranked.json"] = ranked_json(pool, ranking)
    return StudyResult(
        tables,
        figures=[
            scoring.query_figure(values, measure),
            *([] if pairs.is_empty() else [analyses.paired_figure(pairs, measure)]),
        ],
        sources=[corpus.name, collection_artifact.name, *(pool.artifact.name for pool in pool_of.values())],
        files=files,
        best=scoring.best_line(figures, measure),
    )


def listing(recipe: Recipe) -> list[dict[str, object]]:
    """Return the queries of each facet in the input."""
    queries = recipe.release.query_facets()
    by_facet = {facet: [paper for paper, query_facet in queries if query_facet == facet] for facet in FACETS}
    return [{"facet": facet, "queries": len(papers), "papers": ", ".join(papers)} for facet, papers in by_facet.items()]


STUDY = old_study(
    "facets",
    "faceted query by example on judged pools (CSFCube)",
    Recipe,
    batches,
    results,
    listing=listing,
    needs="Its data are CSFCube's: git clone https://github.com/iesl/CSFCube csfcube, or give a folder with --input",
)
