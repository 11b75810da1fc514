"""Running a study: plan its tasks with time and disk, make them, write its tables and figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.api import Workspace
from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical, file_name
from pipeline.core.errors import CorruptError, InputError, spelled
from pipeline.core.progress import say
from pipeline.core.runner import Step
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS, REPORTS, find_corpus_folder, name_study_corpus
from pipeline.exchange.frames import as_csv
from pipeline.scores.page.parts import Chart, Image, Page, Part, TablePart
from pipeline.scores.page.write import write_index, write_page
from pipeline.scores.plot import FORMATS, drawing, save
from pipeline.scores.render import render_table
from pipeline.studies.base import Study, StudyResult


def run(workspace: Workspace, study: Study, recipe: Any) -> StudyResult:
    """Make what is missing of a study, and return what it found.

    A study that was stopped goes on where it was; what it shares with other work is the same artifact.
    """
    for batch in study.batches(workspace, recipe):
        tasks = list(batch)
        for task, artifact in zip(tasks, workspace.make(tasks), strict=True):
            if task.folder == CORPORA:
                name_study_corpus(workspace.root, study.name, artifact)
    return study.results(workspace, recipe)


def check_input(workspace: Workspace, study: Study, recipe: Any) -> None:
    """Check that the corpus, or else the input folder, of a recipe is there, before a model is looked for."""
    given, names = getattr(recipe, "input", None), getattr(recipe, "corpus", None)
    try:
        if given and not Path(given).expanduser().is_dir():
            raise InputError(f"the input folder {given} does not exist", "Give the folder with --input")
        if given == "" and not names:
            raise InputError("the recipe must name an input folder, got none", "Give the folder with --input")
        for name in () if given or names is None else names.split(","):
            find_corpus_folder(workspace.root, name.strip() or None)
    except CorruptError:
        raise
    except InputError as error:
        raise InputError(error.what, study.needs or error.remedy) from error


def plan(workspace: Workspace, study: Study, recipe: Any) -> tuple[list[Step], str]:
    """Return what :func:`run` would make; and why the plan ends early, or an empty text. Nothing is written."""
    steps: dict[str, Step] = {}
    try:
        for batch in study.batches(workspace, recipe):
            steps |= {step.task.id: step for step in workspace.runner.plan(list(batch))}
    except InputError as error:
        if all(step.present for step in steps.values()):
            raise
        return list(steps.values()), f"the rest is planned once these are made: {spelled(error.what)}"
    return list(steps.values()), ""


def write(
    workspace: Workspace, study: Study, name: str, recipe: Any, results: StudyResult, output: Path | None
) -> Path:
    """Write a study's page, tables (Markdown, CSV, LaTeX), figures, recipe and provenance, and return the folder.

    ``name`` is the recipe's. Without ``output`` the folder is ``runs/reports/STUDY`` or ``runs/reports/STUDY-RECIPE``.
    """
    report = study.name if name == study.name else f"{study.name}-{file_name(name, kept='._-') or 'recipe'}"
    folder = output or workspace.root / REPORTS / report
    source = ", ".join(results.sources)
    record = {"study": study.name, "recipe": canonical(recipe), "sources": list(results.sources)}
    record["provenance"] = provenance.describe()
    parts = [
        TablePart(item.name, item.table, as_csv(item.frame), source, item.choosers, item.records)
        for item in results.tables
    ]
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        for part in parts:
            files.write_text(folder / f"{part.name}.csv", part.csv)
            for suffix, kind in (("md", "markdown"), ("tex", "latex")):
                files.write_text(folder / f"{part.name}.{suffix}", render_table(part.table, kind))
        for file, text in results.files.items():
            files.write_text(folder / file, text)
        for file, path in results.copies.items():
            with files.replacing(folder / file) as temporary:
                shutil.copyfile(path, temporary)
        images = _draw(results, folder, source, f"study {study.name}; {source}")
        files.write_text(folder / "study.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        write_page(_page(study, report, record, results, [*images, *parts]), folder)
        if output is None:
            write_index(folder.parent)
    return folder


def _draw(results: StudyResult, folder: Path, source: str, description: str) -> list[Image]:
    """Write the figures, and return those that no chart of the page shows."""
    images = []
    try:
        for item in results.figures:
            with drawing() as figure_class:
                save(item.draw(figure_class), folder / item.name, FORMATS, description)
            if not item.charted:
                svg = (folder / f"{item.name}.svg").read_text(encoding="utf-8")
                images.append(Image(item.name, svg, source))
    except InputError as error:  # matplotlib is not installed
        say(f"no figures: {error}")
    return images


def _page(study: Study, name: str, record: Mapping[str, Any], results: StudyResult, shown: Sequence[Part]) -> Page:
    """Return the page of a study: its charts and ``shown`` (figures that were drawn, tables), then its other parts."""
    facts = {key: value if isinstance(value, str) else json.dumps(value, indent=1) for key, value in record.items()}
    charts = [part for part in results.parts if isinstance(part, Chart)]
    others = [part for part in results.parts if not isinstance(part, Chart)]
    parts = [*shown, *charts] if results.tables_first else [*charts, *shown]
    recipe, systems = record["recipe"], record["recipe"].get("systems") or ""
    listing = {
        "corpus": recipe.get("corpus") or ", ".join(results.sources[:1]).rpartition("-")[0],
        "year": str(recipe.get("year") or ""),
        "systems": systems if isinstance(systems, str) else ", ".join(systems),
        "best row": results.best,
    }
    about = f"{study.summary[0].upper()}{study.summary[1:]}."
    return Page(f"Study: {name}", about, [*parts, *others], facts, listing)


_RATES = {
    "pool": (2e-6, 4.0),
    "terms": (1e-4, 560.0),
    "tune": (1e-3, 1.0),
    "index": (3e-4, 1_500.0),
    "fit": (1e-3, 1_000.0),
    "embed": (0.25, 3_076.0),
    "search": (1e-4, 50.0),
    "score": (5e-6, 10.0),
}
"""Assumed seconds and bytes of a candidate on one core, not measured; of ``embed``: a BERT-base, float32 vectors."""
_OTHER = (1e-4, 100.0)


class Estimate(NamedTuple):
    """What the missing artifacts of one stage take, ``measured`` in this workspace or ``assumed``."""

    stage: str
    missing: int
    seconds: float
    bytes: float
    basis: str


def estimate(workspace: Workspace, steps: Sequence[Step]) -> list[Estimate]:
    """Return an estimate for each stage with missing artifacts, in order of work.

    The rate of a stage is the median, per candidate, of the artifacts in the same folder (of one encoder's vectors, for
    ``embed``); a stage that was never run here takes fixed rates of one core.
    """
    sizes = {pool.id: int(pool.manifest.counts["candidates"]) for pool in published(workspace.root / POOLS)}
    corpus = max((len(workspace.corpus(name)) for name in workspace.corpora()), default=0)
    estimates: dict[str, Estimate] = {}
    for step in steps:
        if step.present:
            continue
        stage, papers = step.task.stage, _candidates(step.task, sizes) or corpus
        made = [artifact for artifact in published(step.path.parent) if artifact.manifest.stage == stage]
        rates = [rate for artifact in made if (rate := _rate(artifact, sizes))]
        assumed_seconds, assumed_bytes = _RATES.get(stage, _OTHER)
        assumed = [(assumed_seconds / workspace.runner.resources.workers, assumed_bytes)]
        seconds, size = papers * np.median(rates or assumed, axis=0)
        old = estimates.get(stage, Estimate(stage, 0, 0.0, 0.0, "measured"))
        basis = old.basis if rates else "assumed"
        estimates[stage] = Estimate(
            stage, old.missing + 1, old.seconds + float(seconds), old.bytes + float(size), basis
        )
    return list(estimates.values())


def _rate(artifact: Artifact, sizes: dict[str, int]) -> tuple[float, float] | None:
    """Return seconds and bytes per candidate, or None where the pool is gone."""
    manifest = artifact.manifest
    papers = sizes.get(manifest.id) or sizes.get(manifest.inputs.get("pool", ""))
    if not papers:
        return None
    return manifest.provenance["wall_seconds"] / papers, sum(output.bytes for output in manifest.outputs) / papers


def _candidates(task: Task, sizes: dict[str, int]) -> int | None:
    """Return the candidates of a task's pool, counted or as asked for; None if it has no pool, or of all papers."""
    pool: Any = task if task.stage == "pool" else task.inputs.get("pool")
    size = None if pool is None else sizes.get(pool.id)
    if size is None and isinstance(pool, Task):
        asked = canonical(pool.config)["size"]
        return asked if isinstance(asked, int) else None
    return size
