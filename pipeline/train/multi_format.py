"""The study ``multi_format``: train encoders of every architecture on a grid, and evaluate them (Singh et al. 2023).

Tables 2 to 5, 8, 10 and 11 of the paper, and 2 to 5, 7 and 9 of its earlier version, with the published figures. Each
training is a task of ``mdcr train``, so it is shared and resumed as such.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import InputError, require_known, required
from pipeline.studies.mdcr.scores import mdcr_eval
from pipeline.studies.scirepeval.study import scirepeval
from pipeline.studies.scirepeval.tasks import FORMATS
from pipeline.train.recipe import Name, formats_entry, systems
from pipeline.train.recipe import Recipe as Training
from pipeline.train.stage import model_folder, train_task
from pipeline.train.tasks import task_of

LABELS = {
    "": "base",
    "cls": "MTL CLS",
    "ctrl": "MTL CTRL",
    "adapters": "Adapters",
    "pals": "PALs",
    "fusion": "Fusion",
    "adapters+ctrl": "Adapters + MTL CTRL",
}
"""Architectures as the paper calls them; empty: the base untrained, ``adapters+ctrl``: the mean of two."""
ALL, ABLATED = "all", "ctrl"

_REFERENCE = kit.DATA / "reference/trainings"
_COSTS = {"parameters": ",.0f", "training": ".2f", "inference": ".2f"}


@dataclass(frozen=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder of SciRepEval's files, with training sets or samples")
    systems: str = required("the base encoders, with labels")
    published: Mapping[str, str] = required("by label of a base, the paper's base that ours is compared with")
    architectures: tuple[str, ...] = required(", ".join(filter(None, LABELS)))
    ablations: tuple[str, ...] = required("formats joined by + that the first base is trained on with control codes")
    seeds: tuple[int, ...] = required("of trainings; ablations have the first")
    tasks: tuple[str, ...] = required("training tasks")
    training: Mapping[str, Any] = required("settings of mdcr train of all trainings")
    changes: Mapping[str, Mapping[str, Any]] = required("by architecture, settings that differ")
    evaluated: tuple[str, ...] = required("tasks of the evaluation; empty: all of the folder")
    edition: int = required("24 or 25 tasks")
    resamples: int = required("of the bootstrap")
    benchmark: str = required("folder of an MDCR benchmark; empty: none")
    texts_per_second: float = required("assumed speed of training on one GPU, for the dry run; not measured")

    def __post_init__(self) -> None:
        for name in self.architectures:
            require_known(name, LABELS, f"architectures must be of {', '.join(filter(None, LABELS))}, got {name!r}")
        for form in (form for ablation in self.ablations for form in ablation.split("+")):
            require_known(form, FORMATS, f"ablations must be of formats, got {form!r}")
        for name, built_on in (("fusion", {"adapters"}), ("adapters+ctrl", {"adapters", "ctrl"})):
            if name in self.architectures and not built_on <= {*self.architectures}:
                needed = " and ".join(sorted(built_on))
                raise InputError(f"{name} must have {needed} among the architectures", "Add them")
        if not self.seeds:
            raise InputError("seeds must not be empty", "Write seeds = [13]")
        for run in self.grid():
            if not self.tasks_of(run):
                raise InputError(f"tasks must have one of {run.formats}, got none", "Change tasks or ablations")

    @property
    def bases(self) -> dict[str, str]:
        """The bases by label."""
        return {name.title: str(replace(name, label="")) for name in kit.parse(self.systems)}

    def grid(self) -> list[Run]:
        """Return the trainings; fusions, which build on adapters, come last."""
        trained = [name for name in self.architectures if name and "+" not in name]
        runs = [Run(*row) for row in itertools.product(self.bases, trained, [ALL], self.seeds)]
        runs += [Run(next(iter(self.bases)), ABLATED, formats, self.seeds[0]) for formats in self.ablations]
        return sorted(runs, key=_is_fusion)

    def tasks_of(self, run: Run) -> list[str]:
        """Return the training tasks of a run."""
        formats = FORMATS if run.formats == ALL else run.formats.split("+")
        return [task for task in self.tasks if task_of(task).format in formats]

    def settings_of(self, run: Run) -> dict[str, Any]:
        """Return the settings of ``mdcr train`` of a run."""
        return {**self.training, **self.changes.get(run.architecture, {})}


class Run(NamedTuple):
    """A training: label of the base, architecture, formats (``all`` or joined by ``+``) and seed."""

    base: str
    architecture: str
    formats: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its model, or label of a base that is not trained."""
        words = (self.architecture, self.formats, str(self.seed))
        name = "-".join([self.base, *words]) if self.architecture else self.base
        return kit.file_name(name.replace("+", "_"), kept="_")


