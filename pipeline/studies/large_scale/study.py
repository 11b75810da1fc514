"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pipeline.api import Workspace
from pipeline.core.task import Task
from pipeline.corpus.marks import sentence
from pipeline.report.aggregate import summarise
from pipeline.report.averaging import Averaged, Key, average
from pipeline.report.collect import load
from pipeline.report.identity import Chosen
from pipeline.report.model import Family, Report, ReportSettings, Scored, Setup
from pipeline.report.page.browse import browser
from pipeline.report.page.of_report import best_of, heat
from pipeline.report.page.of_report import charts as report_charts
from pipeline.report.page.parts import Chart, Part
from pipeline.report.plots import plots_of
from pipeline.stages.selection import Selection
from pipeline.studies.base import Findings, Study, StudyFigure, StudyTable
from pipeline.studies.common import check_baseline, chosen_of, drawn, evaluation_batches, evaluations
from pipeline.studies.large_scale import by_query, by_rank, charts, published
from pipeline.studies.large_scale.data import Ranked, marks_of, read
from pipeline.studies.large_scale.leakage import training_papers
from pipeline.studies.large_scale.recipe import DATASET, Recipe


class Read(NamedTuple):
    """What was scored.

    Attributes:
        reports: by pool size, and by field with the largest pool of each.
        averaged: values of each query, every setup, system and measure.
        curves: MAP by pool size.
        scored: of every pool and system.
        chosen: what each of ``scored`` was read from.
        ranked: rankings of the first sample of the largest pool of each group.
    """

    reports: tuple[Report, ...]
    averaged: dict[Key, Averaged]
    curves: Sequence[by_query.Curve]
    scored: Sequence[Scored]
    chosen: Sequence[Chosen]
    ranked: tuple[Ranked, ...]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks that score every system on every pool, field by field, tunings of BM25 first."""
    check_baseline(recipe.baseline, recipe.systems)
    for group in recipe.groups:
        yield from evaluation_batches(*_pools(workspace, recipe, group), depth=recipe.depth)


def _pools(workspace: Workspace, recipe: Recipe, group: str) -> tuple[Workspace, str, Selection, str]:
    return workspace, recipe.corpus, recipe.selection(group), recipe.systems


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return the papers' tables, and what explains the figures."""
    found = _read(workspace, recipe)
    seed, baseline = recipe.seed, _baseline(found.reports, recipe)

    def notes_of(family: Family) -> list[str]:
        groups = {setup.field or DATASET for setup in family.setups}
        own = [each for each in found.ranked if each.group in groups]
        return [sentence(marks_of(each) for each in own)]

    compared = found.ranked[0].pool.corpus.artifact.manifest.config.get("source") != "synthetic"
    tables = [table for each in found.reports for table in published.tables(each, notes_of, compared=compared)]
    trained = training_papers(recipe.training, found.ranked[0].pool.corpus) if recipe.training else None
    tables += [
        by_query.tests(found.reports, found.averaged),
        *by_query.variances(found.scored, seed),
        *by_query.curves(found.curves, seed),
        *by_query.fusions(found.averaged, seed),
        by_rank.recall(found.ranked, seed, recipe.depth),
        by_rank.shares(found.ranked),
        *by_rank.without_marks(found.ranked, baseline, seed),
        by_rank.popularity(found.ranked, seed),
        by_rank.losses(found.ranked, seed, recipe.depth),
        *by_rank.winners(found.ranked, baseline, seed),
        by_rank.leakage(found.ranked, trained),
    ]
    sources = dict.fromkeys(name for report in found.reports for name in (report.corpus, *report.pools))
    own = list(_charts(found, tables, seed, ", ".join(sources)))
    parts = list(_parts(found, own, recipe.settings))
    return Findings(tables, _figures(found, own), list(sources), parts=parts, best=best_of(found.reports[-1]))


def _read(workspace: Workspace, recipe: Recipe) -> Read:
    evaluated = [evaluations(*_pools(workspace, recipe, group), depth=recipe.depth) for group in recipe.groups]
    chosen = chosen_of(workspace, list(chain.from_iterable(evaluated)))
    scored = load(chosen)
    setups = dict.fromkeys(each.pool.setup for each in scored)
    sizes: dict[str | None, list[int]] = {}
    for field, size in setups:
        sizes.setdefault(field, []).append(size)
    largest = [Setup(field, max(own)) for field, own in sizes.items()]
    fields = [setup for setup in largest if setup.field is not None]
    # A field whose pools have one size stands in a table by size if no other field is there.
    alone = {field for field, own in sizes.items() if field is None or len(own) > 1 or len(fields) == 1}
    by_size = [each for each in scored if each.pool.setup.field in alone]
    by_field = [each for each in scored if each.pool.setup in fields] if len(fields) > 1 else []
    reports = tuple(summarise(part, recipe.settings, published.MEASURES) for part in (by_size, by_field) if part)
    corpus = workspace.corpus(recipe.corpus or None)
    first = [(c, each) for c, each in zip(chosen, scored, strict=True) if each.pool.sample == 1]
    ranked = [
        read(setup.field or DATASET, {each.system: c for c, each in first if each.pool.setup == setup}, corpus)
        for setup in largest
    ]
    averaged = average(scored, published.MEASURES, recipe.settings)
    return Read(reports, averaged, by_query.measured(averaged), scored, chosen, tuple(ranked))


def _baseline(reports: Sequence[Report], recipe: Recipe) -> str:
    """Return the label of the row that others are tested against."""
    return next((base for report in reports for base in report.baselines.values()), recipe.baseline)


def _charts(found: Read, tables: Sequence[StudyTable], seed: int, source: str) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of this study, with the stem of their figures."""
    if found.curves:
        yield "curves", charts.curves(found.curves, seed, source)
    (recall,) = (each.frame for each in tables if each.name == "recall-by-depth")
    yield "recall-by-depth", charts.recall(recall, source)


def _figures(found: Read, own: Sequence[tuple[str, Chart]]) -> list[StudyFigure]:
    """Return MAP by size and by field, then every view of this study's charts."""
    plots = [plot for report in found.reports for plot in plots_of(report) if plot[2] == "MAP"]
    plots += [(f"{name}-{view}".lower().replace(" ", "-"), chart, view) for name, chart in own for view in chart.views]
    return drawn(plots)


def _parts(found: Read, own: Sequence[tuple[str, Chart]], settings: ReportSettings) -> Iterator[Part]:
    """Yield what the page shows below the tables: charts, heat maps of fields, and the queries one by one."""
    yield from (chart for report in found.reports for chart in report_charts(report))
    yield from (chart for _, chart in own)
    for report in found.reports:
        yield from (heat(report, family) for family in report.families if family.kind == "fields")
    yield browser(found.chosen, found.scored, published.MEASURES, settings)


STUDY = Study("large_scale", "retrieval from large pools, by pool size and by field", Recipe, batches, findings)
