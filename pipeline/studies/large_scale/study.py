"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.api import Workspace
from pipeline.core.task import Task
from pipeline.stages.chain import Evaluation
from pipeline.stages.selection import Selection
from pipeline.studies.base import Findings, Study
from pipeline.studies.common import check_baseline, evaluation_batches, evaluations
from pipeline.studies.large_scale.recipe import Recipe


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks that score every system on every pool, field by field, tunings of BM25 first."""
    check_baseline(recipe.baseline, recipe.systems)
    for group in recipe.groups:
        yield from evaluation_batches(*_pools(workspace, recipe, group), depth=recipe.depth)


def evaluated(workspace: Workspace, recipe: Recipe) -> list[Evaluation]:
    """Return every pool with every system."""
    found = [evaluations(*_pools(workspace, recipe, group), depth=recipe.depth) for group in recipe.groups]
    return [evaluation for each in found for evaluation in each]


def _pools(workspace: Workspace, recipe: Recipe, group: str) -> tuple[Workspace, str, Selection, str]:
    return workspace, recipe.corpus, recipe.selection(group), recipe.systems


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return the papers' tables, and what explains the figures."""
    from pipeline.studies.large_scale.findings import findings

    return findings(workspace, recipe, evaluated(workspace, recipe))


STUDY = Study("large_scale", "retrieval from large pools, by pool size and by field", Recipe, batches, findings)
