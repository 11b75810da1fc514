"""What the JSON files of a model folder say; what they must say, the library that loads them checks. No torch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

AGAIN = "Save or download the model again"

CODE = "Use a model of transformers itself, or import its vectors with vectors:FILE"


@contextlib.contextmanager
def reading(place: object) -> Iterator[None]:
    """Raise InputError, in one line, where a file of a model folder does not say what its reader needs."""
    try:
        yield
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(f"{place} holds a malformed file ({type(error).__name__}: {error!s:.200})", AGAIN) from error


def read(path: Path) -> Any:
    """Return the content of a JSON file, empty without one; raise InputError if it has another form."""
    try:
        values = json.loads(path.read_bytes()) if path.is_file() else {}
        json.dumps(values, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})", AGAIN) from error
    kind, words = (list, "a list") if path.name == MODULE_FILE and path.is_file() else (dict, "an object")
    if not isinstance(values, kind):
        raise InputError(f"{path} must hold {words}, got {json.dumps(values):.80}", AGAIN)
    if isinstance(values, dict) and isinstance(layers := values.get("num_hidden_layers"), int) and layers < 1:
        raise InputError(f"{path} must count its layers, got {layers}", AGAIN)
    return values


def inside(name: str, path: Path) -> str:
    """Return ``name``, a relative path in the file ``path``; raise InputError if it leaves the folder of the file."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(f"{path} must name files inside its folder, got {name!r:.80}", AGAIN)
    return name


MODULE_FILE = "modules.json"
"""List of the modules of a folder that sentence-transformers saved."""

STATIC = "StaticEmbedding"
"""Class of a module that averages an embedding of each token."""

_LOADED = (".json", ".txt", ".model", ".safetensors", ".bin")
WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout", "MultiVectorMask")
_ALIASES = {"pylate.models.Dense.Dense": "sentence_transformers.base.modules.dense.Dense"}
"""Classes of other packages that sentence-transformers replaces by its own in multi-vector encoders."""


def modules(folder: Path) -> list[tuple[str, Path]]:
    """Return class and folder of each module, none without ``modules.json``; raise InputError at unknown classes."""
    module_list = []
    for module in read(folder / MODULE_FILE):
        class_name = module.get("type", "")
        package, _, kind = _ALIASES.get(class_name, class_name).rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise InputError(
                f"{folder / MODULE_FILE} needs a module {module.get('type')!r:.80}, which is never run", CODE
            )
        module_folder = folder / inside(module.get("path", ""), folder / MODULE_FILE)
        if kind == "Dense":
            activation(read(module_folder / "config.json").get("activation_function"), module_folder)
        module_list.append((kind, module_folder))
    first = module_list[0][0] if module_list else "no module"
    if (folder / MODULE_FILE).is_file() and first not in ("Transformer", STATIC):
        raise InputError(f"{folder / MODULE_FILE} must begin with a Transformer or {STATIC}, got {first}", CODE)
    return module_list


def first_module(folder: Path) -> tuple[str, Path]:
    """Return the class of the first module, and its folder: that of network and tokenizer.

    It is the folder itself, except in models that were saved before version 2 of sentence-transformers.
    """
    return next(iter(modules(folder)), ("Transformer", folder))


def activation(class_name: object, folder: Path) -> None:
    """Check that an activation is a class of ``torch.nn``: sentence-transformers silently replaces any other."""
    if class_name is not None and not str(class_name).startswith("torch.nn."):
        raise InputError(f"the activation of {folder} must be of torch.nn, got {class_name}", CODE)


def module_files(folder: Path) -> list[Path]:
    """Return the files that sentence-transformers loads beside network and tokenizer."""
    listed, first = modules(folder), first_module(folder)[1]
    paths = [folder / MODULE_FILE, folder / MODEL_FILE, transformer_file(first)] if listed else [folder / MODEL_FILE]
    for module_folder in {module_folder: None for _, module_folder in listed if module_folder not in (folder, first)}:
        module_paths = [path for path in sorted(module_folder.rglob("*")) if path.suffix in _LOADED]
        with_safetensors = {path.parent for path in module_paths if path.suffix == ".safetensors"}
        paths += [path for path in module_paths if not (path.suffix == ".bin" and path.parent in with_safetensors)]
    return [path for path in dict.fromkeys(paths) if path.is_file()]


MODEL_FILE = "config_sentence_transformers.json"
MODEL_KEYS: tuple[str, ...] = (
    *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name", "activation_fn"),
    *("template", "pooling", "adapter", "pals", "normalise"),
)
"""Keys of :data:`MODEL_FILE` that we read; the second line is that of ``mdcr train``."""


def transformer_file(folder: Path) -> Path:
    """Return the path of the transformer's settings, which early versions name by its architecture."""
    return next(iter(sorted(folder.glob("sentence_*_config.json"))), folder / "sentence_bert_config.json")
