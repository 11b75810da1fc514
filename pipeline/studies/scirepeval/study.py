"""SciRepEval: 24 tasks in four formats, on vectors embedded once (Singh et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.task import Task
from pipeline.scores.page.parts import Chart
from pipeline.stages.corpus import corpus_task
from pipeline.stages.systems import system_names
from pipeline.studies.base import Study, StudyFigure, StudyResult
from pipeline.studies.common import drawn, made
from pipeline.studies.recipe import KEPT
from pipeline.studies.scirepeval import tables
from pipeline.studies.scirepeval.layout import Folder
from pipeline.studies.scirepeval.outcomes import LEAST_SYSTEMS, TaskScore, draw_correlations, gains, outcomes
from pipeline.studies.scirepeval.steps import (
    Encoders,
    TaskPapers,
    alone,
    encoders,
    figures_task,
    leaks_task,
    multi_format,
    vector_tasks,
)
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, choose, entries


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        input: folder of the published files.
        systems: encoders, or systems of ``formats.toml``, with commas.
        tasks: names of tasks; empty: all that the folder has.
        edition: number of tasks of the version: 24, or 25 for the earlier one.
        baseline: system that the others are compared with; empty: the first.
        formats: TOML file with further multi-format systems; empty: none.
        confusion: multi-format system whose every encoder is tried on every format; empty: none.
        training_lists: files with the id or title of a training paper on each line, for the leak check.
        seed: of the bootstrap.
        resamples: of the bootstrap.
    """

    input: str
    systems: str
    tasks: tuple[str, ...]
    edition: int
    baseline: str
    formats: str
    confusion: str = field(metadata=KEPT)
    training_lists: tuple[str, ...]
    seed: int
    resamples: int

    def __post_init__(self) -> None:
        if self.edition not in (24, 25):
            raise InputError(f"edition must be 24 or 25, got {self.edition}", "Correct the recipe")
        if self.resamples < 1:
            raise InputError(f"resamples must be at least 1, got {self.resamples}", "Correct the recipe")

    @property
    def folder(self) -> Folder:
        """The published files."""
        if not self.input:
            raise InputError("the recipe must name the folder of the published files, got none", "Give it with --input")
        return Folder(Path(self.input).expanduser().resolve())

    @property
    def names(self) -> list[str]:
        """Names of the systems."""
        return system_names(self.systems)

    @property
    def compared(self) -> str:
        """The system that the others are compared with.

        Raises:
            InputError: it is not evaluated.
        """
        baseline = self.baseline or self.names[0]
        if baseline not in self.names:
            raise InputError(f"the baseline must be one of {', '.join(self.names)}, got {baseline!r}", "Set baseline")
        return baseline

    @property
    def columns(self) -> dict[str, str]:
        """The encoder of each format of the system to be confused, and of ad-hoc queries.

        Raises:
            InputError: it is not in ``formats.toml`` or the recipe's file.
        """
        if not self.confusion:
            return {}
        table = multi_format(self.formats)
        if self.confusion not in table:
            raise InputError(
                f"confusion must name a multi-format system, got {self.confusion!r}", nearest(self.confusion, table)
            )
        row = table[self.confusion]
        return {name: row[name] for name in (*FORMATS[:3], "query") if name in row}

    @property
    def lists(self) -> dict[str, Path]:
        """The training lists by name."""
        return {Path(each).name: Path(each).expanduser().resolve() for each in self.training_lists}

    def there(self) -> list[Entry]:
        """Return the tasks that the folder has."""
        found = [entry for entry in entries().values() if self.folder.state(entry) != "missing"]
        if not found:
            raise InputError(f"{self.folder.root} must hold files of a task, got none", "mdcr study scirepeval --list")
        return found

    def chosen(self) -> list[Entry]:
        """Return the tasks to evaluate: those asked for, or of the edition, that the folder has.

        Raises:
            InputError: a task that was asked for is unknown or not there.
        """
        asked, there = choose(self.tasks), self.there()
        for entry in asked if self.tasks else ():
            if entry not in there:
                raise InputError(
                    f"{self.folder.root} must hold the files of task {entry.name}, got none",
                    "mdcr study scirepeval --list shows what it has",
                )
        return [entry for entry in asked if entry in there and (self.tasks or self.edition in entry.editions)]


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the tasks and which of them the folder has."""
    folder = recipe.folder if recipe.input else None
    return [
        {
            "task": entry.name,
            "title": entry.title,
            "format": entry.format,
            "measures": ", ".join(entry.measures),
            "few_shot": ", ".join(str(size) for size, _ in entry.few_shot),
            "trained": "in-train" if entry.in_train else "out-of-train",
            "editions": ", ".join(map(str, entry.editions)),
            "files": folder.state(entry) if folder else "",
        }
        for entry in entries().values()
    ]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[list[Task]]:
    """Yield the corpus, then the vectors of each system, then the figures of each task and system."""
    recipe.chosen()
    _ = recipe.compared
    _systems(recipe)  # before the papers are read
    papers = _corpus_task(recipe)
    yield [papers]
    corpus = made(workspace, papers)
    yield from ([task] for task in (*_leaks(corpus, recipe).values(), *_figures(corpus, recipe).values()))


def _corpus_task(recipe: Recipe) -> Task:
    return corpus_task("scirepeval", TaskPapers(folder=recipe.folder, entries=tuple(recipe.there())))


def _systems(recipe: Recipe) -> dict[str, Encoders]:
    """Return the systems by name, and the encoders to be confused, by their names after a tilde."""
    systems = {name: encoders(name, recipe.formats) for name in recipe.names}
    return systems | {f"~{name}": alone(name) for name in recipe.columns.values()}


def _figures(corpus: Artifact, recipe: Recipe) -> dict[tuple[str, str], Task]:
    """Return the figures of each task and system. All tasks of the folder are embedded: a choice changes no vector."""
    folder, there = recipe.folder, recipe.there()
    vectors = {name: vector_tasks(corpus, folder, there, system) for name, system in _systems(recipe).items()}
    return {
        (entry.name, name): figures_task(corpus, folder, entry, own[entry.format], recipe.seed, recipe.resamples)
        for entry in recipe.chosen()
        for name, own in vectors.items()
    }


def _leaks(corpus: Artifact, recipe: Recipe) -> dict[str, Task]:
    return {entry.name: leaks_task(corpus, recipe.folder, entry, recipe.lists) for entry in recipe.chosen()}


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the averages, the tasks, the formats, the differences, leaks and what was counted."""
    corpus = workspace.runner.make(_corpus_task(recipe))
    every = {key: workspace.runner.make(task) for key, task in _figures(corpus, recipe).items()}
    leaks = {name: workspace.runner.make(task) for name, task in _leaks(corpus, recipe).items()}
    chosen = {entry.name: entry for entry in recipe.chosen()}
    figures: dict[str, list[TaskScore]] = {name: [] for name in _systems(recipe)}
    for (task, system), artifact in every.items():
        rows = artifact.arrow("figures.arrow").to_pylist()
        own = [(row["figure"], row["value"], np.array(row["draws"]), row["items"]) for row in rows]
        figures[system] += outcomes(chosen[task], own)
    found = {name: figures[name] for name in recipe.names}
    made = {key: artifact for key, artifact in every.items() if key[1] in found}
    states = {name: recipe.folder.state(entry) for name, entry in chosen.items()}
    rows = multi_format(recipe.formats)
    published = {name: row.get("published", name) for name, row in rows.items()}
    published |= {each: "" for name, each in published.items() if name != each and each not in rows}
    shown = [tables.averages(found, published, states), tables.tasks(found, states, made), tables.formats(found)]
    sources = [corpus.name, *(artifact.name for artifact in (*every.values(), *leaks.values()))]
    figured, charts, confused = list[StudyFigure](), list[Chart](), None
    if recipe.columns:
        confused = tables.codes({name[1:]: figures[name] for name in figures if name not in found}, recipe.columns)
        shown.append(confused)
    if len(found) > 1:
        shown.append(tables.differences(found, recipe.compared, recipe.seed))
        charts.append(gains(found, recipe.compared, recipe.seed, ", ".join(sources)))
        figured += drawn([("gains", charts[0], "difference")])
    if len(found) >= LEAST_SYSTEMS:
        shown.append(tables.correlated(found))
        figured.append(StudyFigure("correlations", partial(draw_correlations, found=found)))
    shown += [tables.leaks(leaks), tables.counts(made)]
    return StudyResult(shown, figured, sources, parts=[*charts, *tables.heats(found, confused, ", ".join(sources))])


STUDY = Study(
    "scirepeval",
    "24 tasks in four formats",
    Recipe,
    batches,
    results,
    listing,
    needs="Fetch the published files, mdcr fetch scirepeval, and give their folder with --input",
)
