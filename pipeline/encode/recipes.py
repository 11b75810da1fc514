"""Recipes turn a paper into the string that an encoder reads. They come from a model's folder or MTEB. No torch.

The named templates are those of the model cards (SPECTER: Cohan et al. 2020; SciNCL: Ostendorff et al. 2022; SPECTER2
and control codes: Singh et al. 2023; sentence-transformers: Reimers and Gurevych 2019; E5: Wang et al. 2022).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError, require_known
from pipeline.core.install import optional, pip
from pipeline.core.progress import say
from pipeline.encode import hub, shape
from pipeline.encode.spec import FIELD_MARK, MODULES, TEMPLATES, Role, TransformerSpec

if TYPE_CHECKING:
    from pipeline.corpus.reader import Text

_PART = re.compile(r"{(title|abstract|sep|eos)(?:\|([^{}]*))?}")
_DISTANCES = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}
"""Distances by their names in sentence-transformers and MTEB."""
_LENGTH = 512
UNLIMITED = 2**31 - 1
_MULTI_VECTOR = 6
"""First version of sentence-transformers with multi-vector encoders."""
_PLAIN = "Give a model that needs no such setting"
_RERANKER = "Give a reranker with one label, such as cross-encoder/ms-marco-MiniLM-L6-v2"


def render(text: Text, role: Role, spec: TransformerSpec, tokenizer: Any) -> str:
    """Return the string that an encoder reads; for an ad-hoc query, the query prefix and its raw text."""
    if role == "query":
        return spec.query_prefix + text.title
    separator = tokenizer.sep_token or ""
    if spec.template == "title-sep-abstract":
        return spec.paper_prefix + text.title + separator + text.abstract
    if spec.template == "title-space-abstract":
        return spec.paper_prefix + " ".join(match for match in text if match)
    if spec.template == "fields-sep":
        fields = [field.strip() for field in (text.title, *text.abstract.split(FIELD_MARK))]
        return spec.paper_prefix + f" {separator} ".join(field for field in fields if field)
    parts = {"title": text.title, "abstract": text.abstract, "sep": separator, "eos": tokenizer.eos_token or ""}
    return spec.paper_prefix + _PART.sub(lambda match: parts[match[1]] or match[2] or "", spec.template)


def check_template(template: str) -> None:
    """Check a template.

    Raises:
        InputError: it is no name of :data:`TEMPLATES`, lacks title or abstract, or has an unknown placeholder.
    """
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
    default = values.get("default_prompt_name")
    unread = [
        name for name in ("passage", "corpus", default) if name not in ("document", "query") and prompts.get(name)
    ]
    if unread:
        say_once(
            f"{folder}: encode_document and encode_query take no prompt {' or '.join(unread)}, so it is put before no "
            "text; give it as paper_prefix or query_prefix"
        )
    return {**settings, "distance": _DISTANCES[similarity]}


def prompts(folder: Path) -> dict[str, str]:
    """Return the prompts of a folder by name."""
    by_name = shape.read(folder / shape.MODEL_FILE).get("prompts") or {}
    return {name: text or "" for name, text in by_name.items()}


def of_cross_encoder(folder: Path) -> dict[str, Any]:
    """Return length and prompt of a cross-encoder's folder; sentence-transformers reads the rest.

    Raises:
        InputError: it does not classify with one label, or needs a setting that is not supported.
    """
    config, values = shape.read(folder / "config.json"), _described(folder, "CrossEncoder")
    heads = config.get("architectures") or ["no architecture"]
    if not heads[0].endswith("ForSequenceClassification"):
        raise InputError(f"{folder} must hold a model for sequence classification, got {heads[0]}", _RERANKER)
    labels = len(config.get("id2label") or {}) or config.get("num_labels", 2)
    if labels != 1:
        raise InputError(f"the cross-encoder in {folder} must have one label, got {labels}", _RERANKER)
    shape.modules(folder)
    for settings in (values, config.get("sentence_transformers") or {}):
        shape.activation(settings.get("activation_fn"), folder)
    shape.activation(config.get("sbert_ce_default_activation_function"), folder)
    default = values.get("default_prompt_name")
    return {"max_length": _length(folder), "prompt": (values.get("prompts") or {}).get(default) or ""}


def of_multi_vector_encoder(folder: Path) -> dict[str, Any]:
    """Check the folder of a multi-vector encoder; return no settings, since sentence-transformers reads them.

    Raises:
        InputError: sentence-transformers is too old, or would initialise weights at random.
    """
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


def of_mteb(name: str, task: str = "") -> dict[str, Any]:
    """Return the settings of ``mteb.get_model_meta``: commit, distance, prompts, length (Muennighoff et al. 2023).

    They are named as in ``models.toml``; the folder gives modules and all other settings. With a ``task``,
    ``prompt_names`` lists names of prompts by role, of which the first that exists counts.

    Raises:
        InputError: mteb is not installed, does not know the model or the task, or has no commit of the model.
    """
    mteb = optional("mteb", f"mteb:{name}")
    try:
        meta = mteb.get_model_meta(name)
    except (KeyError, ValueError) as error:
        raise InputError(f"mteb has no model {name!r}", f"Write hf:{name} to take the recipe of its folder") from error
    if not meta.revision:
        raise InputError(f"mteb has no commit of {name}, so no weights that can be named", "Choose another model")
    settings: dict[str, Any] = {"hub": meta.name, "revision": meta.revision, "licence": str(meta.license or "")}
    similarity = getattr(meta.similarity_fn_name, "value", meta.similarity_fn_name)
    if similarity in _DISTANCES:
        settings["distance"] = _DISTANCES[similarity]
    loading = meta.loader_kwargs or {}
    prompts = loading.get("model_prompts") or {}
    for key, role in (("paper_prefix", "document"), ("query_prefix", "query")):
        if role in prompts:
            settings[key] = prompts[role]
    for key, mteb_key in (("dimension", "embed_dim"), ("max_length", "max_seq_length")):
        if loading.get(mteb_key):
            settings[key] = loading[mteb_key]
    loader = getattr(meta.loader, "__name__", str(meta.loader))
    not_supported = sorted(loading.keys() - _TAKEN) + ([f"loader {loader}"] if loader not in _LOADERS else [])
    if not_supported:
        say_once(
            f"mteb:{name}: not taken from mteb: {', '.join(not_supported)}; vectors may differ from a published score's"
        )
    if task:
        from pipeline.sources.mteb import find_task  # here, because it brings a client of HTTP

        task_metadata = find_task(task).metadata
        roles = ("query", "document")
        if loader == _INSTRUCT:
            prompts = {f"{task}-{role}": _instruction(mteb, task_metadata, role, loading) for role in roles}
        kind = task_metadata.type
        names = {role: (f"{task}-{role}", task, f"{kind}-{role}", kind, role) for role in roles}
        settings |= {"prompts": prompts, "prompt_names": names}
    return settings


say_once = functools.cache(say)

_INSTRUCT = "InstructSentenceTransformerModel"
_LOADERS = ("SentenceTransformerEncoderWrapper", "sentence_transformers_loader", _INSTRUCT)
_TAKEN = {"model_prompts", "embed_dim", "max_seq_length", "instruction_template", "apply_instruction_to_passages"}
_TAKEN |= {"prompts_dict", "prompt_priority", "trust_remote_code", "model_kwargs", "torch_dtype", "attn_implementation"}
"""Loading options of mteb that we apply, or that affect only the precision of vectors."""


def _instruction(mteb: Any, task: Any, role: str, loading: Mapping[str, Any]) -> str:
    """Return the instruction that mteb's wrapper of a model puts before a text."""
    if role == "document" and not loading.get("apply_instruction_to_passages", True):
        return ""
    base = mteb.models.abs_encoder
    settings = {name: loading[name] for name in ("instruction_template", "prompts_dict") if name in loading}
    priority = loading.get("prompt_priority")
    settings |= {"prompt_priority": [base.PromptSource.from_str(source) for source in priority]} if priority else {}
    wrapper = type("Wrapper", (base.AbsEncoder,), {**settings, "encode": None})()
    for name, value in settings.items():
        setattr(wrapper, name, value)
    return str(wrapper.get_task_instruction(task, mteb.types.PromptType(role)))
