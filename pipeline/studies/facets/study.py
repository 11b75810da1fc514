"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
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
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.facets import report
from pipeline.studies.facets.browse import browser
from pipeline.studies.facets.collection import Collection, CollectionRecipe, collection_task
from pipeline.studies.facets.exchange import file_task, ranked_files, ranked_json
from pipeline.studies.facets.pools import FACET, WHOLE, facet_pool_task
from pipeline.studies.facets.ranked import FacetRanking, rankings
from pipeline.studies.facets.scoring import summaries, values_of
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
        seed: of the intervals and tests.
    """

    facets: tuple[str, ...]
    systems: str
    whole: str = field(metadata=REPLACED)
    ranked: str = field(metadata=KEPT)
    baseline: str
    relevant: int
    measures: tuple[str, ...]
    shown: tuple[str, ...]
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
    yield [collection_task(corpus, recipe.release), *(scores for _, scores in runs(workspace, recipe, corpus))]


def runs(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[tuple[FacetRanking, Task]]:
    """Return every system on every facet, those of files last, each with the task that scores it.

    Raises:
        InputError: a system is unknown or none is the baseline, or the folder of ranked pools lacks a facet.
    """
    collection = collection_task(corpus, recipe.release)
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    found = rankings(workspace, corpus, collection, recipe.facets, systems, recipe.relevant)
    files = ranked_files(Path(recipe.ranked).expanduser()) if recipe.ranked else {}
    for facet, (system, by_facet) in itertools.product(recipe.facets, files.items()):
        if facet not in by_facet:
            raise InputError(f"{recipe.ranked} must rank facet {facet} by {system}", "Add the file")
        pool = facet_pool_task(corpus, facet, WHOLE, recipe.relevant)
        ranking = file_task(corpus, pool, system, by_facet[facet])
        found.append(FacetRanking(f"{system} (file)", WHOLE, facet, pool, ranking))
    names = {each.system: None for each in found}
    if not names:
        raise InputError("the study must have a system, got none", "Set systems, whole or ranked")
    if recipe.baseline not in ("", *names):
        raise InputError(
            f"the baseline must be one of {', '.join(names)}, got {recipe.baseline!r}", "Set it to '' for the first"
        )
    return [
        (each, score_task(each.ranking, each.pool, corpus, system=each.system, sample=1, measures=recipe.measures))
        for each in found
    ]


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return tables, the figure of queries, their browser, and the ranked pools."""
    corpus = recipe.made(workspace)
    found = runs(workspace, recipe, corpus)
    collection = Collection(workspace.runner.make(collection_task(corpus, recipe.release)))
    asked = [facet_pool_task(corpus, facet, FACET, recipe.relevant) for facet in recipe.facets]
    opened = {
        task.id: Pool(workspace.runner.make(task), Corpus(corpus))
        for task in (*asked, *(each.pool for each, _ in found))
    }
    by_facet = {facet: opened[task.id] for facet, task in zip(recipe.facets, asked, strict=True)}
    values = pl.concat(
        [values_of(workspace.runner.make(scores), opened[each.pool.id], each.form) for each, scores in found]
    )
    ranked = {each[:3]: (opened[each.pool.id], workspace.runner.make(each.ranking)) for each, _ in found}
    figures, tested = summaries(values, collection.folds, recipe.seed), recipe.shown[-1]
    tables = [
        *report.score_tables(figures, recipe.shown, by_facet),
        *report.difference_tables(values, tested, recipe.baseline, recipe.seed),
        *report.agreement_tables({facet: collection.annotations[facet] for facet in recipe.facets}),
        *report.citation_tables(by_facet, ranked, figures, tested, recipe.relevant),
    ]
    files = {
        f"test-pid2pool-{recipe.corpus}-{_slug(system, form)}-{facet}-ranked.json": ranked_json(pool, ranking)
        for (system, form, facet), (pool, ranking) in ranked.items()
    }
    return StudyResult(
        tables,
        [report.query_figure(values, tested)],
        [corpus.name, collection.artifact.name, *(pool.artifact.name for pool in opened.values())],
        {"queries.csv": as_csv(values), **files},
        [browser(by_facet, collection, ranked, values)],
    )


def _slug(system: str, form: str) -> str:
    slug = file_name(system.casefold(), gap="_")
    return slug if form == FACET else f"{slug}_{form}"


def listing(recipe: Recipe) -> list[dict[str, object]]:
    """Return the queries of each facet that the input asks."""
    asked: Mapping[str, list[str]] = {facet: [] for facet in FACETS}
    for paper, facet in recipe.release.asked():
        asked[facet].append(paper)
    return [{"facet": facet, "queries": len(papers), "papers": ", ".join(papers)} for facet, papers in asked.items()]


STUDY = Study(
    "facets",
    "faceted query by example on judged pools (CSFCube)",
    Recipe,
    batches,
    results,
    listing,
    needs="Its data are CSFCube's: git clone https://github.com/iesl/CSFCube csfcube, or give a folder with --input",
)
