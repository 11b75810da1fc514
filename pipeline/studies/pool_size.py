"""Score against the number of candidates (Medić & Šnajder 2022, section 3.1, table 1). The example of a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.api import Workspace, selection
from pipeline.core.task import Task
from pipeline.measure.measures import parse_measures
from pipeline.scores.charts import charts, figures
from pipeline.scores.layout import build_tables, shown
from pipeline.scores.page.browse import browser
from pipeline.scores.page.report import best_of
from pipeline.scores.records import flat
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import drawn, evaluation_batches, evaluations
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


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return one table of all measures, and a figure of each measure."""
    evaluated = evaluations(
        workspace, recipe.corpus, recipe.selection, recipe.systems, depth=recipe.depth, measures=recipe.measures
    )
    runs = workspace.evaluated(evaluated)
    scores = values(runs)
    summary = shown(summarise(scores), [str(measure) for measure in parse_measures(recipe.measures)])
    (table,) = build_tables(summary, runs)
    return StudyResult(
        tables=[StudyTable("scores", table, flat(summary))],
        figures=drawn(figures(summary, runs)),
        sources=[runs["corpus"][0], *sorted(runs["pool"].unique())],
        parts=[*charts(summary, runs), browser(runs, scores, summary["measure"].unique(maintain_order=True).to_list())],
        best=best_of(summary, runs),
    )


STUDY = Study("pool_size", "score against the number of candidates", Recipe, batches, results)
