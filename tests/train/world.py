"""Training sets of every format for a tiny BERT: published samples, and a task of numbers in the layout of the hub."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir
from pipeline.encode import registry
from pipeline.studies.scirepeval.tasks import Folder
from pipeline.train.architectures import Architecture
from pipeline.train.examples import Examples, Writer
from pipeline.train.recipe import Settings
from pipeline.train.tasks import task_examples, task_of
from pipeline.train.trainer import train
from tests.encode.tiny import words

TASKS = ("fos", "cite_count", "search", "cite_prediction")
CPU = Resources(workers=1, device="cpu")
SETTINGS = Settings(
    architecture="cls",
    loss="triplet",
    margin=1.0,
    scale=20.0,
    epochs=20,
    batch=16,
    micro_batch=4,
    examples=4,
    learning_rate=5e-3,
    warmup=10,
    schedule="inverse_sqrt",
    head_dropout=0.0,
    clip=1.0,
    max_length=16,
    precision="float32",
    seed=5,
    checkpoints=1,
    patience=0,
)


def samples(folder: Path, published: Path) -> Folder:
    """Fill a folder with links to the published samples and a task of numbers, which the first word tells."""
    folder.mkdir()
    for path in published.iterdir():
        (folder / path.name).symlink_to(path)
    return numbers(folder)


def numbers(folder: Path) -> Folder:
    """Add the task of numbers to a folder."""
    place = folder / "scirepeval" / "cite_count"
    place.mkdir(parents=True)
    rows = [
        {"doc_id": str(n), "title": words(3, n % 2), "abstract": words(9, n), "log_citations": 1.0 - 2 * (n % 2)}
        for n in range(60)
    ]
    (place / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Folder(folder)


def trained(base: Path, folder: Folder, place: Path, **settings: Any) -> tuple[Architecture, Writer, dict[str, Any]]:
    """Train on every task; return the architecture, what writes its texts, and the counts."""
    place.mkdir(exist_ok=True)
    chosen = replace(SETTINGS, **settings)
    architecture = Architecture(chosen.architecture, registry.resolve(str(base)), chosen.max_length, chosen.seed)
    writer = Writer(architecture.base, architecture.model.tokenizer, architecture.coded)
    counts = train(architecture, sets_of(folder, writer, place, chosen), chosen, Workdir(place), CPU)
    return architecture, writer, counts


def sets_of(folder: Folder, writer: Writer, place: Path, settings: Settings) -> list[Examples]:
    """Return the training sets of every task."""
    chosen = settings.examples, settings.seed
    return [task_examples(task_of(task), folder, writer, Workdir(place), *chosen) for task in TASKS]
