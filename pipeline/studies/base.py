"""What a study is: a recipe, the tasks it needs, the tables and figures it makes; and the studies by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.scores.page.parts import Part
from pipeline.scores.tables import Table, frame_table
from pipeline.studies.recipe import RECIPES, check_choice

if TYPE_CHECKING:
    import polars as pl

    from pipeline.api import Workspace
    from pipeline.core.task import Task


@dataclass(frozen=True)
class StudyTable:
    """A table of a study.

    Attributes:
        name: stem of its files.
        table: as shown.
        frame: the figures behind it in full precision, one row each; the CSV file.
        choosers: of its page (:class:`pipeline.scores.page.parts.TablePart`).
        records: likewise.
    """

    name: str
    table: Table
    frame: pl.DataFrame
    choosers: Mapping[str, str] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(
        cls, name: str, title: str, frame: pl.DataFrame, notes: Sequence[str] = (), decimals: int = 1,
        shown: pl.DataFrame | None = None,
    ) -> StudyTable:  # fmt: skip
        """Return a frame as a table (:func:`pipeline.scores.tables.frame_table`), or what is ``shown`` in its place."""
        return cls(name, frame_table(title, frame if shown is None else shown, notes, decimals), frame)


@dataclass(frozen=True)
class StudyFigure:
    """A figure of a study.

    Attributes:
        name: stem of its files.
        draw: ``draw(figure_class) -> figure``, by matplotlib (:mod:`pipeline.scores.plot`).
        charted: whether a chart of the page shows the same.
    """

    name: str
    draw: Callable[[Any], Any]
    charted: bool = False


@dataclass(frozen=True)
class StudyResult:
    """What a study found.

    Attributes:
        tables: in the order shown.
        figures: in the order shown.
        sources: folder names of the artifacts that the figures come from.
        files: further files of the study, text by name.
        parts: what its page shows below the tables: charts, heat maps, query browsers.
        copies: further files of the study, copied from artifacts, by name.
        best: the best row, for the index of reports (:func:`pipeline.scores.page.report.best_of`).
        tables_first: whether tables stand above charts on its page.
    """

    tables: Sequence[StudyTable]
    figures: Sequence[StudyFigure] = ()
    sources: Sequence[str] = ()
    files: dict[str, str] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    copies: dict[str, Path] = field(default_factory=dict)
    best: str = ""
    tables_first: bool = False


@dataclass(frozen=True)
class Study:
    """An experiment.

    Attributes:
        name: as in ``mdcr study NAME``.
        summary: one line for ``mdcr study``.
        recipe: frozen dataclass of its settings. A field ``corpus``, ``systems`` or ``input`` can be set on the command
            line. Other fields that name systems say so (:data:`pipeline.studies.recipe.REPLACED`).
        batches: ``batches(workspace, recipe)`` yields tasks; each batch is made before the next is asked for.
        results: ``results(workspace, recipe)`` reads the artifacts and makes the tables and figures.
        listing: ``listing(recipe)`` returns rows for ``--list``: what the input holds. None: there is nothing to list.
        needs: said where the corpus or input of the recipe is not there: what it is, and the command that gets it.
            Empty: any corpus will do.
    """

    name: str
    summary: str
    recipe: type[Any]
    batches: Callable[[Workspace, Any], Iterator[Sequence[Task]]]
    results: Callable[[Workspace, Any], StudyResult]
    listing: Callable[[Any], Sequence[dict[str, Any]]] | None = None
    needs: str = ""

    @property
    def default_recipe(self) -> Path:
        """The recipe without ``--recipe``, of the study's name."""
        return RECIPES / f"{self.name}.toml"


STUDIES = {
    "pool_size": "pool_size",
    "neighbours": "neighbours.study",
    "scirepeval": "scirepeval.study",
    "large_scale": "large_scale.study",
    "mdcr": "mdcr.study",
    "mdcr_eval": "mdcr.scores",
    "mdcr_checks": "mdcr.checks",
    "facets": "facets.study",
    "facet_pools": "facets.build",
    "scientific": "scientific",
    "leaderboard": "leaderboard.study",
    "card": "leaderboard.card",
    "overlap": "overlap",
    "crossover": "crossover.study",
    "missing_relevance": "missing_relevance",
}
"""The modules of the studies below ``pipeline.studies``, each with a ``STUDY``, imported when one is run."""


def find(name: str) -> Study:
    """Return a study."""
    check_choice("the study", name, STUDIES)
    study: Study = importlib.import_module(f"pipeline.studies.{STUDIES[name]}").STUDY
    return study
