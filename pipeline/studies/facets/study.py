"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.studies import kit
from pipeline.studies.facets import pools, scoring
from pipeline.studies.facets.pools import FACET, WHOLE
from pipeline.studies.facets.rankings import file_rankings, ranked_json, rankings
from pipeline.studies.kit import InputError, csfcube, required


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = required("name of the corpus to make")
    input: str = required("folder of the collection")
    facets: tuple[str, ...] = required("which facets")
    systems: str = required("what ranks by the facet's sentences: any system, tfidf, or ot(ENCODER)")
    whole: str = required("what ranks by the whole query paper, with commas", systems="replaced")
    ranked: str = required("folder of ranked pools, such as csfcube/sample_ranked_pools; empty: none")
    baseline: str = required("the system that the others are compared with; empty: the first")
    relevant: int = required("the least relevant grade")
    measures: tuple[str, ...] = required("what is scored; csfcube-*: as the authors' script computes them")
    shown: tuple[str, ...] = required("measures of the table; the last is drawn and tested")
    seed: int = required("seed of the intervals, tests and random rankings")

    def __post_init__(self) -> None:
        for facet in self.facets:
            csfcube.checked_facet(facet, "the recipe")
        if not self.facets or not self.shown or not set(self.shown) <= set(self.measures):
            problem = "facets and shown must not be empty, and every measure of shown must be in measures"
            raise InputError(problem, "Correct the recipe")

    @property
    def release(self) -> csfcube.Csfcube:
        """The collection's files."""
        return csfcube.Csfcube(Path(self.input).expanduser())


NEEDS = "Its data are CSFCube's: git clone https://github.com/iesl/CSFCube csfcube, or give a folder with --input"


@kit.study("facets", "faceted query by example on judged pools (CSFCube)", Recipe, needs=NEEDS)
def facets(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return scores, differences, agreement and pairs of facets, and the ranked pools as files."""
    (corpus,) = yield [kit.corpus_task(recipe.corpus, recipe.release)]
    collection_task = pools.collection_task(corpus, recipe.release)
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    ranked = rankings(workspace, corpus, collection_task, recipe.facets, systems, recipe.relevant)
    if recipe.ranked:
        ranked += file_rankings(corpus, Path(recipe.ranked).expanduser(), recipe.facets, recipe.relevant)
    names = list(dict.fromkeys(ranking.system for ranking in ranked))
    if not names:
        raise InputError("the study must have a system, got none", "Set systems, whole or ranked")
    baseline = kit.named_by(recipe.baseline, names) if recipe.baseline else names[0]
    problem = f"the baseline must be one of {', '.join(names)}, got {baseline!r}"
    kit.require_known(baseline, names, problem, "Set it to '' for the first")
    scores = [
        kit.score_task(each.ranking, each.pool, corpus, system=each.system, measures=recipe.measures) for each in ranked
    ]
    judged_tasks = [pools.facet_pool_task(corpus, facet, FACET, recipe.relevant) for facet in recipe.facets]
    tasks = [collection_task, *judged_tasks, *(task for each in ranked for task in (each.pool, each.ranking)), *scores]
    artifacts = yield tasks
    made = {task.id: artifact for task, artifact in zip(tasks, artifacts, strict=True)}
    collection = pools.read_collection(made[collection_task.id])
    opened = {task.id: kit.Pool(made[task.id], kit.Corpus(corpus)) for task in tasks if task.stage == "pool"}
    judged = {facet: opened[task.id] for facet, task in zip(recipe.facets, judged_tasks, strict=True)}
    orders = {each[:3]: (opened[each.pool.id], kit.read_ranking(made[each.ranking.id])) for each in ranked}

    values = pl.concat(
        scoring.values_of(made[score.id], opened[each.pool.id], each.form)
        for score, each in zip(scores, ranked, strict=True)
    )
    chance = pl.concat(scoring.chance_of(pool, recipe.measures, recipe.seed) for pool in judged.values())
    figures = scoring.summaries(pl.concat([values, chance]), collection["folds"], recipe.seed)
    measure = recipe.shown[-1]
    pairs = scoring.paired(values, measure)
    tables = [
        *scoring.score_tables(figures, recipe.shown, judged),
        scoring.published_table(figures, recipe.corpus),
        scoring.difference_table(scoring.differences(values, measure, baseline, recipe.seed), measure),
        scoring.agreement_table({facet: collection["annotations"][facet] for facet in recipe.facets}),
        scoring.collection_table(judged),
        scoring.grade_table(judged),
    ]
    files = {"queries.csv": kit.as_csv(values)}
    for (system, form, facet), (pool, ranking) in orders.items():
        slug = kit.file_name(system.casefold(), gap="_") + ("" if form == FACET else f"_{form}")
        files[f"test-pid2pool-{recipe.corpus}-{slug}-{facet}-ranked.json"] = ranked_json(pool, ranking)
    drawn = {"facet_pairs": scoring.paired_figure(pairs, measure)} if len(pairs) else {}
    return kit.Report(
        [table for table in tables if len(table.frame)], figures=drawn, files=files,
        sources=[corpus.name, made[collection_task.id].name, *(pool.artifact.name for pool in opened.values())],
    )  # fmt: skip
