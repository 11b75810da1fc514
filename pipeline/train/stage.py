"""Stage ``train``: trains a network by a recipe; ``MODEL=`` takes its folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from pipeline.api import Workspace, selection
from pipeline.core import files, provenance
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, counted, file_name
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
from pipeline.encode.recipes import limit_of
from pipeline.encode.shape import first_module
from pipeline.encode.spec import EncoderSpec, Model, TransformerSpec
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

    base: EncoderSpec
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
        depth = max((_DEPTH, *draw.ranks))
        (ranking,) = (e.ranking for e in workspace.evaluations(queries, draw.from_ or "bm25", depth=depth))
    return triplets_task(corpus, queries, recipe, draw, ranking=ranking)


def train_task(workspace: Workspace, recipe: Recipe, *, dry: bool = False) -> Task:
    """Return the task that trains by a recipe.

    Its artifact holds a folder named by the recipe; its counts hold the curves of loss and MAP. Unless ``dry``, the
    validation pool is made first, since its queries are excluded from the triplets.

    Raises:
        InputError: a package or a file is missing, or the recipe has neither triplets nor tasks.
    """
    base = registry.resolve(recipe.base)
    if not isinstance(base.spec, TransformerSpec):
        raise InputError(f"{base.name} cannot be trained: it is not a transformer", "Give a model such as minilm")
    limit = limit_of(first_module(base.checkpoint.folder)[1], 2**31) if base.checkpoint else 2**31
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
    config = TrainConfig(base.spec, recipe.settings, recipe.tasks, sums)
    run = partial(_train, name, base, config, folder)
    return Task("train", 3, MODELS, name, config, inputs, run, derived=derived)


@cache
def _checksum(path: Path, _changed: int) -> str:
    """Return the SHA-256 of a training file, which every training of a grid asks for, since its last change."""
    return files.sha256(path)


def _train(
    name: str,
    base: Model,
    config: TrainConfig,
    folder: Folder | None,
    inputs: Inputs,
    out: Workdir,
    resources: Resources,
) -> Counts:
    for package in ("accelerate", "datasets"):
        optional(package, "training", "train")
    from pipeline.train.objectives import DEVIATION
    from pipeline.train.trainer import EPSILON, process_count, run_processes

    method = {
        "optimiser": "AdamW",
        "epsilon": EPSILON,
        "weight_decay": 0.0,
        "losses_of_tasks": "sum",
        "deviation_of_heads": DEVIATION,
    }
    out.note(base=base.name, trained_with=provenance.versions(_PACKAGES), method=method)
    with out.folder(name) as (folder_out, record):
        work = Workdir.prepare(out.scratch() / "training")  # drops a checkpoint that is cut off or damaged
        fit = partial(_fit, base, config, folder, dict(inputs), work, folder_out, resources)
        counts = run_processes(fit, process_count(resources))
        (folder_out / "README.md").write_text(_card(name, base, config, inputs, counts), encoding="utf-8")
        record.counts = {"folder": name}
    by_step = dict(map(tuple, counts["map"]))
    if by_step and by_step[counts["best_step"]] <= by_step[0]:
        warn(f"{name}: no checkpoint has a higher MAP on {inputs['pool'].name} than {base.name}")
    return counts


def _fit(
    base: Model,
    config: TrainConfig,
    folder: Folder | None,
    inputs: Inputs,
    work: Workdir,
    model_folder: Path,
    resources: Resources,
    rank: int = 0,
) -> dict[str, Any]:
    """Train and return counts; the process of rank 0 writes the model to ``model_folder``."""
    import torch

    from pipeline.train.architectures import Architecture
    from pipeline.train.examples import Writer, citation_examples
    from pipeline.train.tasks import task_examples
    from pipeline.train.trainer import DTYPES, train
    from pipeline.train.validation import PoolEvaluator

    torch.set_num_threads(resources.workers)
    settings = config.settings
    architecture = Architecture(settings.architecture, base, settings.max_length, settings.seed)
    spec = architecture.spec
    writer = Writer(spec, architecture.model.tokenizer, architecture.coded)
    sets, evaluator = [], None
    if "triplets" in inputs:
        sets.append(citation_examples(inputs["triplets"], inputs["corpus"], writer, settings.loss))
    if folder is not None:
        fields = dataclasses.replace(writer, spec=dataclasses.replace(spec, template="fields-sep"))
        chosen = settings.examples, settings.seed
        sets += [task_examples(task_of(name), folder, fields, work, *chosen) for name in config.tasks]
    if "pool" in inputs:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        evaluator = PoolEvaluator(pool, architecture, writer, DTYPES[settings.precision])
    counts = {**architecture.trained(), **train(architecture, sets, settings, work, resources, evaluator)}
    if rank == 0:
        architecture.save(model_folder)
    return counts


def _card(name: str, base: Model, config: TrainConfig, inputs: Inputs, counts: Mapping[str, Any]) -> str:
    """Return the model card as Markdown: data, leakage, scores, recipe and use."""
    sections = [
        "---\nlibrary_name: sentence-transformers\ntags: [scientific-documents, citation-recommendation]\n---",
        f"# {name}",
        f"{base.name}, trained further as `{config.settings.architecture}` by `mdcr train`. {_use(config)}",
        "## Data\n\n" + "\n".join(f"- {line}" for line in _data(inputs, counts)),
        "## Leakage\n\n" + _leakage(inputs),
        "## Scores\n\n" + _scores(inputs, counts),
        "## Recipe\n\n```json\n" + json.dumps(canonical(config), indent=2) + "\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _use(config: TrainConfig) -> str:
    if config.settings.architecture in ("cls", "lora"):
        return "It is a folder of sentence-transformers; `MODEL=/path/to/it` takes it."
    return (
        "`MODEL=/path/to/it` takes its vectors for proximity; `config_sentence_transformers.json` says how they are "
        "read. Other tools do not read this."
    )


def _data(inputs: Inputs, counts: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}: {counted(count, 'example')}" for name, count in counts["examples"].items()]
    if "triplets" in inputs:
        triplets, queries = inputs["triplets"].manifest, inputs["queries"].manifest
        fields = ", ".join(f"{field} {count:,}" for field, count in queries.counts["queries_by_field"].items())
        lines += [
            f"triplets `{inputs['triplets'].name}`, recipe {triplets.config['recipe']}",
            f"corpus `{inputs['corpus'].name}`",
            f"{counted(queries.counts['queries'], 'query')} ({fields})",
        ]
    return lines


def _leakage(inputs: Inputs) -> str:
    if "queries" not in inputs:
        return "The training sets are those of SciRepEval. `mdcr study scirepeval` looks up its test papers in them."
    manifest = inputs["queries"].manifest
    until, counts = manifest.config["until"], manifest.counts
    years = f"No paper or citation is later than {until}. " if until else "Papers of all years were read. "
    return (
        f"{years}The queries of pools of the workspace ({counts['pools']}) and the papers of exclusion lists are in no "
        f"triplet: {counted(counts['dropped_left_out'], 'paper')} that would have been. Pools that were drawn later "
        "are not known. The base may have been trained on other citations."
    )


def _scores(inputs: Inputs, counts: Mapping[str, Any]) -> str:
    losses = counts["loss"]
    text = f"Loss {losses[0][1]:.4f} at step {losses[0][0]}, {losses[-1][1]:.4f} at step {losses[-1][0]}."
    if counts["map"]:
        by_step = dict(map(tuple, counts["map"]))
        text += (
            f" MAP on the validation pool `{inputs['pool'].name}`: {by_step[0]:.2%} before training, "
            f"{by_step[counts['best_step']]:.2%} at step {counts['best_step']}, which is the step that was kept."
        )
    return text


def model_folder(artifact: Artifact) -> Path:
    """Return the folder of a trained model."""
    return artifact.path / Path(artifact.manifest.outputs[0].path).parts[0]
