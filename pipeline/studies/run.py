"""Run a study: plan and make its artifacts, write its tables and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.api import Workspace
from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, file_name
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.progress import say
from pipeline.core.runner import Step
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, REPORTS, find_corpus_folder, name_study_corpus
from pipeline.scores.page.parts import Chart, Page, Part
from pipeline.scores.page.write import write_index, write_page
from pipeline.scores.plot import FORMATS, draw, drawing, save
from pipeline.scores.render import render_table
from pipeline.scores.tables import Table
from pipeline.studies.base import Report, Study


def run(workspace: Workspace, study: Study, recipe: Any) -> Report:
    """Make the missing artifacts of a study, and return its results.

    A study that was stopped resumes where it was, and artifacts are shared with other studies and commands.
    """
    steps, made = study.steps(workspace, recipe), None
    while True:
        try:
            tasks = list(steps.send(made))
        except StopIteration as end:
            report: Report = end.value
            return report
        made = workspace.make(tasks)
        for task, artifact in zip(tasks, made, strict=True):
            if task.folder == CORPORA:
                name_study_corpus(workspace.root, study.name, artifact)


def check_input(workspace: Workspace, study: Study, recipe: Any) -> None:
    """Raise InputError if the corpora or the input folder of a recipe do not exist."""
    folder, corpora = getattr(recipe, "input", None), getattr(recipe, "corpus", None)
    try:
        if folder and not Path(folder).expanduser().is_dir():
            raise InputError(f"the input folder {folder} does not exist", "Give the folder with --input")
        if folder == "" and not corpora:
            raise InputError("the recipe must name an input folder, got none", "Give the folder with --input")
        for name in () if folder or corpora is None else corpora.split(","):
            find_corpus_folder(workspace.root, name.strip() or None)
    except CorruptError:
        raise
    except InputError as error:
        raise InputError(error.what, study.needs or error.remedy) from error


class Unmade(Sequence[Artifact]):
    """The artifacts of tasks in a plan, of which one is not made: InputError once one is read."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, _place: Any) -> Any:
        raise InputError(f"{self.task.name} must be made first", "Run the study without --dry-run")

    def __len__(self) -> int:
        return len(self[:])


def plan(workspace: Workspace, study: Study, recipe: Any) -> tuple[list[Step], str]:
    """Return the steps of :func:`run`, and why the plan ends early (empty if complete). Nothing is written."""
    planned: dict[str, Step] = {}
    steps, made = study.steps(workspace, recipe), None
    try:
        while tasks := list(steps.send(made)):
            planned |= {step.task.id: step for step in workspace.runner.plan(tasks)}
            absent = [task for task in tasks if not workspace.runner.published(task)]
            made = Unmade(absent[0]) if absent else workspace.make(tasks)
    except StopIteration:
        return list(planned.values()), ""
    except InputError as error:
        if all(step.present for step in planned.values()):
            raise
        return list(planned.values()), f"the rest, if any, is planned once these are made: {error.what}"
    return list(planned.values()), ""


def write(workspace: Workspace, study: Study, name: str, recipe: Any, results: Report, output: Path | None) -> Path:
    """Write a study's page, tables (Markdown, CSV, LaTeX), figures, recipe and provenance, and return the folder.

    ``name`` is that of the recipe. Without ``output`` the folder is ``runs/reports/STUDY``
    or ``runs/reports/STUDY-RECIPE``.
    """
    report = study.name if name == study.name else f"{study.name}-{file_name(name, kept='._-') or 'recipe'}"
    folder = output or workspace.root / REPORTS / report
    source = ", ".join(results.sources)
    record = {"study": study.name, "recipe": canonical(recipe), "sources": list(results.sources)}
    record["provenance"] = provenance.describe()
    tables = [replace(table, source=source) for table in results.tables]
    record["tables"] = [table.name for table in tables]
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        for name in {*(files.read_json(folder / "study.json") or {}).get("tables", ())} - {*record["tables"]}:
            for suffix in ("csv", "md", "tex"):
                (folder / f"{file_name(name, kept='._-')}.{suffix}").unlink(missing_ok=True)
        for table in tables:
            for suffix, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex")):
                files.write_text(folder / f"{table.name}.{suffix}", render_table(table, form))
        for file, text in results.files.items():
            files.write_text(folder / file, text)
        _draw(results, folder, f"study {study.name}; {source}")
        files.write_text(folder / "study.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        write_page(_page(study, report, record, results, tables), folder)
        if output is None:
            write_index(folder.parent)
    return folder


def _draw(results: Report, folder: Path, description: str) -> None:
    """Write the figures of a report, its charts included."""
    of_charts = {
        f"{name}-{view}".lower().replace(" ", "-"): partial(draw, chart=chart, view=view)
        for name, chart in results.charts.items()
        for view in chart.views
    }
    try:
        for name, drawn in (of_charts | dict(results.figures)).items():
            with drawing() as figure_class:
                save(drawn(figure_class), folder / name, FORMATS, description)
    except InputError as error:  # matplotlib is not installed
        say(f"no figures: {error}")


def _page(study: Study, name: str, record: Mapping[str, Any], results: Report, tables: Sequence[Table]) -> Page:
    """Return the page of a study: its charts, its tables, then its other parts."""
    facts = {key: value if isinstance(value, str) else json.dumps(value, indent=1) for key, value in record.items()}
    source = ", ".join(results.sources)
    charts = [chart if chart.provenance else replace(chart, provenance=source) for chart in results.charts.values()]
    charts += [part for part in results.parts if isinstance(part, Chart)]
    other_parts = [part for part in results.parts if not isinstance(part, Chart)]
    parts: list[Part] = [*tables, *charts] if results.title else [*charts, *tables]
    title = results.title or f"{study.summary[0].upper()}{study.summary[1:]}"
    return Page(title, f"Study {name}.", [*parts, *other_parts], facts, results.findings)
