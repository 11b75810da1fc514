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
from pipeline.core.config import counted, digest, file_name, format_count
from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.core.files import sha256
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.schema import NO_YEAR
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.core.text import doi_key, title_keys
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import write_pool
from pipeline.corpus.prefilter import describe_gaps
from pipeline.corpus.reader import Corpus
from pipeline.data import DATA
from pipeline.encode.names import split_names
from pipeline.exchange.boards import MAIN, in_our_spelling, is_called
from pipeline.exchange.cells import FRACTION, PERCENT, POINTS
from pipeline.exchange.results import Found, read_results
from pipeline.measure.board import ALPHA, Board, board, plan
from pipeline.measure.design import Design, estimate
from pipeline.measure.design import Draws as Draws
from pipeline.measure.estimates import (
    ENOUGH,
    POWER,
    components,
    contrasts,
    crossed_mean,
    share_of_clusters,
    share_of_samples,
)
from pipeline.measure.inputs import Qrels, query_of
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.statistics import bootstrap_means, interval, simultaneous
from pipeline.scores.average import AVERAGE
from pipeline.scores.facts import gaps_of
from pipeline.scores.files import evaluate
from pipeline.scores.layout import select_measures
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.published import published as published_figure
from pipeline.scores.store import Rankings
from pipeline.scores.summary import flat, summarise
from pipeline.scores.tables import Table, label_of
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.selection import Selection
from pipeline.stages.systems import TUNED
from pipeline.stages.titles import fused_names
from pipeline.studies.base import Report, Steps, Study
from pipeline.studies.pools import Draw, own_pool, with_negatives
from pipeline.studies.recipe import PoolsRecipe, pools_of
from pipeline.studies.scored import Batches, Scored, corpus_of, in_lists, pool_tasks, scored, tuned
from pipeline.studies.tables import Columns, Row, Show, figure, lines, points, table

__all__ = [
    "ALPHA", "AVERAGE", "DATA", "ENOUGH", "FIELD_BIT", "FRACTION", "MAG_FIELDS", "MAIN", "NO_YEAR", "PERCENT", "POINTS",
    "POWER", "TUNED", "Batches", "Board", "Chart", "Columns", "Corpus", "Design", "Draw", "Draws", "Found",
    "InputError", "Pool", "PoolsRecipe", "Qrels", "Rankings", "Report", "Row", "Scored", "Selection", "Series", "Show",
    "Steps", "Study", "Table", "Task", "Workspace", "board", "bootstrap_means", "components", "contrasts", "corpus_of",
    "counted", "crossed_mean", "describe_gaps", "digest", "doi_key", "estimate", "evaluate", "figure", "file_name",
    "flat", "format_count", "fused_names", "gaps_of", "generator", "in_lists", "in_our_spelling", "interval",
    "is_called", "label_of", "lines", "nearest", "own_pool", "parse_measures", "plan", "points", "pool_tasks",
    "pools_of", "priorities", "published_figure", "query_of", "read_ranking", "read_results", "require_known",
    "required", "scored", "select_measures", "selection", "sha256", "share_of_clusters", "share_of_samples", "sign_of",
    "simultaneous", "smallest", "split_names", "study", "summarise", "table", "title_keys", "tuned", "with_negatives",
    "write_pool",
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
