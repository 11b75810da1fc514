"""Recipes turn a paper into the string that an encoder reads. They come from a model's folder. No torch.

The named templates are those of the model cards (SPECTER: Cohan et al. 2020; SciNCL: Ostendorff et al. 2022; SPECTER2
and control codes: Singh et al. 2023; sentence-transformers: Reimers and Gurevych 2019; E5: Wang et al. 2022).
"""

from __future__ import annotations

import functools
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.install import pip
from pipeline.core.progress import say
from pipeline.encode import hub, shape
from pipeline.encode.model import FIELD_MARK, MODULES, TEMPLATES, Role

if TYPE_CHECKING:
    from pipeline.corpus.reader import Text
    from pipeline.encode.kinds import Transformer

_PART = re.compile(r"{(title|abstract|sep|eos)(?:\|([^{}]*))?}")
_DISTANCES = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}
"""Distances by their names in sentence-transformers."""
_LENGTH = 512
_ALIKE = ("classification", "regression", "proximity")
"""Task formats of SciRepEval whose prompt precedes every paper, since no paper is a query."""
UNLIMITED = 2**31 - 1
_MULTI_VECTOR = 6
"""First version of sentence-transformers with multi-vector encoders."""
_PLAIN = "Give a model that needs no such setting"


def render(text: Text, role: Role, model: Transformer, tokenizer: Any) -> str:
    """Return the string that an encoder reads; for an ad-hoc query, the query prefix and its raw text."""
    if role == "query":
        return model.query_prefix + text.title
    separator = tokenizer.sep_token or ""
    if model.template == "title-sep-abstract":
        return model.paper_prefix + text.title + separator + text.abstract
    if model.template == "title-space-abstract":
        return model.paper_prefix + " ".join(match for match in text if match)
    if model.template == "fields-sep":
        fields = [field.strip() for field in (text.title, *text.abstract.split(FIELD_MARK))]
        return model.paper_prefix + f" {separator} ".join(field for field in fields if field)
    parts = {"title": text.title, "abstract": text.abstract, "sep": separator, "eos": tokenizer.eos_token or ""}
    return model.paper_prefix + _PART.sub(lambda match: parts[match[1]] or match[2] or "", model.template)


def check_template(template: str) -> None:
    """Raise InputError if a template is no name of :data:`TEMPLATES`, and no text with title and abstract."""
    placeholders = re.findall(r"{([a-z]*)", template)
    if template not in TEMPLATES and (
        not {"title", "abstract"} <= {*placeholders} or re.search("[{}]", _PART.sub("", template))
    ):
        raise InputError(
            f"template {template!r} must be {', '.join(TEMPLATES)}, or text with {{title}} and {{abstract}}",
            "Write it like 'title: {title|none} | text: {abstract}'; {sep} and {eos} are the tokenizer's",
        )


