"""Encoders by name: the entries of ``models.toml``, any model of the hub, any folder. Nothing here imports torch."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, nearest
from pipeline.core.settings import Positive, convert
from pipeline.encode import hub, kinds, names, recipes
from pipeline.encode.names import Name
from pipeline.encode.spec import MeanSpec, Model, Quantise, VectorsSpec
from pipeline.encode.views import WHOLE, VectorTransform

_NO_OPTION = ("checkpoint", "content", "folder", "hub", "kind", "package", "place", "prompt_names", "prompts")
"""Settings of an entry that a user cannot override."""

_FACTS = ("dimensions", "exclusions", "licence", "parameters", "source", "trained_on", "trained_until")
"""Keys of an entry that affect no vector."""


def resolve(
    text: str | Name, precision: str | None = None, template: str | None = None, *, reranker: bool = False
) -> Model:
    """Return the encoder, or the reranker, of a name.

    Args:
        text: a name of ``models.toml``, ``hf:ORGANISATION/NAME``, a folder, or ``vectors:`` and a file or folder of
            vectors made elsewhere, each with options after a colon that differ from the entry:
            ``scincl:compute=bfloat16,storage=float16``; or the mean of several: ``mean(specter2,specter2_ctrl)``. A
            reranker is ``cross:`` or ``maxsim:`` and ``ORGANISATION/NAME`` or a folder.
        precision: compute precision, unless the options give one; None for the entry's.
        template: template of a transformer, unless the options give one; None for the entry's.
        reranker: whether rerankers are allowed.

    Raises:
        InputError: there is no such model, the folder holds no model, or an option is invalid.
        StageError: the model is not on this machine, and the hub cannot be reached.
    """
    given = {"compute": precision, "template": template}
    defaults = {key: value for key, value in given.items() if value is not None}
    if isinstance(text, Name):
        return _resolve(text, defaults, reranker=reranker)
    with names.pointing(text):
        return _resolve(names.parse_one(text), defaults, reranker=reranker)


def _resolve(typed: Name, defaults: Mapping[str, str], *, reranker: bool = False) -> Model:
    with names.inside(typed):
        base, options = _encoder(typed).base, _options(typed)
        if typed.parts is not None:
            return _mean(typed.parts, options, defaults)
        entry = {key: value for key, value in _entry(base, options.get("task", "")).items() if key not in _FACTS}
        if "parts" in entry:
            of_parts = dict(defaults) | {key: options.pop(key) for key in ("compute", "template") if key in options}
            model = _mean(tuple(map(Name, entry["parts"])), options, of_parts)
            changed = {key: value for key, value in of_parts.items() if value not in ("float32", "")}
            return dataclasses.replace(model, name=_format_name(base, options | changed), stem="")
        query = entry.pop("query", "")
        kind = kinds.find(entry.pop("kind", "transformer"))
        if kind.reranks and not reranker:
            raise InputError(f"{typed} has no vectors", f"Write rerank(bm25,{typed},100)")
        options = {key: value for key, value in defaults.items() if kind.takes(key)} | options
        changed = {key: value for key, value in options.items() if str(entry.get(key, "")).lower() != value}
        name = _format_name(base, changed)
        settings = {**entry, **options}
        view = WHOLE if kind.reranks else _view(settings, kind)
        if "encoder" in settings:  # of sentences
            settings["encoder"] = resolve(settings["encoder"])
        model = kind.resolve(name, settings)
        stem, query = _stem(base, changed, model), _format_name(query, options) if query else model.query
        if model.recipe:
            recipes.say_once(f"{name}: {model.recipe}")
        return dataclasses.replace(model, view=view, stem="" if stem == name else stem, query=query)


def _view(settings: dict[str, Any], kind: kinds.Kind | None = None) -> VectorTransform:
    """Remove the settings of a view of stored vectors from ``settings``; return the view."""
    dimension = 0
    if "dimension" in settings and not (kind and kind.takes("dimension")):
        dimension = convert(settings.pop("dimension"), Positive, "dimension")
    return VectorTransform(dimension, convert(settings.pop("quantise", ""), Quantise, "quantise"))


def kind_of(text: str) -> str:
    """Return the kind of an encoder; its weights need not be on this machine."""
    typed = _encoder(names.parse_one(text))
    _options(typed)
    kind: str = "mean" if typed.parts is not None else _entry(typed.base).get("kind", "transformer")
    return kind


def for_task(text: str, task: str) -> str:
    """Return a name with the option ``task`` added if its entry has a prompt for that task and it has none."""
    typed = _encoder(names.parse_one(text))
    if typed.parts is not None or "task" in dict(typed.options) or task not in _entry(typed.base).get("prompts", {}):
        return text
    return str(dataclasses.replace(typed, options=(*typed.options, ("task", task))))


def part_names(text: str) -> list[str]:
    """Return the encoders that a name averages, or the name itself."""
    typed = _encoder(names.parse_one(text))
    return list(_entry(typed.base).get("parts", [text]) if typed.parts is None else map(str, typed.parts))


def _format_name(base: str, options: Mapping[str, str]) -> str:
    return str(Name(base, options=tuple(sorted(options.items()))))


def _stem(base: str, options: Mapping[str, str], model: Model) -> str:
    """Return a name that does not depend on where the weights lie or how the hub id is written."""
    portable = dict(options)
    if model.adapter and not model.adapter.hub:
        portable["adapter"] = _local_name(model.adapter)
    if "weights" in portable and model.checkpoint:
        portable["weights"] = _local_name(model.checkpoint)
    if base.startswith(names.HUB):
        base = entry_name(base)
    elif isinstance(model.spec, VectorsSpec):
        base = f"vectors-{model.spec.content.removeprefix('sha256:')[:8]}"
        portable.pop("queries", None)
    elif base not in names.entries() and not base.startswith(names.MTEB) and model.checkpoint:
        base = _local_name(model.checkpoint)
    return _format_name(base, portable)


def entry_name(base: str) -> str:
    """Return the entry of a hub id, where there is one without an adapter; any other base as it is."""
    hub_id, entries = base.removeprefix(names.HUB), names.entries().items()
    matches = (name for name, entry in entries if entry.get("hub") == hub_id and "adapter" not in entry)
    return next(matches, base) if base.startswith(names.HUB) else base


def _local_name(checkpoint: hub.Checkpoint) -> str:
    return f"local-{checkpoint.revision.removeprefix('sha256:')[:8]}"


def _mean(averaged: Sequence[Name], options: dict[str, str], defaults: Mapping[str, str]) -> Model:
    typed = Name("mean", tuple(averaged))
    if any(name.label for name in averaged):
        raise InputError(f"{typed} must name its encoders without labels", "Label the whole: mine=mean(/one,/two)")
    parts = tuple(_resolve(name, defaults) for name in averaged)
    distances = {part.distance for part in parts}
    unsuitable = any(part.multi_vector or not kinds.find(part.spec.kind).accelerated for part in parts)
    if len(parts) < 2 or len(distances) != 1 or unsuitable:
        raise InputError(
            f"{typed} must average transformers with one vector a paper and one distance",
            "Write mean(specter2,specter2_ctrl)",
        )
    view = _view(remaining := dict(options))
    spec = kinds.build_spec(MeanSpec, {**remaining, "parts": tuple(part.spec for part in parts)})
    name = _format_name(f"mean({','.join(part.name for part in parts)})", options)
    query = f"mean({','.join(part.query or part.name for part in parts)})" if any(part.query for part in parts) else ""
    query = _format_name(query, options) if query else ""
    stem = _format_name(f"mean({','.join(part.key for part in parts)})", options)
    return Model(name, spec, parts[0].distance, parts=parts, query=query, stem=stem, view=view)


def _entry(base: str, task: str = "") -> dict[str, Any]:
    entries = names.entries()
    if base in entries:
        return dict(entries[base])
    if base.startswith(names.HUB):
        entry = entries.get(entry_name(base), {"hub": base.removeprefix(names.HUB)})
        return {key: value for key, value in entry.items() if key != "package"}
    if base.startswith(names.MTEB):
        return recipes.of_mteb(base.removeprefix(names.MTEB), task)
    if base.startswith(names.VECTORS):
        path = base.removeprefix(names.VECTORS)
        return {"kind": "vectors", "place": path, "distance": "l2", "missing": "error", "storage": "float32"}
    prefix = next((prefix for prefix in names.RERANKERS if base.startswith(prefix)), "")
    place = base.removeprefix(prefix)
    folder = Path(place).expanduser()
    reranker = {"kind": prefix[:-1], "compute": "float32"} if prefix else {}
    if hub.is_folder(place) or place in (".", ".."):
        return {**reranker, "folder": str(folder)}
    if reranker and re.fullmatch(r"[^/~.][^/]*/[^/]+", str(folder)):
        return {**reranker, "hub": str(folder)}
    if reranker and not os.path.isdir(place):
        raise InputError(f"{base} must name a model of the hub or a folder", f"Write {prefix}ORGANISATION/NAME")
    is_open = base.count("(") > base.count(")")
    if re.match(r"\w+\(", base) and (is_open or "/" not in base):
        problem = "must close its parenthesis" if is_open else "must end after its parenthesis"
        raise InputError(f"{base!r} {problem}", "Write it like rrf(bm25,scincl)")
    if "/" in base or base.startswith("~"):
        raise InputError(f"there is no model folder {base!r}", "A model of the hub is written hf:ORGANISATION/NAME")
    if os.path.isdir(place):
        raise InputError(f"there is no model {base!r}", f"A folder is written with a slash: {prefix}./{place}")
    hint = nearest(base, sorted(names.known_names() - {base})).rstrip("?")
    raise InputError(f"there is no model {base!r}", f"{hint}; or give hf:ORGANISATION/NAME or a folder")


def _encoder(typed: Name) -> Name:
    if typed.label or (typed.parts is not None and typed.base != "mean"):
        raise InputError(f"there is no model {str(typed)!r}", "Name an encoder, such as scincl or mean(scincl,specter)")
    return typed


def _options(typed: Name) -> dict[str, str]:
    for key, value in typed.options:
        if not value or key in _NO_OPTION:
            raise InputError(
                f"{f'{key}={value}'!r} in {str(typed)!r} is not an option",
                f"Write it like {typed.base}:compute=bfloat16",
            )
    return dict(typed.options)
