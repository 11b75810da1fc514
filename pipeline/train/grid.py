"""The grid of the study ``multi_format``: its recipe, trainings, systems, and what evaluates them.

Each training is a task of ``mdcr train``, so it is shared and resumed as such.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import digest, file_name, from_mapping
from pipeline.core.errors import InputError, require_known
from pipeline.core.manifest import Counts
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import MODELS
from pipeline.encode import names, registry
from pipeline.encode.spec import EncoderSpec
from pipeline.studies.common import require_made
from pipeline.studies.mdcr import evaluation as mdcr
from pipeline.studies.recipe import RECIPES, read_recipe
from pipeline.studies.scirepeval import study as scirepeval
from pipeline.studies.scirepeval.tasks import FORMATS
from pipeline.train.recipe import CODES, Name, systems
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


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        input: folder of SciRepEval's files, with training sets or samples.
        systems: the base encoders, with labels.
        layers: number of first layers of a base that are kept; 0: all.
        published: by label of a base, the paper's base whose figures stand beside ours.
        architectures: of :data:`LABELS`.
        ablations: formats joined by ``+`` that the first base is trained on with control codes.
        seeds: of trainings; ablations have the first.
        tasks: training tasks.
        training: settings of ``mdcr train`` of all trainings.
        changes: by architecture, settings that differ.
        evaluated: tasks of the evaluation; empty: all of the folder.
        edition: 24 or 25 tasks.
        resamples: of the bootstrap.
        benchmark: folder of an MDCR benchmark; empty: none.
        texts_per_second: assumed speed of training on one GPU, for the dry run; not measured.
    """

    input: str
    systems: str
    layers: int
    published: Mapping[str, str]
    architectures: tuple[str, ...]
    ablations: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    training: Mapping[str, Any]
    changes: Mapping[str, Mapping[str, Any]]
    evaluated: tuple[str, ...]
    edition: int
    resamples: int
    benchmark: str
    texts_per_second: float

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
        return {name.title: str(replace(name, label="")) for name in names.parse(self.systems)}

    def grid(self) -> list[Run]:
        """Return the trainings; those that others build on come first."""
        trained = [name for name in self.architectures if name and "+" not in name]
        runs = [Run(*row) for row in itertools.product(self.bases, trained, [ALL], self.seeds)]
        runs += [Run(next(iter(self.bases)), ABLATED, formats, self.seeds[0]) for formats in self.ablations]
        return sorted(runs, key=lambda run: run.architecture == "fusion")

    def tasks_of(self, run: Run) -> list[str]:
        """Return the training tasks of a run."""
        formats = FORMATS if run.formats == ALL else run.formats.split("+")
        return [task for task in self.tasks if task_of(task).format in formats]


