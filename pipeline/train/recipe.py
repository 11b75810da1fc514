"""Recipes of training: TOML files with all settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.core.errors import InputError

Format = Literal["classification", "regression", "proximity", "query"]

CODES: dict[Format, str] = {
    "classification": "[CLF]",
    "proximity": "[PRX]",
    "query": "[QRY]",
    "regression": "[RGN]",
}
"""The control code of each format of tasks; adapters and PALs have these names. ``query`` is of ad-hoc queries."""


Name = Literal["cls", "ctrl", "adapters", "fusion", "pals", "lora"]
"""Names of architectures."""


@dataclass(frozen=True)
class Settings:
    """How a network is trained; it decides the weights.

    Attributes:
        architecture: ``cls`` (one vector for all formats), ``ctrl`` (control codes), ``adapters``, ``fusion`` (of the
            adapters that the base has), ``pals``, or ``lora`` (as ``cls``, by low-rank updates).
        loss: of triplets: ``triplet`` (margin on L2) or ``in-batch`` (contrastive, on cosines).
        margin: of triplets.
        scale: of cosines.
        epochs: passes over the largest training set.
        batch: examples of a step of the optimiser; with several tasks, the next multiple of their number.
        micro_batch: examples that are computed together, all of one task.
        examples: of a task in an epoch, at most; 0: all. Smaller tasks are repeated.
        learning_rate: at its peak, of AdamW with an inverse square root schedule.
        warmup: steps to the peak.
        max_length: tokens of a text.
        precision: ``float32``, or ``bfloat16`` for activations.
        seed: of heads, dropout and the order of examples.
        checkpoints: in all; as often, and at the end of each epoch, MAP is measured on the validation pool.
        patience: checkpoints without a better MAP after which training ends; 0: it never does.
    """

    architecture: Name
    loss: Literal["triplet", "in-batch"]
    margin: float
    scale: float
    epochs: int
    batch: int
    micro_batch: int
    examples: int
    learning_rate: float
    warmup: int
    max_length: int
    precision: Literal["float32", "bfloat16"]
    seed: int
    checkpoints: int
    patience: int

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "micro_batch", "max_length", "checkpoints"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}", "Change the recipe")


@dataclass(frozen=True)
class Recipe(Settings):
    """A run: what is trained on what. Every setting is given.

    Attributes:
        name: of the model's folder.
        base: the encoder that is trained further, as ``MODEL=`` takes it.
        corpus: of the triplets and of the validation pool; empty: the only one.
        triplets: a recipe of ``mdcr triplets``; empty for none.
        draw: its options: ``until``, ``field``, ``balanced``, ``queries``, ``from``, ``ranks``, ``exclude``, and
            numbers of negatives.
        tasks: in-train tasks of SciRepEval.
        input: folder of their files.
        validation: settings of the pool on which MAP is measured; empty for none. Its split is ``validation``.
    """

    name: str
    base: str
    corpus: str
    triplets: str
    draw: Mapping[str, Any]
    tasks: tuple[str, ...]
    input: str
    validation: Mapping[str, Any]

    @property
    def settings(self) -> Settings:
        """The settings that decide the weights beside base and data."""
        return Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})


def adapter_of(architecture: Name, code: str) -> str:
    """Return where the adapter of a format lies in the folder of a model."""
    return f"{code}_fusion" if architecture == "fusion" else f"adapters/{code}"


def systems(architecture: Name, folder: Path) -> dict[str, str]:
    """Return the encoder of each format as ``MODEL=`` takes it."""
    if architecture in ("cls", "lora"):
        return dict.fromkeys(CODES, str(folder))
    if architecture == "ctrl":
        return {form: f"{folder}:task={form}" for form in CODES}
    if architecture == "pals":
        return {form: f"{folder}:pals={code}" for form, code in CODES.items()}
    return {form: f"{folder}:adapter={folder / adapter_of(architecture, code)}" for form, code in CODES.items()}
