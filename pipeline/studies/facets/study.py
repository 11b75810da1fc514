"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.retrieve.base import MAX_DEPTH
from pipeline.sources.csfcube import FACETS, Csfcube, checked_facet
from pipeline.stages.corpus import corpus_task
from pipeline.stages.score import score_task
from pipeline.stages.systems import system_names
from pipeline.studies.base import Findings, Study
from pipeline.studies.facets import report
from pipeline.studies.facets.collection import Collection, collection_task
from pipeline.studies.facets.pools import JudgedPool, judged_pool_task
from pipeline.studies.facets.ranked import (
    completed_task,
    file_task,
    ranked_files,
    ranked_json,
    tfidf_task,
    transport_task,
)
from pipeline.studies.facets.scoring import summaries, values_of

FACET, WHOLE = "facet", "whole"
"""What is asked: the query's sentences of the facet, or the whole paper."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus that is made.
        input: folder of the collection (:mod:`pipeline.sources.csfcube`).
        facets: which facets.
        systems: what ranks by the facet's sentences, with commas: any system, ``tfidf``, or ``ot(ENCODER)``, the
            optimal transport of an encoder's sentence vectors.
        whole: what ranks by the whole query paper, likewise.
        ranked: folder of ranked pools in the authors' layout; empty: none.
        relevant: the least relevant grade.
        measures: what is scored.
        shown: of the measures, those that the table of facets shows; the last is drawn, and scored by citations.
        seed: of the intervals.
    """

    corpus: str
    input: str
    facets: tuple[str, ...]
    systems: str
    whole: str
    ranked: str
    relevant: int
    measures: tuple[str, ...]
    shown: tuple[str, ...]
    seed: int

    def __post_init__(self) -> None:
        for facet in self.facets:
            checked_facet(facet, "the recipe")
        if not self.facets or not self.shown or not set(self.shown) <= set(self.measures):
            raise InputError("facets and shown must name something, and shown be of measures", "Mend the recipe")

    @property
    def release(self) -> Csfcube:
        """The collection's files."""
        return Csfcube(Path(self.input).expanduser())

    @property
    def corpus_task(self) -> Task:
        """What makes the corpus."""
        return corpus_task(self.corpus, self.release)


class Run(NamedTuple):
    """One system on the judged pools of one facet.

    Attributes:
        system: its name.
        form: :data:`FACET` or :data:`WHOLE`.
        facet: the facet.
        pool: the judged pools.
        ranking: of every judged candidate.
        scores: of the ranking.
    """

    system: str
    form: str
    facet: str
    pool: Task
    ranking: Task
    scores: Task


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the corpus, then the scores of every system on every facet."""
    yield [recipe.corpus_task]
    corpus = _made(workspace, recipe)
    yield [collection_task(corpus, recipe.release), *(run.scores for run in runs(workspace, recipe, corpus))]


def _made(workspace: Workspace, recipe: Recipe) -> Artifact:
    if not workspace.runner.published(recipe.corpus_task):
        raise InputError(f"the corpus {recipe.corpus} must be made first", "Run the study without --dry-run")
    return workspace.runner.make(recipe.corpus_task)


def runs(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[Run]:
    """Return every system on every facet, facet by facet.

    Raises:
        InputError: a system is unknown, or the folder of ranked pools lacks a facet.
    """
    found = []
    for facet in recipe.facets:
        asked = JudgedPool(field=facet, queries_are="texts", relevant=recipe.relevant)
        whole = JudgedPool(field=facet, queries_are="papers", relevant=recipe.relevant)
        for form, config, systems in ((FACET, asked, recipe.systems), (WHOLE, whole, recipe.whole)):
            pool = judged_pool_task(corpus, config)
            rankings = [_ranking(workspace, corpus, pool, name) for name in system_names(systems)]
            if form == WHOLE and recipe.ranked:
                for system, by_facet in ranked_files(Path(recipe.ranked).expanduser()).items():
                    if facet not in by_facet:
                        raise InputError(f"{recipe.ranked} must rank facet {facet} by {system}", "Add the file")
                    rankings.append((f"{system} (file)", file_task(corpus, pool, system, by_facet[facet])))
            for system, ranking in rankings:
                scores = score_task(ranking, pool, corpus, system=system, sample=1, measures=recipe.measures)
                found.append(Run(system, form, facet, pool, ranking, scores))
    return found


def _ranking(workspace: Workspace, corpus: Artifact, pool: Task, name: str) -> tuple[str, Task]:
    if name == "tfidf":
        return name, tfidf_task(corpus, pool)
    if transport := re.fullmatch(r"ot\((.+)\)", name):
        return name, transport_task(corpus, pool, registry.resolve(transport[1]))
    (evaluation,) = workspace.evaluations(pool, [name], depth=MAX_DEPTH)
    return evaluation.scores[0].config.system, completed_task(corpus, pool, evaluation.ranking)


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return tables of facets, measures, agreement and citations, the figure of queries, and files."""
    corpus = _made(workspace, recipe)
    found = runs(workspace, recipe, corpus)
    collection = Collection(workspace.runner.make(collection_task(corpus, recipe.release)))
    pools = {run.pool.id: _pool(workspace, corpus, run.pool) for run in found}
    values = pl.concat([values_of(workspace.runner.make(run.scores), pools[run.pool.id], run.form) for run in found])
    figures = summaries(values, collection.folds, recipe.seed)
    by_facet = {facet: _pool(workspace, corpus, _pool_task(corpus, recipe, facet)) for facet in recipe.facets}
    rankings = {
        (run.system, run.form, run.facet): (pools[run.pool.id], workspace.runner.make(run.ranking)) for run in found
    }
    tables = [
        *report.score_tables(figures, recipe.shown, by_facet),
        *report.agreement_tables({facet: collection.annotations[facet] for facet in recipe.facets}),
        *report.citation_tables(by_facet, rankings, figures, recipe.shown[-1], recipe.relevant),
    ]
    files = {
        f"test-pid2pool-{recipe.corpus}-{_slug(system, form)}-{facet}-ranked.json": ranked_json(pool, ranking)
        for (system, form, facet), (pool, ranking) in rankings.items()
    }
    return Findings(
        tables,
        [report.query_figure(values, recipe.shown[-1])],
        [corpus.name, collection.artifact.name, *(pool.artifact.name for pool in pools.values())],
        {"queries.csv": values.write_csv(), "queries.json": report.browser(by_facet, collection, rankings), **files},
    )


def _pool_task(corpus: Artifact, recipe: Recipe, facet: str) -> Task:
    return judged_pool_task(corpus, JudgedPool(field=facet, queries_are="texts", relevant=recipe.relevant))


def _pool(workspace: Workspace, corpus: Artifact, task: Task) -> Pool:
    return Pool(workspace.runner.make(task), Corpus(corpus))


def _slug(system: str, form: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "_", system.casefold()).strip("_")
    return slug if form == FACET else f"{slug}_{form}"


def listing(recipe: Recipe) -> list[dict[str, object]]:
    """Return the queries of each facet that the input asks."""
    asked: Mapping[str, list[str]] = {facet: [] for facet in FACETS}
    for paper, facet in recipe.release.asked():
        asked[facet].append(paper)
    return [{"facet": facet, "queries": len(papers), "papers": ", ".join(papers)} for facet, papers in asked.items()]


STUDY = Study("facets", "faceted query by example on judged pools (CSFCube)", Recipe, batches, findings, listing)
