"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from pipeline.api import Workspace
from pipeline.core.task import Task
from pipeline.corpus.marks import sentence
from pipeline.scores.average import Average, Key, average
from pipeline.scores.charts import figures
from pipeline.scores.layout import shown
from pipeline.scores.page.parts import Chart
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, drawn, pool_result, scored_runs, scoring_batches
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
    yield from scoring_batches(workspace, recipe)


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
    result = pool_result(found.runs, found.scores, found.summaries, published.MEASURES, recipe.draws)
    own = dict(_charts(found, tables, seed, ", ".join(result.sources)))
    plots = [plot for summary in found.summaries for plot in figures(shown(summary, ["map"]), found.runs)]
    plots += [
        (f"{name}-{view}".lower().replace(" ", "-"), chart, view) for name, chart in own.items() for view in chart.views
    ]
    return replace(result, tables=tables, figures=drawn(plots), parts=[*result.parts, *own.values()])


def _read(workspace: Workspace, recipe: Recipe) -> Read:
    runs = scored_runs(workspace, recipe, together=True)
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


STUDY = Study("large_scale", "retrieval from large pools, by pool size and by field", Recipe, batches, results)
