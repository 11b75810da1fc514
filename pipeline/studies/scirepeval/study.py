"""SciRepEval: 24 tasks in four formats, on vectors embedded once (Singh et al. 2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.encode import registry
from pipeline.report.tables import Column, Figure, Line, Table, Value
from pipeline.stages.corpus import corpus_task
from pipeline.studies.base import Findings, Study, StudyFigure, StudyTable
from pipeline.studies.scirepeval.agreement import (
    LEAST_SYSTEMS,
    correlations,
    draw_correlations,
    draw_gains,
    labels,
    smallest_subset,
)
from pipeline.studies.scirepeval.averages import GROUPS, Mean, Outcome, average, difference, outcomes
from pipeline.studies.scirepeval.layout import Folder
from pipeline.studies.scirepeval.steps import System, TaskPapers, figures_task, multi_format, vector_tasks
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, choose, entries

_NOT_COUNTS = ("figures",)


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        input: folder of the published files.
        systems: encoders of ``models.toml`` or of ``formats.toml``, with commas.
        tasks: names of tasks; empty: all that the folder has.
        edition: number of tasks of the version: 24, or 25 for the earlier one.
        baseline: system that the others are compared with; empty: the first.
        seed: of the bootstrap.
        resamples: of the bootstrap.
    """

    input: str
    systems: str
    tasks: tuple[str, ...]
    edition: int
    baseline: str
    seed: int
    resamples: int

    @property
    def folder(self) -> Folder:
        """The published files."""
        if not self.input:
            raise InputError("the recipe must name the folder of the published files, got none", "Give it with --input")
        return Folder(Path(self.input).expanduser().resolve())

    @property
    def names(self) -> list[str]:
        """Names of the systems."""
        return registry.split_names(self.systems)

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
    for name in recipe.names:
        System.resolve(name)  # before the papers are read
    papers = _corpus_task(recipe)
    yield [papers]
    if not workspace.runner.published(papers):
        raise InputError(f"the corpus {papers.name} must be made first, got none", "Run without --dry-run")
    found = _figures(workspace.runner.make(papers), recipe)
    yield from ([task] for task in found.values())


def _corpus_task(recipe: Recipe) -> Task:
    return corpus_task("scirepeval", TaskPapers(folder=recipe.folder, entries=tuple(recipe.there())))


