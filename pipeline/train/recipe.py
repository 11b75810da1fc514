"""Training recipes: TOML files with all settings of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from pipeline.core.errors import InputError
from pipeline.core.fields import parse_field
from pipeline.core.settings import Count, Positive, convert_fields, required, setting, settings_of

Format = Literal["classification", "regression", "proximity", "query"]

CODES: dict[Format, str] = {
    "classification": "[CLF]",
    "proximity": "[PRX]",
    "query": "[QRY]",
    "regression": "[RGN]",
}
"""Control codes of task formats, also the names of adapters and PALs. ``query`` is the format of ad-hoc queries."""


def _count(meaning: str) -> Any:
    return setting(None, f"{meaning}, of each query (default: the recipe's)", metavar="N")


Name = Literal["cls", "ctrl", "adapters", "fusion", "pals"]
"""Names of architectures."""


_Factor = Annotated[float, Meta(ge=0, lt=1e6)]
_Share = Annotated[float, Meta(ge=0, lt=1)]
_Steps = Annotated[int, Meta(ge=0, lt=2**31)]


@dataclass(frozen=True)
class Draw:
    """Options of drawing triplets; numbers of negatives are of each query, None: the recipe's."""

    until: int | None = setting(None, "last year of papers and citations (default: any)", metavar="YEAR")
    field: Annotated[str | None, parse_field] = setting(None, "field of the queries (default: any)")
    queries: Count = setting("all", "number of queries, or all")
    seed: int = setting(13, "seed of every draw")
    exclude: tuple[Path, ...] = setting(
        (), "FILE with ids of papers that are in no triplet; may be repeated", metavar="FILE"
    )
    from_: str = setting("", "mined: the system that ranks (default: bm25)", name="from", metavar="SYSTEM")
    easy: int | None = _count("negatives at random")
    same_field: int | None = _count("negatives at random of its field")
    other_field: int | None = _count("negatives at random of other fields")
    hard: int | None = _count("negatives that a cited paper cites, or from the ranking")


DRAW = settings_of(Draw)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of training, which decide the weights."""

    architecture: Name = required(
        "cls (one vector for all formats), ctrl (control codes), adapters, fusion (of the adapters that the base "
        "has), or pals"
    )
    loss: Literal["triplet", "in-batch"] = required(
        "loss of triplets: triplet (margin on L2) or in-batch (contrastive, on cosines)"
    )
    margin: _Factor = required("margin of triplets")
    scale: _Factor = required("factor of cosines")
    epochs: Positive = required("passes over the largest training set")
    batch: Positive = required(
        "examples of an optimiser step; with several tasks, rounded up to a multiple of their number"
    )
    micro_batch: Positive = required("examples that are computed together, all of one task")
    examples: Annotated[int, Meta(ge=0)] = required(
        "maximum examples of a task in an epoch, of classes and labels in their proportions; 0: all. Smaller tasks "
        "repeat"
    )
    learning_rate: _Share = required(
        "peak learning rate of AdamW, less than 1: a step moves every weight by about as much"
    )
    warmup: _Steps = required("steps to the peak")
    schedule: Literal["inverse_sqrt", "linear"] = required(
        "what follows the warm-up: inverse_sqrt, as in the paper, or linear to 0 after the last step, as its "
        "authors train adapters and PALs"
    )
    head_dropout: _Share = required("dropout before the heads of tasks; 0.2 in the authors' code")
    clip: Annotated[float, Meta(ge=0, lt=1e9)] = required(
        "maximum norm of the gradients of a step; 0: none, as in the authors' code"
    )
    max_length: Positive = required("maximum tokens of a text")
    precision: Literal["float32", "bfloat16"] = required("float32, or bfloat16 for activations")
    seed: Annotated[int, Meta(ge=0, lt=2**32)] = required("seed of heads, dropout, choice and order of examples")
    checkpoints: Positive = required(
        "number of checkpoints; MAP on the validation pool is measured at each and after each epoch"
    )
    patience: _Steps = required("number of checkpoints without a better MAP that ends training; 0: never")

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.learning_rate == 0:
            raise InputError("learning_rate must be more than 0, got 0.0", "Change the recipe")


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """A training run: model, data and all settings."""

    name: str = required("name of the model's folder")
    base: str = required("the encoder to train further, as in MODEL=")
    corpus: str = required("corpus of the triplets and the validation pool; empty: the only one")
    triplets: str = required("a recipe of mdcr triplets, or empty")
    draw: Mapping[str, Any] = required("its options: until, field, queries, from, exclude, and numbers of negatives")
    tasks: tuple[str, ...] = required("in-train tasks of SciRepEval")
    input: str = required("folder of their files")
    validation: Mapping[str, Any] = required(
        "settings of the validation pool, on which MAP is measured; empty for none"
    )

    @property
    def settings(self) -> Settings:
        """The settings of training, without base and data."""
        return Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})


def adapter_of(architecture: Name, code: str) -> str:
    """Return the path of a format's adapter inside the model folder."""
    return f"{code}_fusion" if architecture == "fusion" else f"adapters/{code}"


def systems(architecture: Name, folder: Path) -> dict[str, str]:
    """Return the encoder of each format of SciRepEval, and of ad-hoc queries, as in ``MODEL=``."""
    if architecture == "cls":
        encoders: dict[str, str] = dict.fromkeys(CODES, str(folder))
    elif architecture == "ctrl":
        encoders = {form: f"{folder}:task={form}" for form in CODES}
    elif architecture == "pals":
        encoders = {form: f"{folder}:pals={code}" for form, code in CODES.items()}
    else:
        encoders = {form: f"{folder}:adapter={folder / adapter_of(architecture, code)}" for form, code in CODES.items()}
    query = encoders.pop("query")
    return {**encoders, "search": encoders["proximity"], "query": query}


def formats_entry(name: str, encoders: Mapping[str, str]) -> str:
    """Return the entry of a system for SciRepEval's ``formats``, as TOML."""
    return f"[{name}]\n" + "".join(f"{form} = {json.dumps(encoder)}\n" for form, encoder in encoders.items())