def of_folder(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder, named as in ``models.toml``.

    A folder without ``modules.json`` gets the SPECTER recipe: title, separator, abstract; first token; squared L2. A
    folder with it runs its own modules on title, space, abstract. As in ``encode_document`` and ``encode_query`` of
    sentence-transformers, papers get the prompt ``document`` and ad-hoc queries ``query``. These two always exist
    there, so no other prompt is taken, not even the default one. ``mdcr train`` writes more settings into
    ``config_sentence_transformers.json``: template, and without modules also pooling, adapter and PALs.

    Raises:
        InputError: the folder is malformed, or needs a setting that is not supported.
    """
    own = shape.read(folder / shape.MODEL_FILE)
    if not shape.modules(folder) and "pooling" not in own:
        length = min(_LENGTH, limit_of(folder))
        return {"template": "title-sep-abstract", "pooling": "cls", "max_length": length, "distance": "l2"}
    values = _described(folder, "SentenceTransformer")
    similarity = values.get("similarity_fn_name") or "cosine"
    require_known(similarity, _DISTANCES, f"{folder} is compared by {similarity!r}")
    settings = {"template": "title-space-abstract", "pooling": MODULES, "max_length": _length(folder)}
    settings |= {key: own[key] for key in ("template", "pooling", "pals", "normalise") if key in own}
    if "adapter" in own:
        settings["adapter"] = str(folder / shape.inside(own["adapter"], folder / shape.MODEL_FILE))
    prompts = values.get("prompts") or {}
    roles = (("paper_prefix", "document"), ("query_prefix", "query"))
    settings |= {key: prompts[name] for key, name in roles if prompts.get(name)}
    return {**settings, "distance": _DISTANCES[similarity]}


def task_prefixes(name: str, settings: dict[str, Any], folder: Path) -> dict[str, str]:
    """Remove the prompts of tasks from ``settings``; return the prefixes of the task in ``settings``."""
    of_entry, task = settings.pop("prompts", {}), settings.pop("task", "")
    if not task:
        return {}
    of_folder = shape.read(folder / shape.MODEL_FILE).get("prompts") or {}
    known = {name: text or "" for name, text in {**of_folder, **of_entry}.items()}
    if task not in known:
        raise InputError(f"{name} must have a prompt for task {task!r}, got none", nearest(task, known))
    roles = ("query_paper_prefix", "query_prefix", *(["paper_prefix"] if task in _ALIKE else []))
    return dict.fromkeys(roles, known[task])


def of_cross_encoder(folder: Path) -> dict[str, Any]:
    """Return length and prompt of a cross-encoder's folder; raise InputError at a setting that is not supported."""
    config, values = shape.read(folder / "config.json"), _described(folder, "CrossEncoder")
    heads = config.get("architectures") or ["no architecture"]
    if not heads[0].endswith("ForSequenceClassification"):
        raise InputError(f"{folder} must hold a cross-encoder, got {heads[0]}", "Name it without cross:")
    shape.modules(folder)
    for settings in (values, config.get("sentence_transformers") or {}):
        shape.activation(settings.get("activation_fn"), folder)
    shape.activation(config.get("sbert_ce_default_activation_function"), folder)
    default = values.get("default_prompt_name")
    return {"max_length": _length(folder), "prompt": (values.get("prompts") or {}).get(default) or ""}


def of_multi_vector_encoder(folder: Path) -> dict[str, Any]:
    """Check a folder, whose settings sentence-transformers reads; raise InputError if it would invent weights."""
    installed = version("sentence-transformers")
    if int(installed.partition(".")[0]) < _MULTI_VECTOR:
        raise InputError(
            f"maxsim: needs sentence-transformers {_MULTI_VECTOR} or newer, got {installed}",
            pip(f"install 'sentence-transformers>={_MULTI_VECTOR}'"),
        )
    values = shape.read(folder / shape.MODEL_FILE)
    modules = [kind for kind, _ in shape.modules(folder)]
    early_pylate = "query_prefix" in values and "Dense" in modules  # PyLate, before it wrote a type
    kind = values.get("model_type", "ColBERT" if early_pylate else "SentenceTransformer")
    if kind not in ("ColBERT", "MultiVectorEncoder") or not modules:
        raise InputError(
            f"{folder} must hold a multi-vector encoder of sentence-transformers or PyLate, got {kind} with modules "
            f"{', '.join(modules) or 'none'}",
            "Give a reranker such as lightonai/GTE-ModernColBERT-v1",
        )
    return {}


def _length(folder: Path) -> int:
    """Return the maximum number of tokens, by the rules of sentence-transformers; 512 if the folder sets none."""
    kind, first = shape.first_module(folder)
    if kind == shape.STATIC:
        truncation = shape.read(first / "tokenizer.json").get("truncation")
        return int(truncation.get("max_length", UNLIMITED) if isinstance(truncation, dict) else UNLIMITED)
    path = shape.transformer_file(first)
    transformer = shape.read(path)
    if transformer.get("processing_kwargs"):
        raise InputError(f"{path} sets processing_kwargs, which is not supported", _PLAIN)
    return int(transformer.get("max_seq_length") or limit_of(first))


def limit_of(folder: Path, default: int = _LENGTH) -> int:
    """Return the smaller of the tokenizer's limit and the network's positions; ``default`` if neither is given."""
    limits = (
        shape.read(folder / "tokenizer_config.json").get("model_max_length"),
        hub.configuration(folder).get("max_position_embeddings"),
    )
    return int(min([limit for limit in limits if limit and 0 < limit < 2**31], default=default))


def _described(folder: Path, kind: str) -> Any:
    """Return the settings of ``config_sentence_transformers.json``; raise InputError at an unsupported one."""
    path = folder / shape.MODEL_FILE
    values = shape.read(path)
    if values.get("model_type", kind) != kind:
        raise InputError(f"{folder} must hold a {kind}, got {values['model_type']}", _PLAIN)
    for key, value in values.items():
        if key not in shape.MODEL_KEYS and value not in (None, False, {}, [], ""):
            raise InputError(f"{path} sets {key} to {value!r:.80}, which is not supported", _PLAIN)
    return values


say_once = functools.cache(say)
