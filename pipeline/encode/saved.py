"""What a model folder says about texts: sentence-transformers' own settings, else SPECTER's recipe. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.encode import shape
from pipeline.encode.spec import MODULES

_SIMILARITY = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}
_PAPER_PROMPTS = ("document", "passage", "corpus")
_LENGTH = 512
_PLAIN = "Give a model that needs no such setting"


def settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder, named as in ``models.toml``.

    A folder without ``modules.json`` gets the SPECTER recipe: title, separator, abstract; first token; squared L2. One
    with it is run by its own modules and gets title, space, abstract. Papers get the prompt ``document``, ``passage``
    or ``corpus``, ad-hoc queries ``query``, and either the default prompt where there is none: what
    ``encode_document`` and ``encode_query`` of sentence-transformers do.

    Raises:
        InputError: the folder is malformed, or needs a setting that is not supported.
    """
    if not shape.modules(folder):
        most = shape.read(folder / "config.json", shape.CONFIG).get("max_position_embeddings") or _LENGTH
        return {"template": "title-sep-abstract", "pooling": "cls", "max_length": min(_LENGTH, most), "distance": "l2"}
    values = _model(folder, "SentenceTransformer")
    similarity = values.get("similarity_fn_name") or "cosine"
    if similarity not in _SIMILARITY:
        raise InputError(f"{folder} is compared by {similarity!r}", f"Known: {', '.join(_SIMILARITY)}")
    read = {
        "template": "title-space-abstract",
        "pooling": MODULES,
        "max_length": length(folder),
        "distance": _SIMILARITY[similarity],
    }
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    for key, names in (("paper_prefix", _PAPER_PROMPTS), ("query_prefix", ("query",))):
        prompt = next((prompts[name] for name in (*names, default) if prompts.get(name)), "")
        read |= {key: prompt} if prompt else {}
    return read


def prompts(folder: Path) -> dict[str, str]:
    """Return the prompts of a folder by name."""
    read = shape.read(folder / shape.MODEL_FILE, shape.SENTENCE_TRANSFORMERS).get("prompts") or {}
    return {name: text or "" for name, text in read.items()}


def cross_encoder(folder: Path) -> dict[str, Any]:
    """Return length and prompt of a cross-encoder's folder; sentence-transformers reads the rest.

    Raises:
        InputError: it does not classify with one label, or needs a setting that is not supported.
    """
    config, values = shape.read(folder / "config.json", shape.CONFIG), _model(folder, "CrossEncoder")
    heads = config.get("architectures") or ["no architecture"]
    if not heads[0].endswith("ForSequenceClassification"):
        raise InputError(f"{folder} must hold a model for sequence classification, got {heads[0]}", _RERANKER)
    labels = len(config.get("id2label") or {}) or config.get("num_labels", 2)
    if labels != 1:
        raise InputError(f"the cross-encoder in {folder} must have one label, got {labels}", _RERANKER)
    shape.modules(folder)
    for named in (
        values.get("activation_fn"),
        (config.get("sentence_transformers") or {}).get("activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    ):
        shape.activation(named, folder)
    default = values.get("default_prompt_name")
    return {"max_length": length(folder), "prompt": (values.get("prompts") or {}).get(default) or ""}


def length(folder: Path) -> int:
    """Return the tokens a text is cut to, as sentence-transformers decides it; 512 without any of its settings.

    Raises:
        InputError: a setting is malformed, or not supported.
    """
    transformer = shape.read(shape.transformer_file(folder), shape.TRANSFORMER)
    if transformer.get("processing_kwargs"):
        raise InputError(f"{shape.transformer_file(folder)} sets processing_kwargs, which is not supported", _PLAIN)
    limits = (
        shape.read(folder / "tokenizer_config.json", shape.TOKENIZER).get("model_max_length"),
        shape.read(folder / "config.json", shape.CONFIG).get("max_position_embeddings"),
    )
    limit = min([limit for limit in limits if limit and 0 < limit < 2**31], default=_LENGTH)
    return int(transformer.get("max_seq_length") or limit)


def _model(folder: Path, kind: str) -> Any:
    """Return the settings of ``config_sentence_transformers.json``; one that is not understood is an error."""
    path = folder / shape.MODEL_FILE
    values = shape.read(path, shape.SENTENCE_TRANSFORMERS)
    if values.get("model_type", kind) != kind:
        raise InputError(f"{folder} must hold a {kind}, got {values['model_type']}", _PLAIN)
    for key, value in values.items():
        if key not in shape.SENTENCE_TRANSFORMERS and value not in (None, False, {}, [], ""):
            raise InputError(f"{path} sets {key} to {value!r:.80}, which is not supported", _PLAIN)
    default = values.get("default_prompt_name")
    if default and default not in (values.get("prompts") or {}):
        raise InputError(f"default_prompt_name of {path} must be one of its prompts, got {default!r}", shape.AGAIN)
    return values


_RERANKER = "Give a reranker with one label, such as cross-encoder/ms-marco-MiniLM-L6-v2"
