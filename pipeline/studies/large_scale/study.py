"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from pipeline.api import Workspace
from pipeline.core.task import Task
from pipeline.corpus.marks import sentence
from pipeline.scores.average import Average, Key, average
from pipeline.scores.charts import charts as report_charts
from pipeline.scores.charts import figures, heat
from pipeline.scores.labels import labelled
from pipeline.scores.layout import shown
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Chart, Part
from pipeline.scores.page.report import best_of
from pipeline.scores.store import runs_of, values
from pipeline.scores.summary import summarise
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyFigure, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, drawn, evaluation_batches, evaluations
from pipeline.studies.large_scale import by_query, by_rank, charts, published
from pipeline.studies.large_scale.data import PoolRuns, marks_of, read
from pipeline.studies.large_scale.leakage import training_papers
from pipeline.studies.large_scale.recipe import DATASET, Recipe


class Read(NamedTuple):
    """What was scored.

    Attributes:
        runs: rankings of every pool and system.
        scores: of their queries.
        summaries: by pool size, and by field with the largest pool of each.
        averages: values of each query, every setup, system and measure.
        curves: MAP by pool size.
        ranked: rankings of the first sample of the largest pool of each group.
    """

    runs: pl.DataFrame
    scores: pl.DataFrame
    summaries: tuple[pl.DataFrame, ...]
    averages: dict[Key, Average]
    curves: Sequence[by_query.Curve]
    ranked: tuple[PoolRuns, ...]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks that score every system on every pool, field by field, tunings of BM25 first."""
    check_baseline(recipe.baseline, recipe.systems)
    for group in recipe.groups:
        yield from evaluation_batches(*_pools(workspace, recipe, group), depth=recipe.depth)


def _pools(workspace: Workspace, recipe: Recipe, group: str) -> tuple[Workspace, str, Selection, str]:
    return workspace, recipe.corpus, recipe.selection(group), recipe.systems


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the papers' tables, and what explains the figures."""
    found = _read(workspace, recipe)
    seed, baseline = recipe.seed, _baseline(found.summaries, recipe)

    def notes_of(table: pl.DataFrame) -> list[str]:
        groups = {field or DATASET for field in table["field"]}
        own = [ranked for ranked in found.ranked if ranked.group in groups]
        return [sentence(map(marks_of, own))]

    compared = found.ranked[0].pool.corpus.artifact.manifest.config.get("source") != "synthetic"
    tables = [table for each in found.summaries for table in published.tables(each, notes_of, compared=compared)]
    trained = training_papers(recipe.training, found.ranked[0].pool.corpus) if recipe.training else None
    tables += [
        by_query.tests(found.summaries, found.averages, seed),
        *by_query.variances(found.scores, seed),
        *by_query.curves(found.curves, seed),
        *by_query.fusions(found.averages, seed),
        by_rank.recall(found.ranked, seed, recipe.depth),
        by_rank.shares(found.ranked),
        *by_rank.without_marks(found.ranked, baseline, seed),
        by_rank.popularity(found.ranked, seed),
        by_rank.losses(found.ranked, seed, recipe.depth),
        *by_rank.winners(found.ranked, baseline, seed),
        by_rank.leakage(found.ranked, trained),
    ]
    sources = [found.runs["corpus"][0], *sorted(found.runs["pool"].unique())]
    own = list(_charts(found, tables, seed, ", ".join(sources)))
    parts = list(_parts(found, own, recipe))
    best = best_of(shown(found.summaries[-1], published.MEASURES), found.runs)
    return StudyResult(tables, _figures(found, own), sources, parts=parts, best=best)


def _read(workspace: Workspace, recipe: Recipe) -> Read:
    groups = [evaluations(*_pools(workspace, recipe, group), depth=recipe.depth) for group in recipe.groups]
    evaluated = [evaluation for group in groups for evaluation in group]
    workspace.make([score for evaluation in evaluated for score in evaluation.scores])
    runs = labelled(runs_of(workspace.runner, evaluated), together=True)
    scores = values(runs).filter(pl.col("measure").is_in(published.MEASURES))
    sizes = runs.group_by("field", maintain_order=True).agg(pl.col("size").unique(), largest=pl.col("size").max())
    fields = sizes.filter(pl.col("field").is_not_null())
    # A field whose pools have one size stands in a table by size if no other field is there.
    alone = pl.col("field").is_null() | (pl.col("size").n_unique().over("field") > 1) | (len(fields) == 1)
    largest = pl.col("size") == pl.col("size").max().over("field")
    parts = [scores.filter(alone)]
    parts += [scores.filter(pl.col("field").is_not_null() & largest)] if len(fields) > 1 else []
    summaries = tuple(
        summarise(part, baseline=recipe.baseline, draws=recipe.draws) for part in parts if not part.is_empty()
    )
    first = runs.filter(largest, sample=1).partition_by("field", maintain_order=True)
    averages = average(scores, recipe.draws)
    ranked = tuple(read(part["field"][0] or DATASET, part) for part in first)
    return Read(runs, scores, summaries, averages, by_query.measured(averages), ranked)


def _baseline(summaries: Sequence[pl.DataFrame], recipe: Recipe) -> str:
    """Return the label of the row that others are tested against."""
    known = pl.concat(summaries)["baseline"].drop_nulls()
    return str(known[0]) if len(known) else recipe.baseline


def _charts(found: Read, tables: Sequence[StudyTable], seed: int, source: str) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of this study, with the stem of their figures."""
    if found.curves:
        yield "curves", charts.curves(found.curves, seed, source)
    (recall,) = (table.frame for table in tables if table.name == "recall-by-depth")
    yield "recall-by-depth", charts.recall(recall, source)


def _figures(found: Read, own: Sequence[tuple[str, Chart]]) -> list[StudyFigure]:
    """Return MAP by size and by field, then every view of this study's charts."""
    plots = [plot for summary in found.summaries for plot in figures(shown(summary, ["map"]), found.runs)]
    plots += [(f"{name}-{view}".lower().replace(" ", "-"), chart, view) for name, chart in own for view in chart.views]
    return drawn(plots)


def _parts(found: Read, own: Sequence[tuple[str, Chart]], recipe: Recipe) -> Iterator[Part]:
    """Yield what the page shows below the tables: charts, heat maps of fields, and the queries one by one."""
    summaries = [shown(summary, published.MEASURES) for summary in found.summaries]
    yield from (chart for summary in summaries for chart in report_charts(summary, found.runs))
    yield from (chart for _, chart in own)
    for summary in summaries:
        over_fields = summary.filter(over="fields").partition_by("table", maintain_order=True)
        yield from (heat(table, found.runs) for table in over_fields)
    yield browser(found.runs, found.scores, published.MEASURES, recipe.draws)


STUDY = Study("large_scale", "retrieval from large pools, by pool size and by field", Recipe, batches, results)
