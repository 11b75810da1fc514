"""Parts that studies share: evaluations with tuned BM25, reports of them, their charts as figures, tables of frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.report import collect
from pipeline.report.aggregate import summarise
from pipeline.report.choice import choose
from pipeline.report.figures import draw
from pipeline.report.identity import Chosen
from pipeline.report.model import Report, ReportSettings
from pipeline.report.page.browse import browser
from pipeline.report.page.parts import Browser, Chart
from pipeline.report.tables import Column, Line, Table
from pipeline.stages.chain import Evaluation
from pipeline.stages.selection import Selection
from pipeline.stages.systems import parse_systems
from pipeline.stages.tune import tune_task
from pipeline.studies.base import StudyFigure

if TYPE_CHECKING:
    import polars as pl


def evaluation_batches(
    workspace: Workspace, corpus: str, selection: Selection, systems: str, **settings: Any
) -> Iterator[list[Task]]:
    """Yield the tasks that score systems on pools: the tunings of BM25 first, if ``systems`` names ``bm25:tuned``.

    ``settings`` are those of :meth:`pipeline.api.Workspace.evaluations`.
    """
    if "bm25:tuned" in systems:
        yield tuning_tasks(workspace, corpus, selection)
    found = evaluations(workspace, corpus, selection, systems, **settings)
    yield [score for evaluation in found for score in evaluation.scores]


def check_baseline(baseline: str, systems: str) -> None:
    """Refuse a baseline that is none of the systems, before anything is made.

    Raises:
        InputError: it is none of them.
    """
    names = [each.name for each in parse_systems(systems)]
    if baseline.partition(" (")[0] not in names:
        raise InputError(
            f"the baseline must be one of {', '.join(names)}, got {baseline!r}", f"Write --set=baseline={names[0]}"
        )


def tuning_tasks(workspace: Workspace, corpus: str, selection: Selection) -> list[Task]:
    """Return the tasks that tune BM25 for the pools of a selection, each field and size on its validation queries."""
    artifact = find_corpus(workspace.root, corpus or None)
    validation = selection.but(split="validation", samples=1)
    return [tune_task(artifact, pool) for pool in validation.pools(artifact)]


def evaluations(
    workspace: Workspace, corpus: str, selection: Selection, systems: str, **settings: Any
) -> list[Evaluation]:
    """Return each pool of a selection with each system, as :func:`evaluation_batches`."""
    return workspace.evaluations(selection.pools(find_corpus(workspace.root, corpus or None)), systems, **settings)


def made(workspace: Workspace, task: Task) -> Artifact:
    """Return an artifact.

    Raises:
        InputError: it is not made yet.
    """
    if not workspace.runner.published(task):
        raise InputError(f"{task.name} must be made first", "Run the study without --dry-run")
    return Artifact.open(workspace.runner.path(task))


def chosen_of(workspace: Workspace, evaluated: Sequence[Evaluation]) -> list[Chosen]:
    """Return what a report of evaluations is read from; scores that are missing are made."""
    workspace.make([score for evaluation in evaluated for score in evaluation.scores])
    return choose(workspace.root, rankings=[evaluation.ranking.id for evaluation in evaluated])


def report_of(
    workspace: Workspace,
    evaluated: Sequence[Evaluation],
    measures: Sequence[str],
    settings: ReportSettings | None = None,
) -> Report:
    """Return the report of evaluations that were made."""
    return summarise(collect.load(chosen_of(workspace, evaluated)), settings or ReportSettings(), tuple(measures))


def browser_of(workspace: Workspace, evaluated: Sequence[Evaluation], report: Report) -> Browser:
    """Return the queries of a report of evaluations one by one, for its page."""
    return browser(chosen_of(workspace, evaluated), report.scored, report.measures, report.settings)


def drawn(plots: Iterable[tuple[str, Chart, str]]) -> list[StudyFigure]:
    """Return views of charts (:func:`pipeline.report.plots.plots_of`), which the page shows too, as figures."""
    return [StudyFigure(name, partial(draw, chart=chart, view=view), charted=True) for name, chart, view in plots]


def frame_of(report: Report) -> pl.DataFrame:
    """Return the figures of a report, one row each, in full precision."""
    import polars as pl

    shown = [each for each in report.summaries if each.measure in report.measures]
    rows = [dataclasses.asdict(each) | {"pools": ";".join(each.pools)} for each in shown]
    return pl.DataFrame(rows, infer_schema_length=None)


def table_of(title: str, frame: pl.DataFrame, notes: Sequence[str] = (), decimals: int = 1) -> Table:
    """Return a frame as a table: its first column labels the rows, numbers have a fixed number of decimals."""

    def text(value: Any) -> str | None:
        if isinstance(value, float):
            return f"{value:.{decimals}f}"
        return None if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    first, *others = frame.columns
    lines = [Line(str(row[0]), tuple(map(text, row[1:]))) for row in frame.iter_rows()]
    return Table(title, first, tuple(Column("", name) for name in others), tuple(lines), tuple(notes))
