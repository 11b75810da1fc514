"""What a model folder says of itself: the layout of sentence-transformers, versions 2 to 5, else SPECTER's recipe.

Whatever the folder says and we do not do is an error: a setting is never left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.encode import shape
from pipeline.encode.spec import POOLING, TransformerSpec

MODULES = "modules.json"
_SETTINGS = "config_sentence_transformers.json"
ACTIVATIONS = ("ELU", "GELU", "Identity", "LeakyReLU", "Mish", "ReLU", "Sigmoid", "SiLU", "Softplus", "Tanh")
"""Classes of ``torch.nn`` that may follow a dense layer or a classifier."""

_LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Booleans of versions before 5.4, in the order in which several are concatenated."""

COMPLETE = ("template", "pooling", "max_length", "normalise", "distance")
"""Settings that every recipe gives."""

_SIMILARITY = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}
_PAPER_PROMPTS = ("document", "passage", "corpus")
_DEFAULT_LENGTH = 512
_KNOWN: dict[str, Any] = {
    "Transformer": shape.TRANSFORMER,
    "Pooling": shape.POOLING,
    "Dense": shape.DENSE,
    "model": shape.SENTENCE_TRANSFORMERS,
}
"""Modules with settings, and their shapes."""


def read(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder, named as in ``models.toml``.

    A folder without ``modules.json`` gets the SPECTER recipe: title, separator, abstract; first token; squared L2. One
    with it gets title, space, abstract. Papers get the prompt ``document``, ``passage`` or ``corpus``, ad-hoc queries
    ``query``, and either the default prompt where there is none.

    Raises:
        InputError: the folder needs a module or a setting that is not supported.
    """
    limit = shape.read(folder / "config.json", shape.CONFIG).get("max_position_embeddings")
    if not (folder / MODULES).is_file():
        length = min(_DEFAULT_LENGTH, limit or _DEFAULT_LENGTH)
        return {"max_length": length, "template": "title-sep-abstract", "pooling": "cls", "distance": "l2"}
    settings: dict[str, Any] = {"template": "title-space-abstract", "max_length": _length(folder), "dense": ()}
    settings |= _prompts(folder)
    modules = [*_modules(folder)]
    kinds = [kind for kind, _ in modules]
    ending = [kind for kind in kinds[2:] if kind != "Dropout"]
    if kinds[:2] != ["Transformer", "Pooling"] or "Normalize" in ending[:-1]:
        raise InputError(
            f"{folder / MODULES} must list Transformer, Pooling, any Dense and at most one Normalize, got "
            f"{', '.join(kinds)}",
            "Give a model of that layout",
        )
    for kind, path in modules:
        if kind == "Transformer":
            if path != folder:
                raise InputError(f"{folder / MODULES} must have the Transformer in the folder itself", _LAYOUT)
            settings["lower_case"] = bool(_transformer(path, "feature-extraction").get("do_lower_case", False))
        elif kind == "Pooling":
            settings["pooling"] = _pooling(path / "config.json", any("prefix" in key for key in settings))
        elif kind == "Dense":
            dense(path)
            settings["dense"] += (path.relative_to(folder).as_posix(),)
        elif kind == "Normalize":
            settings["normalise"] = True
    return settings


def read_cross_encoder(folder: Path) -> dict[str, Any]:
    """Return length, lower-casing and activation of a cross-encoder's folder.

    Raises:
        InputError: it does not classify with one label, or needs a module or a setting that is not supported.
    """
    config = shape.read(folder / "config.json", shape.CONFIG)
    heads = config.get("architectures") or ["no architecture"]
    if not heads[0].endswith("ForSequenceClassification"):
        raise InputError(f"{folder} must hold a model for sequence classification, got {heads[0]}", _RERANKER)
    labels = len(config.get("id2label") or {}) or config.get("num_labels", 2)
    if labels != 1:
        raise InputError(f"the cross-encoder in {folder} must have one label, got {labels}", _RERANKER)
    settings = {"max_length": _length(folder), "lower_case": False}
    if (folder / MODULES).is_file():
        kinds = [kind for kind, _ in _modules(folder)]
        if kinds != ["Transformer"]:
            raise InputError(f"{folder / MODULES} must list a Transformer alone, got {', '.join(kinds)}", _RERANKER)
        settings["lower_case"] = bool(_transformer(folder, "sequence-classification").get("do_lower_case", False))
    if _prompts(folder, "CrossEncoder"):
        raise InputError(f"{folder} puts a prompt before queries, which is not supported", _RERANKER)
    named = (
        shape.read(folder / _SETTINGS, shape.SENTENCE_TRANSFORMERS).get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
        or "torch.nn.Sigmoid"
    )
    return {**settings, "activation": activation(named, folder)}


def dense(folder: Path) -> dict[str, Any]:
    """Return the configuration of a dense layer, with the activation's class of ``torch.nn``.

    Raises:
        InputError: a setting is not supported.
    """
    values = _known(folder / "config.json", "Dense")
    for key in ("module_input_name", "module_output_name"):
        if values.get(key) not in (None, "sentence_embedding"):
            raise InputError(f"{key} of {folder} must be sentence_embedding, got {values[key]}", _LAYOUT)
    if not {"in_features", "out_features"} <= values.keys():
        raise InputError(f"{folder} must have in_features and out_features, got neither or one", shape.AGAIN)
    named = values.get("activation_function", "torch.nn.Tanh")
    return {**values, "activation_function": activation(named, folder)}


def files(folder: Path) -> list[Path]:
    """Return the files beside transformer and tokenizer that decide a vector of a model folder."""
    listed = _modules(folder)
    read = [folder / MODULES, folder / _SETTINGS, _transformer_file(folder)] if listed else []
    for kind, path in listed:
        read += [path / "config.json"] if kind == "Pooling" else [*dense_files(path)] if kind == "Dense" else []
    return [path for path in dict.fromkeys(read) if path.is_file()]


def dense_files(folder: Path) -> tuple[Path, Path]:
    """Return configuration and weights of a dense layer."""
    weights = folder / "model.safetensors"
    return folder / "config.json", weights if weights.is_file() else folder / "pytorch_model.bin"


def activation(named: str, folder: Path) -> str:
    """Return the class of ``torch.nn`` of an activation's full name.

    Raises:
        InputError: it is not one of :data:`ACTIVATIONS`.
    """
    name = named.rpartition(".")[2]
    if not named.startswith("torch.nn.") or name not in ACTIVATIONS:
        raise InputError(f"the activation of {folder} is {named}", f"Known: torch.nn's {', '.join(ACTIVATIONS)}")
    return name


def describe(spec: TransformerSpec, distance: str) -> str:
    """Return template, pooling and whatever else makes a vector of a text, as options are written."""
    values = {**asdict(spec), "distance": distance}
    shown = [key for key in COMPLETE if values[key]]
    shown += [key for key in ("paper_prefix", "query_prefix", "lower_case", "dense") if values[key]]
    return ", ".join(f"{key}={_shown(values[key])}" for key in shown)


def differences(spec: TransformerSpec, distance: str, folder: Path) -> str:
    """Return what the ``modules.json`` of a folder says otherwise than a recipe; empty where it agrees or is absent."""
    if not (folder / MODULES).is_file():
        return ""
    try:
        described = read(folder)
    except InputError as error:
        return error.what
    used = {"normalise": False, "lower_case": False, **asdict(spec), "distance": distance}
    described = {"normalise": False, **described}
    return ", ".join(f"{key}={_shown(value)}" for key, value in described.items() if used[key] != value)


_RERANKER = "Give a reranker with one label, such as cross-encoder/ms-marco-MiniLM-L6-v2"
_LAYOUT = "Give a model that needs no such setting"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return repr(value) if isinstance(value, str) and value != value.strip() else str(value)


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return kind and folder of each module of sentence-transformers."""
    modules = []
    for module in shape.read(folder / MODULES, shape.MODULES):
        package, _, kind = module.get("type", "").rpartition(".")
        if package.partition(".")[0] != "sentence_transformers" or kind not in (*_KNOWN, "Normalize", "Dropout"):
            raise InputError(
                f"{folder} needs a sentence-transformers module {module.get('type')}",
                "Known: Transformer, Pooling, Dense, Normalize",
            )
        modules.append((kind, folder / shape.inside(module.get("path", ""), folder / MODULES)))
    return modules


def _transformer(folder: Path, task: str) -> Mapping[str, Any]:
    values = _known(_transformer_file(folder), "Transformer")
    outputs = {"feature-extraction": "last_hidden_state", "sequence-classification": "logits"}
    text = (values.get("modality_config") or {}).get("text") or {}
    for key, value, expected in (
        ("transformer_task", values.get("transformer_task"), task),
        ("modality_config.text.method", text.get("method"), "forward"),
        ("modality_config.text.method_output_name", text.get("method_output_name"), outputs[task]),
        ("module_output_name", values.get("module_output_name"), {"feature-extraction": "token_embeddings"}.get(task)),
    ):
        if expected and value not in (None, expected):
            raise InputError(f"{key} of {folder} must be {expected}, got {value}", _LAYOUT)
    return values


def _transformer_file(folder: Path) -> Path:
    """Return the settings of the transformer, which early versions name by its architecture."""
    return next(iter(sorted(folder.glob("sentence_*_config.json"))), folder / "sentence_bert_config.json")


def _length(folder: Path) -> int:
    """Return the tokens a text is cut to, as sentence-transformers decides it."""
    length = shape.read(_transformer_file(folder), shape.TRANSFORMER).get("max_seq_length")
    limits = (
        shape.read(folder / "tokenizer_config.json", shape.TOKENIZER).get("model_max_length"),
        shape.read(folder / "config.json", shape.CONFIG).get("max_position_embeddings"),
    )
    return int(length or min([limit for limit in limits if limit and 0 < limit < 2**31], default=_DEFAULT_LENGTH))


def _prompts(folder: Path, model_type: str = "SentenceTransformer") -> dict[str, Any]:
    """Return prefixes and distance of ``config_sentence_transformers.json``."""
    path = folder / _SETTINGS
    values = _known(path, "model")
    if values.get("model_type", model_type) != model_type:
        raise InputError(f"{folder} must hold a {model_type}, got {values['model_type']}", _LAYOUT)
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    if default and default not in prompts:
        raise InputError(f"default_prompt_name of {path} must be one of its prompts, got {default!r}", "Save it again")
    similarity = values.get("similarity_fn_name") or "cosine"
    if similarity not in _SIMILARITY:
        raise InputError(f"{folder} is compared by {similarity!r}", f"Known: {', '.join(_SIMILARITY)}")
    if model_type == "CrossEncoder":
        return {"default": prompts[default]} if default and prompts[default] else {}
    settings: dict[str, Any] = {"distance": _SIMILARITY[similarity]}
    for key, names in (("paper_prefix", _PAPER_PROMPTS), ("query_prefix", ("query",))):
        prompt = next((prompts[name] for name in (*names, default) if prompts.get(name)), "")
        settings |= {key: prompt} if prompt else {}
    return settings


def _pooling(path: Path, prefixed: bool) -> str:
    values = _known(path, "Pooling")
    modes = values.get("pooling_mode") or [mode for key, mode in _LEGACY.items() if values.get(key)] or "mean"
    modes = [modes] if isinstance(modes, str) else list(modes)
    if not set(modes) <= set(POOLING):
        raise InputError(f"{path} needs pooling {', '.join(map(str, modes))}", f"Known: {', '.join(POOLING)}")
    if prefixed and not values.get("include_prompt", True):
        raise InputError(f"{path} leaves the prompt out of the pooling, which is not supported", _LAYOUT)
    return "+".join(modes)


def _known(path: Path, kind: str) -> Mapping[str, Any]:
    """Return the settings of a file; one that is not understood is an error, unless it is empty."""
    if kind in ("Pooling", "Dense") and not path.is_file():
        raise InputError(f"{path} must be there, as {MODULES} says, got no such file", shape.AGAIN)
    values: Mapping[str, Any] = shape.read(path, _KNOWN[kind])
    settings = _KNOWN[kind]
    for key, value in values.items():
        if key not in settings and value not in (None, False, {}, [], ""):
            raise InputError(f"{path} sets {key} to {value!r}, which is not supported", f"Known: {', '.join(settings)}")
    return values