def _figures(corpus: Artifact, recipe: Recipe) -> dict[tuple[str, str], Task]:
    """Return the figures of each task and system. All tasks of the folder are embedded: a choice changes no vector."""
    folder, there = recipe.folder, recipe.there()
    vectors = {name: vector_tasks(corpus, folder, there, System.resolve(name)) for name in recipe.names}
    return {
        (entry.name, name): figures_task(
            corpus, folder, entry, name, vectors[name][entry.format], recipe.seed, recipe.resamples
        )
        for entry in recipe.chosen()
        for name in recipe.names
    }


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Return the averages, the tasks, the formats, the differences and what was counted."""
    corpus = workspace.runner.make(_corpus_task(recipe))
    made = {key: workspace.runner.make(task) for key, task in _figures(corpus, recipe).items()}
    chosen = {entry.name: entry for entry in recipe.chosen()}
    found: dict[str, list[Outcome]] = {name: [] for name in recipe.names}
    for (task, system), artifact in made.items():
        table = artifact.arrow("figures.arrow").to_pylist()
        rows = [(row["figure"], row["value"], np.array(row["draws"]), row["items"]) for row in table]
        found[system] += outcomes(chosen[task], rows)
    tables = [_averages(found, chosen, recipe), _tasks(found, chosen, recipe, made), _formats(found, chosen)]
    figures = []
    if len(found) > 1:
        tables.append(_differences(found, chosen, recipe))
        gains = partial(draw_gains, found=found, entries=chosen, baseline=recipe.compared, seed=recipe.seed)
        figures.append(StudyFigure("gains", gains))
    if len(found) >= LEAST_SYSTEMS:
        tables.append(_correlations(found))
        figures.append(StudyFigure("correlations", partial(draw_correlations, found=found)))
    tables.append(_counts(made))
    return Findings(tables, figures, [corpus.name, *(artifact.name for artifact in made.values())])


def _averages(found: dict[str, list[Outcome]], chosen: dict[str, Entry], recipe: Recipe) -> StudyTable:
    means = {(name, group): average(found[name], chosen, group) for name in found for group in GROUPS}
    lines, rows = [], []
    for name in found:
        own, published = [means[name, group] for group in GROUPS], _published(name)
        lines.append(Line(name, (*map(_cell, own), *(_percent(published.get(group)) for group in GROUPS))))
        rows += [
            {"system": name, "group": group, "published": published.get(group), **_record(mean)}
            for group, mean in zip(GROUPS, own, strict=True)
        ]
    columns = [Column("measured", group) for group in GROUPS] + [Column("published", group) for group in GROUPS]
    sample = [name for name in chosen if recipe.folder.state(chosen[name]) == "sample"]
    figures = [mean.figures if (mean := means[next(iter(found)), group]) else 0 for group in GROUPS]
    notes = [
        f"Means of {figures[0]} in-train and {figures[1]} out-of-train figures; the published ones are of 7 and 20.",
        "Intervals: 95%, bootstrap over test items, repetitions of few-shot rows, or blocks of S2AND.",
    ]
    if sample:
        notes.append(f"Samples of training data, not comparable with published figures: {', '.join(sample)}.")
    table = Table("SciRepEval: averages over tasks", "system", tuple(columns), tuple(lines), tuple(notes))
    return StudyTable("averages", table, pl.DataFrame(rows, infer_schema_length=None))


def _published(name: str) -> dict[str, float]:
    """Return the published averages of a system, in percent, by group."""
    formats = multi_format()
    if name not in formats and name in {row["published"] for row in formats.values()}:
        return {}  # the published figures are of its multi-format system
    figures = registry.published(formats[name]["published"] if name in formats else name)
    return {group: figures[key] for group in GROUPS if (key := f"scirepeval.{group}") in figures}


def _tasks(
    found: dict[str, list[Outcome]],
    chosen: dict[str, Entry],
    recipe: Recipe,
    made: dict[tuple[str, str], Artifact],
) -> StudyTable:
    lines, rows = [], []
    for each in zip(*found.values(), strict=True):
        entry = chosen[each[0].task]
        state, best = recipe.folder.state(entry), max(one.value for one in each)
        cells: list[Value] = []
        for name, one in zip(found, each, strict=True):
            low, high = one.interval or (one.value, one.value)
            cells.append(Figure(one.value, None, low, high, one.value == best and len(each) > 1, marked=False))
            interval = one.interval or (None, None)
            row = {"task": one.task, "measure": one.measure, "system": name, "value": one.value, "low": interval[0]}
            seconds = made[one.task, name].manifest.provenance["wall_seconds"]
            row |= {"high": interval[1], "items": one.items, "in_train": entry.in_train, "files": state}
            rows.append({**row, "seconds": seconds})
        trained = "in-train" if entry.in_train else "out-of-train"
        lines.append(Line(f"{entry.title}, {each[0].measure}", (*cells, f"{trained}, {state}, {each[0].items:,}")))
    columns = [*(Column("", name) for name in found), Column("", "trained, files, items")]
    notes = ("Proximity and search rank by Euclidean distance, whatever the encoder's own distance.",)
    table = Table("SciRepEval: tasks", "task", tuple(columns), tuple(lines), notes)
    return StudyTable("tasks", table, pl.DataFrame(rows, infer_schema_length=None))


def _formats(found: dict[str, list[Outcome]], chosen: dict[str, Entry]) -> StudyTable:
    """Return the average of each format: with one system a control code, the paper's table 3."""
    lines, rows = [], []
    for name, all_of in found.items():
        cells = []
        for group in GROUPS[:2]:
            for kind in FORMATS:
                mean = average([each for each in all_of if chosen[each.task].format == kind], chosen, group)
                cells.append(_cell(mean))
                rows.append({"system": name, "group": group, "format": kind, **_record(mean)})
        lines.append(Line(name, tuple(cells)))
    columns = tuple(Column(group, kind) for group in GROUPS[:2] for kind in FORMATS)
    table = Table("SciRepEval: averages by format", "system", columns, tuple(lines), ())
    return StudyTable("formats", table, pl.DataFrame(rows, infer_schema_length=None))


