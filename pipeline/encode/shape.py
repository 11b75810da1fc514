"""The JSON files of a model folder and their shapes, checked before anything uses them. No torch."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.core.errors import InputError

AGAIN = "Save or download the model again"

_CODE = "Use a model of transformers itself, or import its vectors with vectors:FILE"
_COUNT, _LAYERS = range(1, 2**31), range(1, 10_000)

# A shape is a type, a range of whole numbers, several shapes in a tuple, a list of one, or an object's (* any name).
_TEXT, _FLAG, _NUMBER = (str, None), (bool, None), (int, None)

CONFIG = {
    "architectures": ([str], None),
    "model_type": str,
    "pals": _FLAG,
    "num_labels": _NUMBER,
    "id2label": (dict, None),
    "max_position_embeddings": _NUMBER,
    "num_hidden_layers": (_LAYERS, None),
    "sentence_transformers": ({"activation_fn": _TEXT}, None),
    "sbert_ce_default_activation_function": _TEXT,
}
"""``config.json``: what is read of it, and the layers, which decide how long a network takes to build."""

TOKENIZER = {"model_max_length": (int, float, None), "tokenizer_class": _TEXT}
"""``tokenizer_config.json``."""

MODULES = [{"type": str, "path": str}]
"""``modules.json``."""

TRANSFORMER = {"max_seq_length": _NUMBER, "do_lower_case": _FLAG, "processing_kwargs": (dict, None)}
"""``sentence_bert_config.json``."""

POOLING = {"pooling_mode": (str, [str], None), "include_prompt": _FLAG}
"""Configuration of the pooling."""

DENSE = {"in_features": _COUNT, "out_features": _COUNT, "bias": bool, "activation_function": str}
"""Configuration of a dense layer."""

SENTENCE_TRANSFORMERS = {
    "__version__": (dict, None),
    "model_type": str,
    "prompts": ({"*": _TEXT}, None),
    "default_prompt_name": _TEXT,
    "similarity_fn_name": _TEXT,
    "activation_fn": _TEXT,
}
"""``config_sentence_transformers.json``."""

INDEX = {"weight_map": {"*": str}}
"""Which file holds each tensor of sharded weights."""

ADAPTER = {"config": dict, "name": str}
"""``adapter_config.json``; a configuration that is text or a number would be opened as a file."""

FUSION = {"adapter_names": ([str], str, None), "name": ([str], str), "config": dict}
"""``adapter_fusion_config.json``."""


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
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})", AGAIN) from error
    if wrong := _wrong(values, shape):
        raise InputError(f"{path} must be {wrong}", AGAIN)
    return values


_JSON: dict[Any, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    None: "null",
}
"""Names of the types in messages."""


def _wrong(value: Any, shape: Any) -> str:
    """Return what a value must be and what it is, with its place; empty where it has the shape."""
    if isinstance(shape, tuple):
        wrongs = [_wrong(value, choice) for choice in shape]
        return "" if "" in wrongs else wrongs[0]
    kind = type(shape) if isinstance(shape, dict | list) else shape
    if isinstance(kind, range):
        fits = type(value) is int and value in kind
    else:
        fits = value is None if kind is None else type(value) is kind
    if not fits:
        limits = f"a number of {kind.start} to {kind.stop - 1}" if isinstance(kind, range) else ""
        return f"{limits or _JSON[kind]}, got {value!r:.80}"
    parts = enumerate(value) if isinstance(shape, list) else value.items() if isinstance(shape, dict) else ()
    for name, part in parts:
        inner = shape[0] if isinstance(shape, list) else shape.get(name, shape.get("*", type(part)))
        if wrong := _wrong(part, inner):
            expected, _, got = wrong.rpartition(", got ")
            return f"{_JSON[kind]} whose {name} is {expected}, got {got}"
    return ""


def check(folder: Path) -> None:
    """Check configuration and tokenizer settings of a model, which transformers reads.

    Raises:
        InputError: a value has the wrong type, or the model needs code that its folder or repository brings.
    """
    for name, shape in (("config.json", CONFIG), ("tokenizer_config.json", TOKENIZER)):
        if read(folder / name, shape).get("auto_map"):
            raise InputError(f"{folder} needs code of its own (auto_map of {name}), which is never run", _CODE)


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
_WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout")
_SHAPES: dict[str, Any] = {"Pooling": POOLING, "Dense": DENSE}


def modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the class, without its package, and the folder of each module; empty without ``modules.json``.

    Raises:
        InputError: a class is not of sentence-transformers, the transformer is not in the folder itself, or a
            configuration is missing or malformed.
    """
    found = []
    for module in read(folder / MODULE_FILE, MODULES):
        package, _, kind = module.get("type", "").rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise InputError(
                f"{folder / MODULE_FILE} needs a module {module.get('type')!r:.80}, which is never run", _CODE
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
    """Check that an activation is a class of ``torch.nn``: sentence-transformers replaces any other in silence.

    Raises:
        InputError: it is another.
    """
    if named is not None and not named.startswith("torch.nn."):
        raise InputError(f"the activation of {folder} must be of torch.nn, got {named}", _CODE)


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