Rows = Mapping[Run, Mapping[str, str]]
"""The encoder of each format, and of ad-hoc queries, of each system."""


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the grid, with the GPU hours of each training: texts over the assumed speed.

    An epoch has as many examples of each task as the limit, of which a triplet is three texts.
    """
    rows = []
    for run in recipe.grid():
        settings, tasks = recipe.settings_of(run), recipe.tasks_of(run)
        texts = sum(3 if task_of(task).format in ("proximity", "search") else 1 for task in tasks)
        seconds = texts * settings["examples"] * settings["epochs"] / recipe.texts_per_second
        facts = {"training": run.name, "tasks": ", ".join(tasks), "epochs": settings["epochs"]}
        rows.append({**facts, "gpu_hours": round(seconds / 3600, 2)})
    return rows


def _is_fusion(run: Run) -> bool:
    return run.architecture == "fusion"


NEEDS = "Fetch the files, hf download allenai/scirepeval, and give their folder with --input"
_SUMMARY = "encoders of every architecture, trained and evaluated on SciRepEval"


@kit.study("multi_format", _SUMMARY, Recipe, needs=NEEDS, listing=listing)
def multi_format(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the papers' tables over trainings, with published figures, then those of the evaluation."""
    hours, made = [row["gpu_hours"] for row in listing(recipe)], dict[Run, kit.Artifact]()
    rate = f"at {recipe.texts_per_second:g} texts per second (assumed)"
    kit.say(f"{len(hours)} trainings, {sum(hours):,.1f} GPU hours {rate} where the training sets are whole")
    for _, group in itertools.groupby(recipe.grid(), _is_fusion):
        runs = list(group)
        trained = yield [_task(workspace, recipe, run, made) for run in runs]
        made |= dict(zip(runs, trained, strict=True))
    rows = _systems(recipe, made)
    evaluated = yield from scirepeval.steps(workspace, _evaluation(recipe, rows))
    frames = {table.name: table.frame for table in evaluated.tables}
    runs = pl.DataFrame([(run.name, *run) for run in rows], ["system", *Run._fields], orient="row")
    whole = runs.filter(formats=ALL)
    averages = frames["averages"].select("system", figure="group", value="value")
    tables = [_models("averages", "averages", recipe, whole, averages)]
    if recipe.ablations:
        formats = frames["formats"].select("system", figure=pl.format("{}-{}", "group", "format"), value="value")
        chosen = runs.filter(base=next(iter(recipe.bases)), architecture=ABLATED, seed=recipe.seeds[0])
        tables.append(_ablations(recipe, chosen, pl.concat([formats, averages])))
    tables.append(_costs(whole, _seconds(made, frames["efficiency"])))
    if recipe.benchmark:
        ranked = yield from mdcr_eval.steps(workspace, _benchmark(recipe, rows))
        fields = next(table for table in ranked.tables if table.name == "fields")
        means = fields.frame.filter(field=kit.AVERAGE).select("system", figure="measure", value="value")
        tables += [_models("mdcr", "MDCR, means over fields", recipe, whole, means), fields]
    tables += [replace(table, name=f"scirepeval-{table.name}") for table in evaluated.tables]
    entries = "".join(formats_entry(run.name, row) for run, row in rows.items())
    return replace(evaluated, tables=tables, files={"formats.toml": entries})


