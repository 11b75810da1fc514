"""Stage ``train``: trains a network by a recipe; ``MODEL=`` takes its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from pipeline.api import Workspace, selection
from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact
from pipeline.core.config import file_name
from pipeline.core.errors import InputError
from pipeline.core.install import optional
from pipeline.core.manifest import Counts
from pipeline.core.progress import warn
from pipeline.core.resources import Resources
from pipeline.core.settings import configured, read
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import MODELS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.encode.kinds import Transformer
from pipeline.encode.known import of_model
from pipeline.encode.names import display_names
from pipeline.encode.recipes import limit_of
from pipeline.encode.shape import first_module
from pipeline.studies.scirepeval.tasks import Folder
from pipeline.train.queries import queries_task
from pipeline.train.recipe import DRAW, Draw, Recipe, Settings
from pipeline.train.tasks import task_of, training_files
from pipeline.train.triplets import triplets_task

_DEPTH = 100
_PACKAGES = ("accelerate", "datasets", "peft", "safetensors", "sentence-transformers")


@dataclass(frozen=True)
class TrainConfig:
    """Everything that affects a model beside triplets and validation pool; ``files`` has the SHA-256 of task files."""

    base: Mapping[str, Any]
    settings: Settings
    tasks: tuple[str, ...]
    files: Mapping[str, str]


def draw_task(workspace: Workspace, corpus: Artifact, recipe: str, options: Mapping[str, Any]) -> Task:
    """Return the task that draws triplets; ``options`` are settings of :class:`Draw`, None for a default.

    Raises:
        InputError: an option or its value is unknown, or does not fit the recipe.
    """
    draw, ranking = configured(Draw, read(DRAW, options)), None
    queries = queries_task(workspace.root, corpus, draw)
    if recipe == "mined" or draw.from_:
        (ranking,) = (e.ranking for e in workspace.evaluations(queries, draw.from_ or "bm25", depth=_DEPTH))
    return triplets_task(corpus, queries, recipe, draw, ranking=ranking)


def train_task(workspace: Workspace, recipe: Recipe, *, dry: bool = False) -> Task:
    """Return the task that trains by a recipe.

    Its artifact holds a folder named by the recipe; its counts hold the curves of loss and MAP. Unless ``dry``, the
    validation pool is made first, since its queries are excluded from the triplets.

    Raises:
        InputError: a package or a file is missing, or the recipe has neither triplets nor tasks.
    """
    base = registry.resolve(recipe.base)
    if not isinstance(base, Transformer):
        raise InputError(f"{base.name} cannot be trained: it is not a transformer", "Give a model such as minilm")
    limit = limit_of(first_module(base.files.folder)[1], 2**31) if base.files else 2**31
    if recipe.max_length > limit:
        raise InputError(
            f"max_length must be at most the {limit} of {base.name}, got {recipe.max_length}", f"Set it to {limit}"
        )
    if not (recipe.triplets or recipe.tasks):
        raise InputError("a recipe must have triplets or tasks, got neither", "Set triplets = 'specter'")
    name = file_name(recipe.name, kept="_")
    if name != recipe.name or not name:
        raise InputError(f"{recipe.name!r} is not a name for a model", "Use letters, digits, '-' and '_'")
    entries = [task_of(task) for task in recipe.tasks]
    folder = Folder(Path(recipe.input).expanduser()) if entries else None
    paths = {f"{entry.name}/{p.name}": p for entry in entries if folder for p in training_files(entry, folder)}
    inputs: dict[str, Task | Artifact] = {}
    derived: dict[str, Task | Artifact] = {}
    if recipe.triplets or recipe.validation:
        inputs["corpus"] = corpus = find_corpus(workspace.root, recipe.corpus or None)
        if recipe.validation:
            pools = selection(**{"split": "validation", "samples": 1, **recipe.validation}).pools(corpus)
            if len(pools) != 1:
                raise InputError(f"the validation pool must be one, got {len(pools)}", "Give one field and one size")
            inputs["pool"] = pools[0] if dry else workspace.make(pools)[0]
        if recipe.triplets:
            inputs["triplets"] = triplets = draw_task(workspace, corpus, recipe.triplets, recipe.draw)
            derived["queries"] = triplets.inputs["pool"]
    sums = {name: _checksum(path, path.stat().st_mtime_ns) for name, path in paths.items()}
    config = TrainConfig(base.identity, recipe.settings, recipe.tasks, sums)
    run = partial(_train, name, base, config, folder)
    return Task("train", 3, MODELS, name, config, inputs, run, derived=derived)


@cache
def _checksum(path: Path, _changed: int) -> str:
    """Return the SHA-256 of a training file, which every training of a grid asks for, since its last change."""
    return files.sha256(path)


def _train(
    name: str,
    base: Transformer,
    config: TrainConfig,
    folder: Folder | None,
    inputs: Inputs,
    out: Workdir,
    resources: Resources,
) -> Counts:
    for package in ("accelerate", "datasets"):
        optional(package, "training", "train")
    from pipeline.train.objectives import DEVIATION
    from pipeline.train.trainer import EPSILON

    method = {
        "optimiser": "AdamW",
        "epsilon": EPSILON,
        "weight_decay": 0.0,
        "losses_of_tasks": "sum",
        "deviation_of_heads": DEVIATION,
    }
    training = _training(name, base, config, inputs)
    out.note(base=base.name, trained_with=provenance.versions(_PACKAGES), method=method, training=training)
    with out.folder(name) as (folder_out, record):
        work = Workdir.prepare(out.scratch() / "training")  # drops a checkpoint that is cut off or damaged
        counts = _fit(base, config, folder, inputs, work, folder_out, resources)
        record.counts = {"folder": name}
    by_step = dict(map(tuple, counts["map"]))
    if by_step and by_step[counts["best_step"]] <= by_step[0]:
        warn(f"{name}: no checkpoint has a higher MAP on {inputs['pool'].name} than {base.name}")
    return counts


def _training(name: str, base: Transformer, config: TrainConfig, inputs: Inputs) -> dict[str, Any]:
    """Return the training data of the model and of its base, by name (:func:`pipeline.encode.known.recorded`)."""
    origin, kinds, until = f"from {display_names(base.name)}", [], None
    if "triplets" in inputs:
        kinds.append(f"citations: triplets {inputs['triplets'].manifest.slug}, {origin}")
        until = inputs["queries"].manifest.config["until"]
    if config.tasks:
        kinds.append(f"tasks of SciRepEval: {', '.join(config.tasks)}, {origin}")
    before = {key: [training.on, training.until] for key, training in of_model(base).items()}
    return {**before, name: [" and ".join(kinds), until]}


def _fit(
    base: Transformer,
    config: TrainConfig,
    folder: Folder | None,
    inputs: Inputs,
    work: Workdir,
    model_folder: Path,
    resources: Resources,
) -> dict[str, Any]:
    """Train, write the model to ``model_folder``, and return counts."""
    import torch

    from pipeline.train.architectures import Architecture
    from pipeline.train.examples import Writer, citation_examples
    from pipeline.train.tasks import task_examples
    from pipeline.train.trainer import DTYPES, train
    from pipeline.train.validation import PoolEvaluator

    torch.set_num_threads(resources.workers)
    settings = config.settings
    architecture = Architecture(settings.architecture, base, settings.max_length, settings.seed)
    writer = Writer(base, architecture.model.tokenizer, architecture.coded)
    sets, evaluator = [], None
    if "triplets" in inputs:
        sets.append(citation_examples(inputs["triplets"], inputs["corpus"], writer, settings.loss))
    if folder is not None:
        fields = dataclasses.replace(writer, model=dataclasses.replace(base, template="fields-sep"))
        chosen = settings.examples, settings.seed
        sets += [task_examples(task_of(name), folder, fields, work, *chosen) for name in config.tasks]
    if "pool" in inputs:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        evaluator = PoolEvaluator(pool, architecture, writer, DTYPES[settings.precision])
    counts = {**architecture.trained(), **train(architecture, sets, settings, work, resources, evaluator)}
    architecture.save(model_folder)
    return counts


def model_folder(artifact: Artifact) -> Path:
    """Return the folder of a trained model."""
    return artifact.path / Path(artifact.manifest.outputs[0].path).parts[0]