def _differences(found: dict[str, list[Outcome]], chosen: dict[str, Entry], recipe: Recipe) -> StudyTable:
    baseline = recipe.compared
    lines, rows = [], []
    for name in (each for each in found if each != baseline):
        one = difference(found[name], found[baseline], chosen, recipe.seed)
        better = f"{one.better} of {one.mean.figures}"
        lines.append(Line(name, (_cell(one.mean), f"{one.p_value:.4f}", better)))
        rows.append({"system": name, "baseline": baseline, **_record(one.mean), "p": one.p_value, "better": one.better})
    columns = (Column("", "difference"), Column("", "p"), Column("", "better"))
    notes = ("p: paired permutation test over figures. Interval: bootstrap over test items.",)
    table = Table(f"SciRepEval: differences from {baseline}", "system", columns, tuple(lines), notes)
    return StudyTable("differences", table, pl.DataFrame(rows))


def _correlations(found: dict[str, list[Outcome]]) -> StudyTable:
    """Return how the figures correlate over systems: for each the one it is nearest to; the CSV file has all pairs."""
    names, matrix = labels(found), correlations(found)
    rows: list[dict[str, Any]] = [
        {"figure": first, "other": second, "correlation": None if np.isnan(value) else float(value)}
        for first, row in zip(names, matrix, strict=True)
        for second, value in zip(names, row, strict=True)
        if first != second
    ]
    lines = []
    for name in names:
        own = [row for row in rows if row["figure"] == name and row["correlation"] is not None]
        near = max(own, key=lambda row: row["correlation"], default=None)
        lines.append(Line(name, (near["other"], f"{near['correlation']:.2f}") if near else (None, None)))
    subset = smallest_subset(found)
    note = f"The mean of {' and '.join(subset)} orders the systems like the mean of all." if subset else ""
    columns = (Column("", "nearest"), Column("", "correlation"))
    table = Table(
        "SciRepEval: correlation of figures over systems", "figure", columns, tuple(lines), (note,) if note else ()
    )
    return StudyTable("correlations", table, pl.DataFrame(rows, infer_schema_length=None))


def _counts(made: dict[tuple[str, str], Artifact]) -> StudyTable:
    """Return what each task counted; counts of one system where all are equal."""
    rows, lines = [], []
    for (task, system), artifact in made.items():
        counts = {name: n for name, n in artifact.manifest.counts.items() if n and name not in _NOT_COUNTS}
        rows += [{"task": task, "system": system, "count": name, "number": number} for name, number in counts.items()]
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        seen[row["task"], row["count"]] += 1
        if seen[row["task"], row["count"]] == 1:
            lines.append(Line(row["task"], (row["count"].replace("_", " "), f"{row['number']:,}")))
    columns = (Column("", "count"), Column("", "number"))
    table = Table("SciRepEval: what was read and left out", "task", columns, tuple(lines), ())
    return StudyTable("counts", table, pl.DataFrame(rows))


def _cell(mean: Mean | None) -> Value:
    return None if mean is None else Figure(mean.value, None, mean.low, mean.high, best=False, marked=False)


def _percent(value: float | None) -> Value:
    return None if value is None else f"{value:.1f}"


def _record(mean: Mean | None) -> dict[str, Any]:
    names: Sequence[str] = ("value", "low", "high", "figures")
    return {name: getattr(mean, name, None) for name in names}


STUDY = Study("scirepeval", "24 tasks in four formats", Recipe, batches, findings, listing)