def _task(workspace: kit.Workspace, recipe: Recipe, run: Run, made: Mapping[Run, kit.Artifact]) -> kit.Task:
    """Return the task of a training; a fusion is of adapters that are ``made``."""
    base = recipe.bases[run.base]
    if _is_fusion(run):
        base = str(model_folder(made[run._replace(architecture="adapters")]).resolve())
    chosen = {"name": run.name, "base": base, "architecture": run.architecture, "seed": run.seed}
    data = {"input": recipe.input, "tasks": recipe.tasks_of(run)}
    none = {"corpus": "", "triplets": "", "draw": {}, "validation": {}}
    settings = {**recipe.settings_of(run), **chosen, **data, **none}
    return train_task(workspace, kit.from_mapping(Training, settings), dry=True)


def _systems(recipe: Recipe, made: Mapping[Run, kit.Artifact]) -> Rows:
    """Return bases, trainings and the means of adapters and control codes."""
    rows = {Run(label, "", ALL, 0): dict.fromkeys((*FORMATS, "query"), base) for label, base in recipe.bases.items()}
    rows |= {run: systems(cast("Name", run.architecture), model_folder(each).resolve()) for run, each in made.items()}
    if "adapters+ctrl" in recipe.architectures:
        for label, seed in itertools.product(recipe.bases, recipe.seeds):
            adapters, codes = (rows[Run(label, name, ALL, seed)] for name in ("adapters", "ctrl"))
            rows[Run(label, "adapters+ctrl", ALL, seed)] = {
                form: f"mean({encoder},{codes[form]})" for form, encoder in adapters.items()
            }
    return rows


def _evaluation(recipe: Recipe, rows: Rows) -> Any:
    """Return the recipe that evaluates all systems, and each code of the first base on the tasks of all formats."""
    formats = {run.name: dict(row) for run, row in rows.items()}
    codes = Run(next(iter(recipe.bases)), ABLATED, ALL, recipe.seeds[0])
    if codes in rows:
        formats[codes.name]["published"] = f"{recipe.published.get(codes.base, codes.base).removesuffix('_base')}_ctrl"
    changes: dict[str, Any] = {"input": recipe.input, "systems": ",".join(formats), "formats": formats}
    changes |= {"tasks": recipe.evaluated, "confusion": codes.name if codes in rows else ""}
    changes |= {"edition": recipe.edition, "resamples": recipe.resamples}
    return kit.read_recipe(scirepeval.default_recipe, scirepeval.recipe, changes)


def _benchmark(recipe: Recipe, rows: Rows) -> Any:
    """Return the recipe that ranks the MDCR benchmark by each system's vectors of proximity."""
    labelled = ",".join(f"{run.name}={row['proximity']}" for run, row in rows.items() if run.formats == ALL)
    changes = {"input": recipe.benchmark, "systems": f"bm25,{labelled}"}
    return kit.read_recipe(mdcr_eval.default_recipe, mdcr_eval.recipe, changes)


def _seconds(made: Mapping[Run, kit.Artifact], efficiency: pl.DataFrame) -> pl.DataFrame:
    """Return seconds of a training step and of a paper, and the parameters of a format, by system."""
    steps = [
        (run.name, each.manifest.provenance["wall_seconds"] / each.manifest.counts["steps"])
        for run, each in made.items()
    ]
    embedded = efficiency.group_by("system").agg(
        parameters=pl.col("own_parameters").mean(), inference=(1 / pl.col("papers_per_second")).mean()
    )
    return embedded.join(pl.DataFrame(steps, ["system", "training"], orient="row"), on="system", how="left")


