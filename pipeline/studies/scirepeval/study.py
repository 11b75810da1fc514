"""SciRepEval: 24 tasks in four formats, on vectors embedded once (Singh et al. 2023)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import InputError, require_known, required
from pipeline.studies.scirepeval import report, steps
from pipeline.studies.scirepeval.scoring import FiguresConfig
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Folder, entries, facts_of


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with scirepeval/ and scirepeval_test/, or the training samples")
    systems: str = required("entries of models.toml, or of pipeline/studies/scirepeval/formats.toml")
    tasks: tuple[str, ...] = required("names of tasks; empty: all that the folder has")
    edition: Literal[24, 25] = required("number of tasks; 25: the earlier version, with the feeds tasks")
    baseline: str = required("the system that the others are compared with; empty: the first")
    formats: str | Mapping[str, Mapping[str, str]] = required(
        "further multi-format systems: a TOML file, or a table of them"
    )
    confusion: str = required("multi-format system whose every encoder is tried on every format; empty: none")
    seed: int = required("seed of the bootstrap")
    resamples: int = required("resamples of the bootstrap")

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise InputError(f"resamples must be at least 1, got {self.resamples}", "Correct the recipe")

    @property
    def folder(self) -> Folder:
        """The published files."""
        if not self.input:
            raise InputError("the recipe must name the folder of the published files, got none", "Give it with --input")
        return Folder(kit.resolved(Path(self.input).expanduser()))

    @property
    def names(self) -> list[str]:
        """Names of the systems, which the recipe separates by commas."""
        return kit.split_names(self.systems)

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

    def available(self) -> dict[str, Entry]:
        """Return the tasks with files in the folder, by name."""
        folder = self.folder
        available = {name: entry for name, entry in entries().items() if folder.state(entry) != "missing"}
        if not available:
            raise InputError(f"{folder.root} must hold files of a task, got none", "mdcr study scirepeval --list")
        return available

    def chosen(self) -> list[Entry]:
        """Return the tasks to evaluate: those of the recipe, or all of the edition that the folder has."""
        available = self.available()
        for name in self.tasks:
            require_known(name, entries(), f"a task must be one of the table, got {name!r}")
            if name not in available:
                problem = f"{self.folder.root} must hold the files of task {name}, got none"
                raise InputError(problem, "mdcr study scirepeval --list shows what it has")
        chosen = self.tasks or [name for name, entry in available.items() if self.edition in entry.editions]
        return [entry for name, entry in available.items() if name in chosen]


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the facts of each task, and whether the folder has its files."""
    folder = recipe.folder if recipe.input else None
    rows = []
    for entry in entries().values():
        few_shot, editions = (", ".join(map(str, numbers)) for numbers in (dict(entry.few_shot), entry.editions))
        domain, train, test, source = facts_of(entry.name)
        rows.append({
            "task": entry.name, "title": entry.title, "domain": domain, "format": entry.format,
            "measures": ", ".join(entry.measures), "few_shot": few_shot, "trained": entry.trained, "editions": editions,
            "train_published": train, "test_published": test, "source": source,
            "files": folder.state(entry) if folder else "",
        })  # fmt: skip
    return rows


NEEDS = "Fetch scirepeval and scirepeval_test, hf download allenai/..., and give their folder with --input"


@kit.study("scirepeval", "24 tasks in four formats", Recipe, needs=NEEDS, listing=listing)
def scirepeval(_workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return averages, tasks, formats, differences, correlations, costs and counts."""
    folder, available, chosen = recipe.folder, [*recipe.available().values()], recipe.chosen()
    baseline, confused = recipe.baseline_system, recipe.confused_encoders
    systems = {name: steps.encoders(name, recipe.formats) for name in recipe.names}
    systems |= {f"~{name}": steps.single_encoder(name) for name in confused.values()}
    keys = [*itertools.product(chosen, systems)]
    pairings = [steps.pairing_of(name, systems[name][entry.format], entry) for entry, name in keys]

    (corpus,) = yield [kit.corpus_task("scirepeval", steps.TaskPapers(folder=folder, entries=tuple(available)))]
    # All tasks of the folder are embedded, so the choice of tasks does not change the vectors.
    vectors = {name: steps.vector_tasks(corpus, folder, available, system) for name, system in systems.items()}
    configs = [FiguresConfig(entry, recipe.seed, recipe.resamples, pairing)
               for (entry, _), pairing in zip(keys, pairings, strict=True)]  # fmt: skip
    figure_tasks = [
        steps.figures_task(corpus, folder, config, vectors[name][config.task.format])
        for (_, name), config in zip(keys, configs, strict=True)
    ]
    made = yield figure_tasks
    artifacts = dict(zip(keys, made, strict=True))
    embedded = [(name, kind) for name in recipe.names for kind in FORMATS if kind in {entry.format for entry in chosen}]
    stores = yield [vectors[name][kind]["paper"] for name, kind in embedded]

    is_own, sources = pl.col("system").is_in(recipe.names), [corpus.name, *(each.name for each in artifacts.values())]
    with_confusion = report.figures_of(artifacts, folder)
    figures = with_confusion.filter(is_own)
    means = report.means(with_confusion, recipe.edition)
    differences = report.differences(figures, baseline, recipe.seed)
    samples = [entry.name for entry in chosen if folder.state(entry) == "sample"]
    sizes = report.efficiency({
        (name, kind): (systems[name][kind], store) for (name, kind), store in zip(embedded, stores, strict=True)
    })  # fmt: skip
    table, published = steps.multi_format(recipe.formats), dict[str, str]()
    published |= {system: row.get("published", system) for system, row in table.items()}
    published |= {name: "" for name in published.values() if name not in table}  # its encoder alone
    tables = [
        report.averages(means.filter(is_own), published, recipe.edition, samples),
        report.tasks(figures),
        report.formats(means.filter(is_own)),
        report.codes(means, confused, published.get(recipe.confusion, ""), recipe.edition),
        report.difference_table(differences, baseline),
        report.correlations(figures),
        sizes,
        report.counts({key: artifact for key, artifact in artifacts.items() if key[1] in recipe.names}),
    ]
    return kit.Report([table for table in tables if len(table.frame)], sources=sources)
