"""The study ``multi_format``: train encoders of every architecture on a grid, and evaluate them (Singh et al. 2023).

Tables 2, 4, 5, 8, 10 and 11 of the paper, and 2, 3, 5 and 9 of its earlier version, with the published figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.data import DATA
from pipeline.scores.tables import Cell, Column, Form, Table, Value, grid
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.mdcr import scores as mdcr
from pipeline.studies.scirepeval import study as scirepeval
from pipeline.train.grid import (
    ABLATED,
    ALL,
    LABELS,
    Recipe,
    all_systems,
    batches,
    benchmark,
    evaluation,
    listing,
    made_trainings,
)

_RATIO = Form(1, ".2f")
_COUNT = Form(1, ",.0f")


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the papers' tables over trainings, with published figures, then those of the evaluation."""
    made = made_trainings(workspace, recipe)
    rows = all_systems(workspace, recipe, made)
    recipe_of = evaluation(workspace, recipe, rows)
    evaluated = scirepeval.results(workspace, recipe_of)
    frames = {table.name: table.frame for table in evaluated.tables}
    runs = pl.DataFrame(
        [(run.name, *run) for run in rows], ["system", "base", "architecture", "formats", "seed"], orient="row"
    )
    averages = runs.join(frames["averages"].select("system", "group", "value"), on="system", maintain_order="left")
    of_formats = frames["formats"].select("system", column=pl.format("{}-{}", "group", "format"), value="value")
    seconds = pl.DataFrame(
        [(run.name, _seconds_a_step(each)) for run, each in made.items()], ["system", "training"], orient="row"
    )
    costs = runs.join(_inference(frames["efficiency"]), on="system").join(seconds, on="system", how="left")
    tables = [_averages(averages, recipe), *_ablations(averages, of_formats, recipe), _costs(costs)]
    if recipe.benchmark:
        ranked = mdcr.STUDY.results(workspace, benchmark(recipe, rows))
        fields = next(table for table in ranked.tables if table.name == "fields")
        tables += [_mdcr(runs, fields.frame, recipe), fields]
    kept = [replace(table, name=f"scirepeval-{table.name}") for table in evaluated.tables]
    copies = {"formats.toml": Path(recipe_of.formats)}
    return StudyResult(
        [*tables, *kept],
        evaluated.figures,
        evaluated.sources,
        parts=evaluated.parts,
        copies=copies,
        best=evaluated.best,
    )


def _seconds_a_step(training: Artifact) -> float:
    return float(training.manifest.provenance["wall_seconds"]) / int(training.manifest.counts["steps"])


def _inference(efficiency: pl.DataFrame) -> pl.DataFrame:
    """Return the mean seconds a paper and the parameters of a format, by system."""
    return efficiency.group_by("system", maintain_order=True).agg(
        inference=(1 / pl.col("papers_per_second")).mean(), parameters=pl.col("own_parameters").mean()
    )


def _published(recipe: Recipe, file: str = "averages") -> dict[tuple[str, str], dict[str, Any]]:
    """Return the published figures of the edition by (base of the paper, architecture or formats)."""
    frame = pl.read_csv(DATA / "reference" / "trainings" / f"{file}.csv")
    found = frame.filter(edition=recipe.edition).rows(named=True)
    return {(row["base"], row.get("architecture", row.get("formats")) or ""): row for row in found}


def _over_seeds(values: Sequence[float | None], published: float | None) -> Cell | None:
    """Return the mean over trainings with its deviation; fractions stand beside published percent."""
    figures = [value for value in values if value is not None]
    if not figures:
        return None
    deviation = statistics.stdev(figures) if len(figures) > 1 else None
    beside = None if published is None else published / 100
    return Cell(statistics.mean(figures), deviation=deviation, published=beside)


def _row(base: str, architecture: str) -> str:
    return f"{base}, {LABELS[architecture]}"


def _averages(averages: pl.DataFrame, recipe: Recipe) -> Table:
    """Return the averages of each base and architecture (tables 2 and 8; 2 and 3 of the earlier version)."""
    published, cells = _published(recipe), dict[tuple[str, str], Value]()
    keys = ["base", "architecture", "group"]
    chosen = averages.filter(formats=ALL)
    for (base, architecture, group), rows in chosen.group_by(keys, maintain_order=True):
        printed = published.get((recipe.published.get(str(base), str(base)), str(architecture)), {}).get(str(group))
        cells[_row(str(base), str(architecture)), str(group)] = _over_seeds(rows["value"].to_list(), printed)
    notes = [
        f"Means and deviations over {len(recipe.seeds)} trainings; in parentheses the difference to the published mean "
        "of 5 trainings. Figures of samples, or of other bases than the paper's, are not comparable with them.",
    ]
    return grid("averages", "Multi-format training: averages", "model", cells, notes, averages)


