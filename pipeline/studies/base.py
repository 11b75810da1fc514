"""Studies: a recipe, the tasks it needs, the tables and figures it makes; and the registry of studies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError, require_known
from pipeline.scores.page.parts import Chart, Part
from pipeline.scores.tables import Table
from pipeline.studies.recipe import RECIPES

if TYPE_CHECKING:
    from pipeline.api import Workspace
    from pipeline.core.task import Task


Drawing = Callable[[Any], Any]
"""``draw(figure_class) -> figure``, by matplotlib (:mod:`pipeline.scores.plot`)."""


@dataclass(frozen=True)
class Report:
    """Results of a study.

    Attributes:
        tables: tables, in order of the page.
        charts: charts of the page by name; each view is also a file ``NAME-VIEW``.
        figures: further figures by the stem of their files.
        sources: folder names of the artifacts that the results come from.
        files: further text files of the study, content by name.
        parts: further parts of its page: charts that are no files, a browser of queries.
        findings: sentences from its main table and its tests.
        title: title of its page, tables before charts; empty: the summary of the study, charts before tables.
    """

    tables: Sequence[Table]
    charts: Mapping[str, Chart] = field(default_factory=dict)
    figures: Mapping[str, Drawing] = field(default_factory=dict)
    sources: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    findings: Sequence[str] = ()
    title: str = ""


Steps = Generator[Sequence["Task"], Any, Report]
"""What a study does: it yields lists of tasks, gets the artifacts of each, in their order, and returns its report."""


@dataclass(frozen=True)
class Study:
    """An experiment, for ``mdcr study NAME``.

    Attributes:
        name: its name.
        summary: one line for the list of studies.
        recipe: frozen dataclass of its settings. A field ``corpus``, ``systems`` or ``input`` can be set on the command
            line. Other fields that name systems are marked (``required(..., systems="replaced")``).
        steps: ``steps(workspace, recipe)``, a generator (:data:`Steps`). A plan ends where it reads what is not made.
        listing: ``listing(recipe)`` returns the contents of the input, rows for ``--list``; None: nothing to list.
        needs: remedy if the corpus or input of the recipe is missing. Empty: any corpus can be used.
        own_recipe: its default recipe; None: the one of its name in ``pipeline/data/recipes``.
    """

    name: str
    summary: str
    recipe: type[Any]
    steps: Callable[[Workspace, Any], Steps]
    listing: Callable[[Any], Sequence[dict[str, Any]]] | None = None
    needs: str = ""
    own_recipe: Path | None = None

    @property
    def default_recipe(self) -> Path:
        """The recipe used without ``--recipe``; it has the study's name."""
        return self.own_recipe or RECIPES / f"{self.name}.toml"


STUDIES = {
    "pool_size": ".pool_size",
    "neighbours": ".neighbours.study",
    "scirepeval": ".scirepeval.study",
    "large_scale": ".large_scale",
    "mdcr": ".mdcr.study",
    "mdcr_eval": ".mdcr.scores",
    "facets": ".facets.study",
    "leaderboard": ".leaderboard.study",
    "card": ".leaderboard.card",
    "audit": ".audit.study",
    "overlap": ".overlap",
    "clean": ".clean",
    "crossover": ".crossover",
    "strangers": ".strangers",
    "multi_format": "pipeline.train.multi_format",
}
"""The modules of the studies, imported when one is run; a leading dot means this package."""


def register(name: str, module: str) -> None:
    """Add a study of another package, for ``mdcr study NAME``; InputError if the name is taken.

    ``module`` has the :class:`Study` of that name; it is imported when a study is run, or when studies are listed.
    """
    if STUDIES.setdefault(name, module) != module:
        raise InputError(f"there is a study {name!r} already", "Give yours another name")


def find(name: str) -> Study:
    """Return the study with a name.

    Raises:
        InputError: there is none, or its package cannot be imported.
    """
    require_known(name, STUDIES, f"there is no study {name!r}")
    try:
        module = importlib.import_module(STUDIES[name], __package__)
        return next(study for study in vars(module).values() if isinstance(study, Study) and study.name == name)
    except (ImportError, StopIteration) as error:
        problem = f"the study {name} ({STUDIES[name]}) cannot be loaded ({error})"
        raise InputError(problem, "Repair its package") from error
