"""The JSON files of a model folder, checked before anything uses them. No torch."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypedDict

import msgspec

from pipeline.core.errors import InputError

AGAIN = "Save or download the model again"

CODE = "Use a model of transformers itself, or import its vectors with vectors:FILE"

_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Layers = Annotated[int, msgspec.Meta(ge=1, lt=10_000)]

# What is read of each file, and what decides how long a network takes to build. Other keys may have any value.


class _Activation(TypedDict, total=False):
    activation_fn: str | None


class Config(TypedDict, total=False):
    """``config.json``."""

    architectures: list[str] | None
    model_type: str
    pals: bool | None
    num_labels: int | None
    id2label: dict[str, Any] | None
    max_position_embeddings: int | None
    num_hidden_layers: _Layers | None
    sentence_transformers: _Activation | None
    sbert_ce_default_activation_function: str | None


class Tokenizer(TypedDict, total=False):
    """``tokenizer_config.json``."""

    model_max_length: float | None
    tokenizer_class: str | None


class _Module(TypedDict, total=False):
    type: str
    path: str


class Transformer(TypedDict, total=False):
    """``sentence_bert_config.json``."""

    max_seq_length: int | None
    do_lower_case: bool | None
    processing_kwargs: dict[str, Any] | None


class _Pooling(TypedDict, total=False):
    pooling_mode: str | list[str] | None
    include_prompt: bool | None


class _Dense(TypedDict, total=False):
    in_features: _Count
    out_features: _Count
    bias: bool
    activation_function: str


class SentenceTransformers(TypedDict, total=False):
    """``config_sentence_transformers.json``."""

    model_type: str
    prompts: dict[str, str | None] | None
    default_prompt_name: str | None
    similarity_fn_name: str | None
    activation_fn: str | None
    template: str
    pooling: str
    adapter: str
    pals: str
    normalise: bool


class Index(TypedDict, total=False):
    """Which file holds each tensor of sharded weights."""

    weight_map: dict[str, str]


class Adapter(TypedDict, total=False):
    """``adapter_config.json``; a configuration that is text or a number would be opened as a file."""

    config: dict[str, Any]
    name: str


class Fusion(TypedDict, total=False):
    """``adapter_fusion_config.json``."""

    adapter_names: list[str] | str | None
    name: list[str] | str
    config: dict[str, Any]


def read(path: Path, shape: Any) -> Any:
    """Return the content of a JSON file as plain values, or an empty mapping if there is no file.

    Raises:
        InputError: it is not UTF-8 or not JSON, or a value that is read has another type.
    """
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_bytes())
        json.dumps(values, ensure_ascii=False).encode()  # refuses lone surrogates
        msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise InputError(f"{path} is malformed: {error}", AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})", AGAIN) from error
    return values


def inside(name: str, path: Path) -> str:
    """Return the name of a file or folder that a file names, after checking that it lies beside it or below.

    Raises:
        InputError: it is absolute, leads out of the folder or cannot be a name.
    """
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or not name.isprintable() or len(name) > 200:
        raise InputError(f"{path} must name files inside its folder, got {name!r:.80}", AGAIN)
    return name


MODULE_FILE = "modules.json"
"""Lists the modules of a folder that sentence-transformers saved."""

_LOADED = (".json", ".txt", ".model", ".safetensors", ".bin")
_WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout", "MultiVectorMask")
_ALIASES = {"pylate.models.Dense.Dense": "sentence_transformers.base.modules.dense.Dense"}
"""Classes of other packages that multi-vector encoders of sentence-transformers replace by its own."""
_SHAPES: dict[str, Any] = {"Pooling": _Pooling, "Dense": _Dense}


def modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the class, without its package, and the folder of each module; empty without ``modules.json``.

    Raises:
        InputError: a class is not of sentence-transformers, the transformer is not in the folder itself, or a
            configuration is missing or malformed.
    """
    found = []
    for module in read(folder / MODULE_FILE, list[_Module]):
        named = module.get("type", "")
        package, _, kind = _ALIASES.get(named, named).rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise InputError(
                f"{folder / MODULE_FILE} needs a module {module.get('type')!r:.80}, which is never run", CODE
            )
        place = folder / inside(module.get("path", ""), folder / MODULE_FILE)
        if kind in _SHAPES:
            if not (place / "config.json").is_file():
                raise InputError(
                    f"{place / 'config.json'} must be there, as {MODULE_FILE} says, got no such file", AGAIN
                )
            activation(read(place / "config.json", _SHAPES[kind]).get("activation_function"), place)
        found.append((kind, place))
    if (folder / MODULE_FILE).is_file() and (not found or found[0] != ("Transformer", folder)):
        raise InputError(f"{folder / MODULE_FILE} must begin with a Transformer in the folder itself", AGAIN)
    return found


def activation(named: str | None, folder: Path) -> None:
    """Check that an activation is a class of ``torch.nn``: sentence-transformers replaces any other in silence."""
    if named is not None and not named.startswith("torch.nn."):
        raise InputError(f"the activation of {folder} must be of torch.nn, got {named}", CODE)


def weighted_modules(folder: Path) -> list[Path]:
    """Return the folders of the modules, the transformer's aside, that have weights."""
    return [place for kind, place in modules(folder)[1:] if kind not in _WITHOUT_WEIGHTS]


def module_files(folder: Path) -> list[Path]:
    """Return the files beside transformer and tokenizer that sentence-transformers loads."""
    listed = modules(folder)
    found = [folder / MODULE_FILE, folder / MODEL_FILE, transformer_file(folder)] if listed else [folder / MODEL_FILE]
    for place in {place: None for _, place in listed if place != folder}:
        inner = [path for path in sorted(place.rglob("*")) if path.suffix in _LOADED]
        safe = {path.parent for path in inner if path.suffix == ".safetensors"}
        found += [path for path in inner if not (path.suffix == ".bin" and path.parent in safe)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


MODEL_FILE = "config_sentence_transformers.json"


def transformer_file(folder: Path) -> Path:
    """Return the settings of the transformer, which early versions name by its architecture."""
    return next(iter(sorted(folder.glob("sentence_*_config.json"))), folder / "sentence_bert_config.json")