def _ablations(averages: pl.DataFrame, of_formats: pl.DataFrame, recipe: Recipe) -> Iterator[Table]:
    """Yield the figures by trained and evaluated formats (table 11; table 9); nothing without ablations."""
    if not recipe.ablations:
        return
    base, published = next(iter(recipe.bases)), _published(recipe, "ablations")
    chosen = averages.filter(base=base, architecture=ABLATED, seed=recipe.seeds[0])
    totals = chosen.select("system", column="group", value="value")
    frame = pl.concat([of_formats, totals]).join(chosen.select("system", "formats").unique(), on="system")
    cells = dict[tuple[str, Column], Value]()
    for formats in (*recipe.ablations, ALL):
        printed = published.get((recipe.published.get(base, base), formats), {})
        for row in frame.filter(formats=formats).iter_rows(named=True):
            group = next(
                name for name in ("in-train", "out-of-train", "scidocs", "average") if row["column"].startswith(name)
            )
            column = Column(group, row["column"].removeprefix(group).removeprefix("-") or "all")
            cells[formats, column] = _over_seeds([row["value"]], printed.get(row["column"]))
    notes = [f"{base} with control codes, trained on the formats of the row; one training each."]
    yield grid("ablations", "Multi-format training: trained and evaluated formats", "trained on", cells, notes, frame)


def _costs(costs: pl.DataFrame) -> Table:
    """Return parameters of a format, and relative times of training and inference (table 4; table 5)."""
    published = {row["architecture"]: row for row in _read("costs").rows(named=True)}
    means = costs.filter(pl.col("architecture") != "", formats=ALL).group_by("architecture", maintain_order=True)
    frame = means.agg(pl.col("parameters", "training", "inference").mean())
    reference = frame.filter(architecture="ctrl").select("training", "inference")
    cells = dict[tuple[str, Column], Value]()
    for row in frame.iter_rows(named=True):
        label, printed = LABELS[row["architecture"]], published.get(row["architecture"], {})
        for name, unit in (
            ("parameters", 1.0),
            *zip(("training", "inference"), (reference.rows() or [(None, None)])[0], strict=True),
        ):
            ratio = row[name] is not None and unit
            cells[label, Column(name, "here")] = (
                Cell(row[name] / unit, form=_COUNT if name == "parameters" else _RATIO) if ratio else None
            )
            value = printed.get(name)
            cells[label, Column(name, "published")] = (
                None if value is None else (f"{value:,.0f}" if name == "parameters" else f"{value:.2f}")
            )
    notes = [
        "Parameters of one format alone. Times relative to MTL CTRL: seconds a step of training and a paper of "
        "inference, whatever else ran on the machine.",
    ]
    return grid("costs", "Multi-format training: costs", "model", cells, notes, frame)


def _mdcr(runs: pl.DataFrame, fields: pl.DataFrame, recipe: Recipe) -> Table:
    """Return means over fields of the MDCR benchmark (table 5)."""
    published, cells = _published(recipe), dict[tuple[str, str], Value]()
    means = fields.filter(pl.col("field") == "AVG").join(
        runs.rename({"system": "name"}), left_on="system", right_on="name"
    )
    for (base, architecture, measure), rows in means.group_by(["base", "architecture", "measure"], maintain_order=True):
        printed = published.get((recipe.published.get(str(base), str(base)), str(architecture)), {}).get(str(measure))
        cells[_row(str(base), str(architecture)), str(measure)] = _over_seeds(rows["value"].to_list(), printed)
    return grid("mdcr", "Multi-format training: MDCR, means over fields", "model", cells, (), means)


def _read(name: str) -> pl.DataFrame:
    return pl.read_csv(DATA / "reference" / "trainings" / f"{name}.csv")


STUDY = Study(
    "multi_format",
    "encoders of every architecture, trained and evaluated on SciRepEval",
    Recipe,
    batches,
    results,
    listing,
    needs="Fetch the files, mdcr fetch scirepeval --train, and give their folder with --input",
)
