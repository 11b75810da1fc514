"""Score against the number of candidates (Medić & Šnajder 2022, section 3.1, table 1). The example of a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.api import Workspace, selection
from pipeline.core.task import Task
from pipeline.report.page.of_report import best_of, charts
from pipeline.report.plots import plots_of
from pipeline.report.tables import build_tables
from pipeline.stages.selection import Selection
from pipeline.studies.base import Findings, Study, StudyTable
from pipeline.studies.common import browser_of, drawn, evaluation_batches, evaluations, frame_of, report_of
from pipeline.studies.recipe import NO_RULES, Rules, pools_of


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        field: one of the 19 fields; empty: dataset-level pools.
        year: publication year of the queries.
        sizes: numbers of candidates, such as ``200k``; smaller pools are subsets of larger ones.
        queries: number of queries, or ``all``.
        samples: samples of each size.
        seed: of every draw.
        systems: what ranks, with commas.
        depth: ranks kept of each query.
        measures: what the table and the figures show.
        rules: further settings of pools that the recipe gives, such as ``min_citations``.
    """

    corpus: str
    field: str
    year: int
    sizes: tuple[str, ...]
    queries: str
    samples: int
    seed: int
    systems: str
    depth: int
    measures: tuple[str, ...]
    rules: Rules = NO_RULES

    @property
    def selection(self) -> Selection:
        """The pools."""
        return selection(**{"nested": True, **pools_of(self)})


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[list[Task]]:
    """Yield the tasks that score every system on every pool."""
    return evaluation_batches(
        workspace,
        recipe.corpus,
        recipe.selection,
        recipe.systems,
        depth=recipe.depth,
        measures=recipe.measures,
    )


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return one table of all measures, and a figure of each measure."""
    evaluated = evaluations(
        workspace, recipe.corpus, recipe.selection, recipe.systems, depth=recipe.depth, measures=recipe.measures
    )
    report = report_of(workspace, evaluated, recipe.measures)

    (table,) = build_tables(report)
    return Findings(
        tables=[StudyTable("scores", table, frame_of(report))],
        figures=drawn(plots_of(report)),
        sources=[report.corpus, *report.pools],
        parts=[*charts(report), browser_of(workspace, evaluated, report)],
        best=best_of(report),
    )


STUDY = Study("pool_size", "score against the number of candidates", Recipe, batches, findings)
