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
from pipeline.encode.model import Model
from pipeline.encode.names import Name

_NO_OPTION = ("checkpoint", "content", "folder", "hub", "kind", "package", "place", "prompts")
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
    return _resolve(text if isinstance(text, Name) else names.parse_one(text), defaults, reranker=reranker)


def _resolve(typed: Name, defaults: Mapping[str, str], *, reranker: bool = False) -> Model:
    base, options = _encoder(typed).base, _options(typed)
    if typed.parts is not None:
        return _mean(typed.parts, options, defaults)
    entry = {key: value for key, value in _entry(base).items() if key not in _FACTS}
    if "parts" in entry:
        of_parts = dict(defaults) | {key: options.pop(key) for key in ("compute", "template") if key in options}
        model = _mean(tuple(map(Name, entry["parts"])), options, of_parts)
        changed = {key: value for key, value in of_parts.items() if value not in ("float32", "")}
        return dataclasses.replace(model, name=_format_name(base, options | changed), stem="")
    query = entry.pop("query", "")
    kind = kinds.find(entry.pop("kind", "transformer"))
    if kind.reranks and not reranker:
        raise InputError(f"{typed} has no vectors", f"Write rerank(bm25,{typed},100)")
    options = {key: value for key, value in defaults.items() if key in kind.settings()} | options
    changed = {key: value for key, value in options.items() if str(entry.get(key, "")).lower() != value}
    name, settings = _format_name(base, changed), {**entry, **options}
    truncate_dim = 0 if kind.reranks or "dimension" in kind.settings() else _dimension(settings)
    if "encoder" in settings:  # of sentences
        settings["encoder"] = resolve(settings["encoder"])
    model = kind.of(name, settings)
    stem, query = _stem(base, changed, model), _format_name(query, options) if query else model.query
    if model.recipe:
        recipes.say_once(f"{name}: {model.recipe}")
    return dataclasses.replace(model, truncate_dim=truncate_dim, stem="" if stem == name else stem, query=query)


def _dimension(settings: dict[str, Any]) -> int:
    """Remove the number of components of stored vectors that are compared from ``settings``; return it, 0: all."""
    return int(convert(settings.pop("dimension"), Positive, "dimension")) if "dimension" in settings else 0


def for_task(text: str, task: str) -> str:
    """Return a name with the option ``task`` added if its entry has a prompt for that task and it has none."""
    typed = _encoder(names.parse_one(text))
    if typed.parts is not None or "task" in dict(typed.options) or task not in _entry(typed.base).get("prompts", {}):
        return text
    return str(dataclasses.replace(typed, options=(*typed.options, ("task", task))))


def _format_name(base: str, options: Mapping[str, str]) -> str:
    return str(Name(base, options=tuple(sorted(options.items()))))


def _stem(base: str, options: Mapping[str, str], model: Model) -> str:
    """Return a name that does not depend on where the weights lie or how the hub id is written."""
    portable = dict(options)
    if model.adapter_files and not model.adapter_files.hub:
        portable["adapter"] = _local_name(model.adapter_files)
    if "weights" in portable and model.files:
        portable["weights"] = _local_name(model.files)
    if base.startswith(names.HUB):
        base = entry_name(base)
    elif isinstance(model, kinds.Vectors):
        base = f"vectors-{model.content.removeprefix('sha256:')[:8]}"
        portable.pop("queries", None)
    elif base not in names.entries() and model.files:
        base = _local_name(model.files)
    return _format_name(base, portable)


def entry_name(base: str) -> str:
    """Return the entry of a hub id, where there is one without an adapter; any other base as it is."""
    hub_id, entries = base.removeprefix(names.HUB), names.entries().items()
    matches = (name for name, entry in entries if entry.get("hub") == hub_id and "adapter" not in entry)
    return next(matches, base) if base.startswith(names.HUB) else base


def _local_name(files: hub.Checkpoint) -> str:
    return f"local-{files.revision.removeprefix('sha256:')[:8]}"


def _mean(averaged: Sequence[Name], options: dict[str, str], defaults: Mapping[str, str]) -> Model:
    typed = Name("mean", tuple(averaged))
    if any(name.label for name in averaged):
        raise InputError(f"{typed} must name its encoders without labels", "Label the whole: mine=mean(/one,/two)")
    parts = tuple(_resolve(name, defaults) for name in averaged)
    distances = {part.distance for part in parts}
    unsuitable = any(part.multi_vector or not part.accelerated for part in parts)
    if len(parts) < 2 or len(distances) != 1 or unsuitable:
        raise InputError(
            f"{typed} must average transformers with one vector per paper and one distance",
            "Write mean(specter2,specter2_ctrl)",
        )
    truncate_dim = _dimension(remaining := dict(options))
    name = _format_name(f"mean({','.join(part.name for part in parts)})", options)
    query = f"mean({','.join(part.query or part.name for part in parts)})" if any(part.query for part in parts) else ""
    query = _format_name(query, options) if query else ""
    stem = _format_name(f"mean({','.join(part.key for part in parts)})", options)
    found = {"distance": parts[0].distance, "query": query, "stem": stem, "truncate_dim": truncate_dim}
    return kinds.Mean.built(name, remaining, parts=parts, **found)


def _entry(base: str) -> dict[str, Any]:
    entries = names.entries()
    if base in entries:
        return dict(entries[base])
    if base.startswith(names.HUB):
        entry = entries.get(entry_name(base), {"hub": base.removeprefix(names.HUB)})
        return {key: value for key, value in entry.items() if key != "package"}
    if base.startswith(names.VECTORS):
        path = base.removeprefix(names.VECTORS)
        return {"kind": "vectors", "place": path, "distance": "l2", "missing": "error", "storage": "float32"}
    prefix = next((prefix for prefix in names.RERANKERS if base.startswith(prefix)), "")
    place = base.removeprefix(prefix)
    reranker = {"kind": prefix[:-1], "compute": "float32"} if prefix else {}
    if hub.is_folder(place) or place in (".", ".."):
        return {**reranker, "folder": str(Path(place).expanduser())}
    if reranker and re.fullmatch(r"[^/~.][^/]*/[^/]+", place):
        return {**reranker, "hub": place}
    if re.match(r"\w+\(", base):
        raise InputError(f"{base!r} must end with its parenthesis", "Write it like rrf(bm25,scincl)")
    if reranker or "/" in base or os.path.isdir(place):
        write = f"{prefix or names.HUB}ORGANISATION/NAME"
        raise InputError(
            f"there is no model folder {base!r}", f"A model of the hub is written {write}, a folder {prefix}./NAME"
        )
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