def _beside(recipe: Recipe, runs: pl.DataFrame, figures: pl.DataFrame, file: str, key: str) -> pl.DataFrame:
    """Return the figures of runs with the column ``published``, by the paper's base, ``key`` and figure; fractions."""
    joined = runs.join(figures, on="system", maintain_order="left")
    printed = pl.read_csv(_REFERENCE / f"{file}.csv").filter(edition=recipe.edition).drop("edition")
    printed = printed.with_columns(pl.col("base", key).fill_null("")).unpivot(
        index=["base", key], variable_name="figure", value_name="published"
    )
    percent = printed.select(pl.col("base").alias("paper"), key, "figure", pl.col("published") / 100)
    joined = joined.with_columns(paper=pl.col("base").replace(dict(recipe.published)))
    return joined.join(percent, on=["paper", key, "figure"], how="left", maintain_order="left")


def _over_trainings(name: str, title: str, corner: str, figures: pl.DataFrame, notes: Sequence[str]) -> kit.Table:
    """Return means and deviations over trainings beside the published figures; ``corner`` has the labels of rows."""
    means = figures.group_by(corner, "figure", "published", maintain_order=True).agg(
        pl.col("value").mean(), deviation=pl.col("value").std()
    )
    of_format = f"^(.*)-({'|'.join(FORMATS)})$"
    group, form = (pl.col("figure").str.extract(of_format, part) for part in (1, 2))
    rows = means.with_columns(group=group.fill_null(""), form=form.fill_null(pl.col("figure")))
    layout, show = {"rows": rows, "across": "{form}", "group": "{group}"}, kit.figure(low=None, high=None)
    return kit.table(name, f"Multi-format training: {title}", figures, f"{{{corner}}}", show, notes, **layout)


def _models(name: str, title: str, recipe: Recipe, runs: pl.DataFrame, figures: pl.DataFrame) -> kit.Table:
    """Return figures of each base and architecture (tables 2, 5 and 8; 2 and 3 of the earlier version)."""
    frame = _beside(recipe, runs, figures, "averages", "architecture")
    labels = pl.format("{}, {}", "base", pl.col("architecture").replace(LABELS))
    notes = [
        f"Means and deviations over {kit.counted(len(recipe.seeds), 'training')}; in parentheses the difference to the "
        "published mean of 5 trainings. Figures of samples, or of other bases than the paper's, are not comparable "
        "with them.",
    ]
    return _over_trainings(name, title, "model", frame.with_columns(model=labels), notes)


def _ablations(recipe: Recipe, runs: pl.DataFrame, figures: pl.DataFrame) -> kit.Table:
    """Return the figures by trained and evaluated formats (table 11; table 9)."""
    frame = _beside(recipe, runs, figures, "ablations", "formats")
    notes = [f"{runs['base'][0]} with control codes, trained on the formats of the row; one training each."]
    return _over_trainings("ablations", "trained and evaluated formats", "formats", frame, notes)


def _costs(runs: pl.DataFrame, costs: pl.DataFrame) -> kit.Table:
    """Return parameters of a format, and relative times of training and inference (table 4; table 5)."""
    means = (
        runs.join(costs, on="system", maintain_order="left")
        .filter(pl.col("architecture") != "")
        .group_by("architecture", maintain_order=True)
    )
    times = pl.col("training", "inference")
    relative = times / times.filter(pl.col("architecture") == "ctrl").first()
    frame = means.agg(pl.col(list(_COSTS)).mean()).with_columns(relative)
    frame = frame.join(pl.read_csv(_REFERENCE / "costs.csv"), "architecture", "left", suffix="_published")
    shown = {
        f"{name}, {source}": f"{{{name}{suffix}:{spec}}}"
        for name, spec in _COSTS.items()
        for source, suffix in {"here": "", "published": "_published"}.items()
    }
    notes = [
        "Parameters of one format alone. Times relative to MTL CTRL: seconds a step of training and a paper of "
        "inference, whatever else ran on the machine.",
    ]
    rows = frame.with_columns(model=pl.col("architecture").replace(LABELS))
    return kit.table("costs", "Multi-format training: costs", frame, "{model}", shown, notes, rows=rows)