class Run(NamedTuple):
    """A training: label of the base, architecture, formats (``all`` or joined by ``+``) and seed."""

    base: str
    architecture: str
    formats: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its model."""
        words = (self.base, self.architecture, self.formats, str(self.seed))
        return file_name("-".join(words).replace("+", "_"), kept="_")


@dataclass(frozen=True)
class LayersConfig:
    """A base and how many of its layers are kept."""

    base: EncoderSpec
    layers: int


def _layers_task(label: str, base: str, layers: int) -> Task:
    """Return the task that saves a base with its first layers alone."""
    model = registry.resolve(base)
    name = file_name(f"{label}-{layers}-layers", kept="_")

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        from sentence_transformers import SentenceTransformer

        if model.checkpoint is None:
            raise InputError(f"{base} has no layers", "Give a transformer")
        network = SentenceTransformer(str(model.checkpoint.ready()), device="cpu")
        transformer = network[0].model
        transformer.encoder.layer = transformer.encoder.layer[:layers]
        transformer.config.num_hidden_layers = layers
        with out.folder(name) as (folder, _):
            network.save_pretrained(str(folder))
        return {"layers": layers}

    return Task("layers", 1, MODELS, name, LayersConfig(model.spec, layers), {}, run)


def _bases(workspace: Workspace, recipe: Recipe) -> dict[str, str]:
    """Return the encoder of each base; InputError if one with fewer layers is not made."""
    if not recipe.layers:
        return recipe.bases
    tasks = {label: _layers_task(label, base, recipe.layers) for label, base in recipe.bases.items()}
    return {label: str(model_folder(require_made(workspace, task)).resolve()) for label, task in tasks.items()}


def _task(workspace: Workspace, recipe: Recipe, run: Run, base: str) -> Task:
    """Return the task of a training."""
    settings = {**recipe.training, **recipe.changes.get(run.architecture, {}), "seed": run.seed}
    settings |= {"name": run.name, "base": base, "architecture": run.architecture, "input": recipe.input}
    settings |= {"tasks": recipe.tasks_of(run), "corpus": "", "triplets": "", "draw": {}, "validation": {}}
    return train_task(workspace, from_mapping(Training, settings), dry=True)


def trainings(workspace: Workspace, recipe: Recipe) -> Iterator[dict[Run, Task]]:
    """Yield the trainings by run: first all but fusions, which then build on the adapters that must be made."""
    bases, made = _bases(workspace, recipe), dict[Run, Task]()
    for is_fusion, runs in itertools.groupby(recipe.grid(), lambda run: run.architecture == "fusion"):
        tasks = {}
        for run in runs:
            base = bases[run.base]
            if is_fusion:
                adapters = made[run._replace(architecture="adapters")]
                base = str(model_folder(require_made(workspace, adapters)).resolve())
            tasks[run] = _task(workspace, recipe, run, base)
        made |= tasks
        yield tasks


def made_trainings(workspace: Workspace, recipe: Recipe) -> dict[Run, Artifact]:
    """Return every training; InputError if one is missing."""
    tasks = {run: task for batch in trainings(workspace, recipe) for run, task in batch.items()}
    return {run: require_made(workspace, task) for run, task in tasks.items()}


def all_systems(workspace: Workspace, recipe: Recipe, made: Mapping[Run, Artifact]) -> dict[Run, dict[str, str]]:
    """Return the encoder of each format, and of ad-hoc queries, of bases, trainings and their means."""
    encoders: dict[Run, dict[str, str]] = {
        run: {**systems(cast("Name", run.architecture), model_folder(each).resolve())} for run, each in made.items()
    }
    bases: dict[Run, dict[str, str]] = {
        Run(label, "", ALL, 0): dict.fromkeys(CODES, base) for label, base in _bases(workspace, recipe).items()
    }
    means = dict[Run, dict[str, str]]()
    if "adapters+ctrl" in recipe.architectures:
        for label, seed in itertools.product(recipe.bases, recipe.seeds):
            pair = [encoders[Run(label, name, ALL, seed)] for name in ("adapters", "ctrl")]
            means[Run(label, "adapters+ctrl", ALL, seed)] = {
                form: f"mean({','.join(each[form] for each in pair)})" for form in CODES
            }
    rows = [*bases.items(), *encoders.items(), *means.items()]
    return {run: {**dict(row), "search": row["proximity"]} for run, row in rows}


def evaluation(workspace: Workspace, recipe: Recipe, rows: Mapping[Run, Mapping[str, str]]) -> scirepeval.Recipe:
    """Return the recipe that evaluates all systems; their encoders are written to a file of formats."""
    text = "".join(
        f"[{run.name}]\n" + "".join(f"{form} = {json.dumps(name)}\n" for form, name in row.items())
        for run, row in rows.items()
    )
    path = workspace.root / "runs" / f"multi_format-{digest({'formats': text})[:12]}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, text)
    changes: dict[str, Any] = {
        "input": recipe.input,
        "systems": ",".join(run.name for run in rows),
        "tasks": list(recipe.evaluated),
    }
    changes |= {"formats": str(path), "edition": recipe.edition, "resamples": recipe.resamples}
    evaluated: scirepeval.Recipe = read_recipe(RECIPES / "scirepeval.toml", scirepeval.Recipe, changes)
    return evaluated


def benchmark(recipe: Recipe, rows: Mapping[Run, Mapping[str, str]]) -> Any:
    """Return the recipe that ranks the MDCR benchmark by each system's vectors of proximity."""
    labelled = ",".join(f"{run.name}={row['proximity']}" for run, row in rows.items() if run.formats == ALL)
    changes = {"input": recipe.benchmark, "systems": f"bm25,{labelled}"}
    return read_recipe(RECIPES / "mdcr_eval.toml", mdcr.Recipe, changes)


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the bases, the trainings, and what evaluates them."""
    hours = [row["gpu_hours"] for row in listing(recipe)]
    rate = f"at {recipe.texts_per_second:g} texts a second (assumed)"
    say(f"{len(hours)} trainings, {sum(hours):,.1f} GPU hours {rate} where the training sets are whole")
    if recipe.layers:
        yield [_layers_task(label, base, recipe.layers) for label, base in recipe.bases.items()]
    for tasks in trainings(workspace, recipe):
        yield [*tasks.values()]
    rows = all_systems(workspace, recipe, made_trainings(workspace, recipe))
    yield from scirepeval.batches(workspace, evaluation(workspace, recipe, rows))
    if recipe.benchmark:
        yield from mdcr.batches(workspace, benchmark(recipe, rows))


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the grid, with the GPU hours of each training: texts over the assumed speed.

    An epoch has as many examples of each task as the limit, of which a triplet is three texts.
    """
    rows = []
    for run in recipe.grid():
        settings, tasks = {**recipe.training, **recipe.changes.get(run.architecture, {})}, recipe.tasks_of(run)
        texts = [3 if task_of(task).format in ("proximity", "search") else 1 for task in tasks]
        seconds = sum(texts) * settings["examples"] * settings["epochs"] / recipe.texts_per_second
        facts = {"training": run.name, "tasks": ", ".join(tasks), "epochs": settings["epochs"]}
        rows.append({**facts, "gpu_hours": round(seconds / 3600, 2)})
    return rows
