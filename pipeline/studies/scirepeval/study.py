"""SciRepEval: 24 tasks in four formats, on vectors embedded once (Singh et al. 2023)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, require_known
from pipeline.core.files import resolved
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.encode.model import Role
from pipeline.encode.names import split_names
from pipeline.scores.page.parts import Chart
from pipeline.scores.plot import draw_heat
from pipeline.stages.corpus import corpus_task
from pipeline.studies.base import StudyFigure, StudyResult, old_study
from pipeline.studies.common import drawn, require_made
from pipeline.studies.scirepeval import costs, report, steps
from pipeline.studies.scirepeval.probes import SEED
from pipeline.studies.scirepeval.scoring import FiguresConfig
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Folder, Format, domain_of, entries, published_of
from pipeline.studies.sentences import Pairing

Vectors = Mapping[Format, Mapping[Role, Task]]
"""Vectors of a system, by format and role."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with scirepeval/ and scirepeval_test/, or the training samples")
    systems: str = required("entries of models.toml, or of pipeline/studies/scirepeval/formats.toml")
    tasks: tuple[str, ...] = required("names of tasks; empty: all that the folder has")
    edition: int = required("number of tasks; 25: the earlier version, with the feeds tasks")
    baseline: str = required("the system that the others are compared with; empty: the first")
    formats: str | Mapping[str, Mapping[str, str]] = required(
        "further multi-format systems: a TOML file, or a table of them"
    )
    confusion: str = required(
        "multi-format system whose every encoder is tried on every format; empty: none", systems="kept"
    )
    training_lists: tuple[str, ...] = required("files with the id or title of a training paper on each line")
    seed: int = required("seed of the bootstrap")
    resamples: int = required("resamples of the bootstrap")
    probe_seeds: int = required("fits of each probe, each with another seed; from 2 on, their deviation is a table")

    def __post_init__(self) -> None:
        if self.edition not in (24, 25):
            raise InputError(f"edition must be 24 or 25, got {self.edition}", "Correct the recipe")
        for name in ("resamples", "probe_seeds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}", "Correct the recipe")

    @property
    def folder(self) -> Folder:
        """The published files."""
        if not self.input:
            raise InputError("the recipe must name the folder of the published files, got none", "Give it with --input")
        return Folder(resolved(Path(self.input).expanduser()))

    @property
    def names(self) -> list[str]:
        """Names of the systems, which the recipe separates by commas."""
        return split_names(self.systems)

    @property
    def baseline_system(self) -> str:
        """The system that the others are compared with."""
        baseline = self.baseline or self.names[0]
        problem = f"the baseline must be one of {', '.join(self.names)}, got {baseline!r}"
        require_known(baseline, self.names, problem, "Set baseline")
        return baseline

    @property
    def confused_encoders(self) -> dict[str, str]:
        """The encoder of each format, and of ad-hoc queries, of the system whose formats are confused; empty: none."""
        if not self.confusion:
            return {}
        table = steps.multi_format(self.formats)
        require_known(self.confusion, table, f"confusion must name a multi-format system, got {self.confusion!r}")
        row = table[self.confusion]
        return {name: row[name] for name in (*FORMATS[:3], "query") if name in row}

    @property
    def lists(self) -> dict[str, Path]:
        """The training lists by name."""
        lists = {Path(text).name: resolved(Path(text).expanduser()) for text in self.training_lists}
        for path in lists.values():
            if not path.is_file():
                raise InputError(f"a training list must be a file, got {path}", "Set training_lists")
        return lists

    def available(self) -> list[Entry]:
        """Return the tasks with files in the folder."""
        available = [entry for entry in entries().values() if self.folder.state(entry) != "missing"]
        if not available:
            raise InputError(f"{self.folder.root} must hold files of a task, got none", "mdcr study scirepeval --list")
        return available

    def chosen(self) -> list[Entry]:
        """Return the tasks to evaluate: those of the recipe, or all of the edition that the folder has."""
        available = {entry.name: entry for entry in self.available()}
        for name in self.tasks:
            require_known(name, entries(), f"a task must be one of the table, got {name!r}")
            if name not in available:
                raise InputError(
                    f"{self.folder.root} must hold the files of task {name}, got none",
                    "mdcr study scirepeval --list shows what it has",
                )
        chosen = self.tasks or [name for name, entry in available.items() if self.edition in entry.editions]
        return [entry for name, entry in available.items() if name in chosen]


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the facts of each task, and whether the folder has its files."""
    folder = recipe.folder if recipe.input else None
    rows = []
    for entry in entries().values():
        trained, files = "in-train" if entry.in_train else "out-of-train", folder.state(entry) if folder else ""
        few_shot, editions = (", ".join(map(str, numbers)) for numbers in (dict(entry.few_shot), entry.editions))
        facts = {"task": entry.name, "title": entry.title, "domain": domain_of(entry.name), "format": entry.format}
        texts = {"measures": ", ".join(entry.measures), "few_shot": few_shot, "trained": trained, "editions": editions}
        rows.append({**facts, **texts, **published_of(entry.name), "files": files})
    return rows


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[list[Task]]:
    """Yield the corpus, then the leaks of each task, then the vectors and figures of each task and system."""
    recipe.chosen()
    _ = recipe.baseline_system, recipe.lists
    _pairings(recipe)  # before the papers are read
    papers = _corpus_task(recipe)
    yield [papers]
    _, figures, repeats, leaks = _plan(require_made(workspace, papers), recipe)
    yield from ([task] for task in (*leaks.values(), *figures.values(), *repeats.values()))


def _corpus_task(recipe: Recipe) -> Task:
    return corpus_task("scirepeval", steps.TaskPapers(folder=recipe.folder, entries=tuple(recipe.available())))


def _plan(
    corpus: Artifact, recipe: Recipe
) -> tuple[Mapping[str, Vectors], dict[tuple[Entry, str], Task], dict[tuple[Entry, str, int], Task], dict[str, Task]]:
    """Return vectors by system, figures by task and system, those of probes also by seed, and leaks by task."""
    folder, available, chosen, pairings = recipe.folder, recipe.available(), recipe.chosen(), _pairings(recipe)
    # All tasks of the folder are embedded, so the choice of tasks does not change the vectors.
    vectors = {name: steps.vector_tasks(corpus, folder, available, system) for name, system in _systems(recipe).items()}

    def figures(entry: Entry, name: str, resamples: int, seed: int, pairing: Pairing | None = None) -> Task:
        config = FiguresConfig(entry, recipe.seed, resamples, seed, pairing)
        return steps.figures_task(corpus, folder, config, vectors[name][entry.format])

    probed = [entry for entry in chosen if entry.format in ("classification", "regression")]
    seeds = range(SEED + 1, SEED + recipe.probe_seeds)
    of_systems = {
        key: figures(*key, recipe.resamples, SEED, pairings[key]) for key in itertools.product(chosen, vectors)
    }
    repeated = itertools.product(probed, recipe.names, seeds)
    repeats = {(entry, name, seed): figures(entry, name, 1, seed) for entry, name, seed in repeated}
    leaks = {entry.name: steps.leaks_task(corpus, folder, entry, recipe.lists) for entry in chosen}
    return vectors, of_systems, repeats, leaks


def _systems(recipe: Recipe) -> dict[str, steps.Encoders]:
    """Return the systems by name, and the encoders of the confusion of formats by name with a tilde before it."""
    systems = {name: steps.encoders(name, recipe.formats) for name in recipe.names}
    return systems | {f"~{name}": steps.single_encoder(name) for name in recipe.confused_encoders.values()}


def _pairings(recipe: Recipe) -> dict[tuple[Entry, str], Pairing | None]:
    """Return how each system compares the papers of each task; InputError if a system cannot."""
    return {
        (entry, name): steps.pairing_of(name, system[entry.format], entry)
        for name, system in _systems(recipe).items()
        for entry in recipe.chosen()
    }


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the tables and figures: averages, tasks, formats, differences, costs, leaks and counts."""
    make = workspace.runner.make
    corpus = make(_corpus_task(recipe))
    vectors, figure_tasks, repeat_tasks, leak_tasks = _plan(corpus, recipe)
    all_artifacts = {key: make(task) for key, task in figure_tasks.items()}
    damaged = {entry for (entry, _), artifact in all_artifacts.items() if not artifact.manifest.counts["figures"]}
    evaluated = [entry for entry in recipe.chosen() if entry not in damaged]
    if not evaluated:
        names = ", ".join(sorted(entry.name for entry in damaged))
        raise InputError(f"no task could be evaluated of {names}", "The lines above say why; fetch the files again")
    artifacts = {key: artifact for key, artifact in all_artifacts.items() if key[0] not in damaged}
    leaks = {name: make(task) for name, task in leak_tasks.items()}
    sources = [corpus.name, *(artifact.name for artifact in (*artifacts.values(), *leaks.values()))]
    with_confusion = report.read_figures(artifacts, recipe.folder)
    figures = with_confusion.filter(pl.col("system").is_in(recipe.names))

    means = report.means(with_confusion, recipe.edition)
    system_means = means.filter(pl.col("system").is_in(recipe.names))
    samples = [entry.name for entry in evaluated if recipe.folder.state(entry) == "sample"]
    tables = [
        report.averages(system_means, _published_names(recipe), recipe.edition, samples),
        report.tasks(figures),
        *filter(None, [report.parts(artifacts, recipe.names)]),
        report.formats(system_means),
    ]
    drawings, charts, confusion = list[StudyFigure](), list[Chart](), None
    if recipe.confused_encoders:
        published = steps.multi_format(recipe.formats)[recipe.confusion].get("published", recipe.confusion)
        confusion = report.codes(means, recipe.confused_encoders, published, recipe.edition)
        tables.append(confusion)
    differences = report.differences(figures, recipe.baseline_system, recipe.seed)
    if len(differences):
        tables.append(report.difference_table(differences))
        charts.append(report.gains(differences, ", ".join(sources)))
        drawings += drawn([("gains", charts[0], "difference")])
    if len(recipe.names) >= report.LEAST_SYSTEMS:
        tables.append(report.correlation_table(figures))
        labels, matrix = report.correlations(figures)
        look: dict[str, Any] = {"colours": "PuOr", "ends": (-1.0, 1.0)}
        draw = partial(draw_heat, title="correlation", rows=labels, columns=labels, values=matrix, **look)
        drawings.append(StudyFigure("correlations", draw))
    repeats = {key: make(task) for key, task in repeat_tasks.items() if key[0] not in damaged}
    if repeats:
        fits = [report.read_figures({key[:2]: artifact}, recipe.folder) for key, artifact in repeats.items()]
        tables.append(report.seeds(figures, fits))
    formats = {entry.format for entry in evaluated}
    embedded = {
        (name, kind): (steps.encoders(name, recipe.formats)[kind], make(vectors[name][kind]["paper"]))
        for name, kind in itertools.product(recipe.names, FORMATS)
        if kind in formats
    }
    tables += [costs.efficiency(embedded), report.leaks(leaks), report.counts(all_artifacts, recipe.names)]
    return StudyResult(tables, drawings, sources, parts=charts, best=report.best_of(system_means))


def _published_names(recipe: Recipe) -> dict[str, str]:
    """Return, by system, the name under which its figures are published; empty for an encoder of a published system."""
    table = steps.multi_format(recipe.formats)
    published = {system: row.get("published", system) for system, row in table.items()}
    return published | {name: "" for name in published.values() if name not in table}


STUDY = old_study(
    "scirepeval",
    "24 tasks in four formats",
    Recipe,
    batches,
    results,
    listing=listing,
    needs="Fetch the published files, mdcr fetch scirepeval, and give their folder with --input",
)
