"""Template, pooling and length of a model folder: as sentence-transformers saves them, else SPECTER's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

_POOLING = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
_SIMILARITY = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}
_DEFAULT_LENGTH = 512


def read(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder, named as in ``models.toml``.

    A folder without ``modules.json`` gets the SPECTER recipe: title, separator, abstract; first token; squared L2.

    Raises:
        InputError: the folder needs a module or a pooling that is not supported.
    """
    limit = _json(folder / "config.json").get("max_position_embeddings")
    settings: dict[str, Any] = {"max_length": min(_DEFAULT_LENGTH, limit or _DEFAULT_LENGTH)}
    if not (folder / "modules.json").is_file():
        return {**settings, "template": "title-sep-abstract", "pooling": "cls", "distance": "l2"}
    settings |= {"template": "title-space-abstract", "distance": "cosine"}
    for module in _json(folder / "modules.json"):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Transformer":
            length = _json(folder / module["path"] / "sentence_bert_config.json").get("max_seq_length")
            settings["max_length"] = length or settings["max_length"]
        elif kind == "Pooling":
            settings["pooling"] = _pooling(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            settings["normalise"] = True
        else:
            raise InputError(
                f"{folder} needs a sentence-transformers module {kind}", "Known: Transformer, Pooling and Normalize"
            )
    similarity = _json(folder / "config_sentence_transformers.json").get("similarity_fn_name")
    if similarity:
        if similarity not in _SIMILARITY:
            raise InputError(f"{folder} is compared by {similarity!r}", f"Known: {', '.join(_SIMILARITY)}")
        settings["distance"] = _SIMILARITY[similarity]
    return settings


def _pooling(path: Path) -> str:
    values = _json(path)
    modes = [key for key, value in values.items() if key.startswith("pooling_mode_") and value]
    if len(modes) != 1 or modes[0] not in _POOLING:
        raise InputError(f"{path} needs pooling {', '.join(modes)}", f"Known: {', '.join(_POOLING)}")
    return _POOLING[modes[0]]


def _json(path: Path) -> Any:
    """Return the content of a JSON file, or an empty mapping if there is no file."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})", "Save or download the model again") from error
