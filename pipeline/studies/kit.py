"""The study kit, ``mdcr.study``: everything that a study imports.

A study is a generator. It yields lists of tasks, gets their artifacts, and returns a :class:`Report`::

    @study("by_year", "MAP by year of the queries", Recipe)
    def STUDY(workspace, recipe):
        found = yield from scored(workspace, recipe, [selection(**pools_of(recipe))])
        frame = found.values.filter(measure="map").group_by("label", "year").agg(pl.mean("value"))
        return Report([table("by-year", "MAP by year", frame, "{label}, {year}", {"MAP": figure()})])

``mdcr study NAME`` makes what is missing, plans (``--dry-run``) up to the first artifact that is read and not there,
and writes tables, figures and the page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.api import Workspace, selection
from pipeline.core.config import format_count
from pipeline.core.errors import InputError, require_known
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import write_pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import split_names
from pipeline.measure.design import Design, estimate
from pipeline.measure.design import Draws as Draws
from pipeline.measure.estimates import components, contrasts, crossed_mean
from pipeline.measure.inputs import Qrels, query_of
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import interval, simultaneous
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.tables import Table
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.systems import TUNED
from pipeline.studies.base import Report, Steps, Study
from pipeline.studies.pools import Draw, own_pool, with_negatives
from pipeline.studies.recipe import PoolsRecipe, pools_of
from pipeline.studies.scored import Batches, Scored, corpus_of, in_lists, pool_tasks, scored, tuned
from pipeline.studies.tables import Columns, Row, Show, figure, lines, points, table

__all__ = [
    "TUNED", "Batches", "Chart", "Columns", "Corpus", "Design", "Draw", "Draws", "InputError", "Pool",
    "PoolsRecipe", "Qrels", "Report", "Row", "Scored", "Series", "Show", "Steps", "Study", "Table", "Task",
    "Workspace", "components", "contrasts", "corpus_of", "crossed_mean", "estimate", "figure", "format_count",
    "generator", "in_lists", "interval", "lines", "own_pool", "parse_measures", "points", "pool_tasks", "pools_of",
    "priorities", "query_of", "read_ranking", "require_known", "required", "scored", "selection", "simultaneous",
    "smallest", "split_names", "study", "table", "tuned", "with_negatives", "write_pool",
]  # fmt: skip


def study(
    name: str, summary: str, recipe: type[Any], *, own_recipe: Path | None = None, **further: Any
) -> Callable[[Callable[[Workspace, Any], Steps]], Study]:
    """Make a study of a generator ``steps(workspace, recipe)``.

    Args:
        name: name in ``mdcr study NAME``.
        summary: one line for the list of studies.
        recipe: frozen dataclass of its settings, such as one that extends :class:`PoolsRecipe`.
        own_recipe: TOML file of its default recipe; None: the one of its name that comes with the project.
        **further: of :class:`Study`: ``listing``, ``needs``.
    """
    return lambda steps: Study(name, summary, recipe, steps, own_recipe=own_recipe, **further)
