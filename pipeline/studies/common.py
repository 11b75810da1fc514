"""Parts that studies share: evaluations with tuned BM25, reports of them, their charts as figures, tables of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.scores.figures import draw
from pipeline.scores.page.parts import Chart
from pipeline.stages.chain import Evaluation
from pipeline.stages.selection import Selection
from pipeline.stages.systems import TUNED, parse_systems, uses
from pipeline.stages.tune import tune_task
from pipeline.studies.base import StudyFigure


def evaluation_batches(
    workspace: Workspace, corpus: str, selection: Selection, systems: str, **settings: Any
) -> Iterator[list[Task]]:
    """Yield the tasks that score systems on pools: the tunings of BM25 first, if ``systems`` names ``bm25:tuned``.

    ``settings`` are those of :meth:`pipeline.api.Workspace.evaluations`.
    """
    if uses(systems, TUNED):
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


def drawn(plots: Iterable[tuple[str, Chart, str]]) -> list[StudyFigure]:
    """Return views of charts (:func:`pipeline.scores.charts.figures`), which the page shows too, as figures."""
    return [StudyFigure(name, partial(draw, chart=chart, view=view), charted=True) for name, chart, view in plots]
