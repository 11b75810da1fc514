"""Encoders by name: the entries of ``models.toml``, any model of the hub, any folder. Nothing here imports torch."""

from __future__ import annotations

import csv
import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, nearest
from pipeline.core.settings import Positive, convert
from pipeline.data import DATA
from pipeline.encode import hub, kinds, recipes
from pipeline.encode import names as grammar
from pipeline.encode.names import Name
from pipeline.encode.spec import MeanSpec, Model, Quantise, VectorsSpec
from pipeline.encode.views import WHOLE, VectorTransform

_REFERENCE = DATA / "reference"
_NO_OPTION = ("checkpoint", "content", "folder", "hub", "kind", "package", "place", "prompt_names", "prompts")
"""Settings of an entry that a user cannot override."""

_FACTS = ("dimensions", "exclusions", "licence", "parameters", "source", "trained_on", "trained_until")
"""Keys of an entry that affect no vector."""


@dataclass(frozen=True)
class KnownModel:
    """A known model as ``mdcr models`` and ``mdcr doctor`` show it.

    Attributes:
        source: hub id, installed package, ``mean(...)``, or empty for a model without weights.
        adapter: hub id of its adapter, empty for none.
        folder: its weights on this machine, or None.
        revision: commit in the local cache, or the one ``models.toml`` asks for.
        available: whether it can be used without a network.
        published: published figures, in percent, by experiment and measure: ``fields.map``.
        exclusions: where its training queries are published.
        package: Python package of the extra ``demo`` that brings its weights; empty for none.
        recipe: the other settings of the entry, with their source.
    """

    name: str
    source: str
    adapter: str
    folder: Path | None
    revision: str
    available: bool
    licence: str
    published: Mapping[str, float]
    exclusions: tuple[str, ...]
    package: str
    recipe: Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """Training data of an encoder: ``KIND: SOURCE`` of its pairs, and the last year of their papers."""

    on: str
    until: int | None

    @property
    def short(self) -> str:
        """``citations to 2020``; empty if unknown."""
        return self.on.partition(":")[0] + (f" to {self.until}" if self.on and self.until else "")


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
    if isinstance(text, str):
        with grammar.pointing(text):
            return resolve(grammar.parse_one(text), precision, template, reranker=reranker)
    with grammar.inside(text):
        return _resolve(_encoder(text), precision, template, reranker=reranker)


def _resolve(typed: Name, precision: str | None, template: str | None, *, reranker: bool) -> Model:
    base, options = typed.base, _options(typed)
    if typed.parts is not None:
        return _mean(typed.parts, options, precision, template)
    entry = {key: value for key, value in _entry(base, options.get("task", "")).items() if key not in _FACTS}
    if "parts" in entry:
        compute, template = options.pop("compute", precision), options.pop("template", template)
        model = _mean(tuple(map(Name, entry["parts"])), options, compute, template)
        options_shown = options | ({"compute": compute} if compute not in (None, "float32") else {})
        options_shown |= {"template": template} if template else {}
        return dataclasses.replace(model, name=_format_name(base, options_shown), stem="")
    query = entry.pop("query", "")
    kind = kinds.find(entry.pop("kind", "transformer"))
    if kind.reranks and not reranker:
        raise InputError(f"{typed} has no vectors", f"Write rerank(bm25,{typed},100)")
    for key, value in (("compute", precision), ("template", template)):
        if value is not None and kind.takes(key):
            options.setdefault(key, value)
    changed = {key: value for key, value in options.items() if str(entry.get(key, "")).lower() != value}
    name = _format_name(base, changed)
    settings = {**entry, **options}
    view = WHOLE if kind.reranks else _view(settings, kind)
    if "encoder" in settings:  # of sentences
        settings["encoder"] = resolve(settings["encoder"])
    model = dataclasses.replace(kind.resolve(name, settings), view=view)
    stem = _stem(base, changed, model)
    if stem != name:
        model = dataclasses.replace(model, stem=stem)
    if query:
        model = dataclasses.replace(model, query=_format_name(query, options))
    if model.recipe:
        recipes.say_once(f"{name}: {model.recipe}")
    return model


def _view(settings: dict[str, Any], kind: kinds.Kind | None = None) -> VectorTransform:
    """Remove the settings of a view of stored vectors from ``settings``; return the view."""
    dimension = 0
    if "dimension" in settings and not (kind and kind.takes("dimension")):
        dimension = convert(settings.pop("dimension"), Positive, "dimension")
    return VectorTransform(dimension, convert(settings.pop("quantise", ""), Quantise, "quantise"))


def kind_of(text: str) -> str:
    """Return the kind of an encoder; its weights need not be on this machine."""
    typed = _encoder(grammar.parse_one(text))
    _options(typed)
    kind: str = "mean" if typed.parts is not None else _entry(typed.base).get("kind", "transformer")
    return kind


def for_task(text: str, task: str) -> str:
    """Return a name with the option ``task`` added if its entry has a prompt for that task and it has none."""
    typed = _encoder(grammar.parse_one(text))
    if typed.parts is not None or "task" in dict(typed.options) or task not in _entry(typed.base).get("prompts", {}):
        return text
    return str(dataclasses.replace(typed, options=(*typed.options, ("task", task))))


def part_names(text: str) -> list[str]:
    """Return the encoders that a name averages, or the name itself."""
    typed = _encoder(grammar.parse_one(text))
    return list(_entry(typed.base).get("parts", [text]) if typed.parts is None else map(str, typed.parts))


def trainings(text: str) -> dict[str, Training]:
    """Return the training data of the encoders of systems, by entry; a mean has that of its parts.

    Systems that learn from no pairs are left out; a model without an entry has unknown training data.
    """
    by_entry: dict[str, Training] = {}
    for inner in grammar.walk(text):
        base = _entry_name(inner.base)
        entry = grammar.entries().get(base, {})
        parts = [*entry.get("parts", ()), *filter(None, [dict(inner.options).get("encoder", entry.get("encoder"))])]
        if parts:
            by_entry |= trainings(",".join(parts))
        elif inner.parts is None and _may_be_trained(base, entry):
            by_entry[base] = Training(entry.get("trained_on", ""), entry.get("trained_until"))
    return by_entry


def _may_be_trained(base: str, entry: Mapping[str, Any]) -> bool:
    if not entry:
        return base.partition(":")[0] not in ("bm25", *grammar.BASELINES) and not base.isdecimal()
    return kinds.find(entry.get("kind", "transformer")).fit is None


def published(text: str) -> Mapping[str, float]:
    """Return the published figures of a system, in percent, by ``EXPERIMENT.MEASURE``; empty for an unknown system.

    Options ``compute`` and ``storage`` are ignored; any other option makes another system.
    """
    system, *further_systems = grammar.parse(text) or [Name("")]
    if further_systems or system.label or not {key for key, _ in system.options} <= {"compute", "storage"}:
        return {}
    if system.parts is None:
        return _reference().get(system.base, {})
    means = {_mean_of(entry["parts"]): name for name, entry in grammar.entries().items() if "parts" in entry}
    return _reference().get(means.get(system, ""), {})


def _mean_of(names: Sequence[str]) -> Name:
    return Name("mean", tuple(map(Name, names)))


def as_printed(figure: float) -> str:
    """Return a published figure with one decimal, or two where it was published with two."""
    return f"{figure:.1f}" if round(figure, 1) == figure else f"{figure:.2f}"


def display_names(text: str) -> str:
    """Return names as tables show them (:func:`pipeline.encode.names.display_name`)."""
    return ",".join(str(grammar.display_name(name)) for name in grammar.parse(text))


def _format_name(base: str, options: Mapping[str, str]) -> str:
    return str(Name(base, options=tuple(sorted(options.items()))))


def _stem(base: str, options: Mapping[str, str], model: Model) -> str:
    """Return a name that does not depend on where the weights lie or how the hub id is written."""
    portable = dict(options)
    if model.adapter and not model.adapter.hub:
        portable["adapter"] = _local_name(model.adapter)
    if "weights" in portable and model.checkpoint:
        portable["weights"] = _local_name(model.checkpoint)
    if base.startswith(grammar.HUB):
        base = _entry_name(base)
    elif isinstance(model.spec, VectorsSpec):
        base = f"vectors-{model.spec.content.removeprefix('sha256:')[:8]}"
        portable.pop("queries", None)
    elif base not in grammar.entries() and not base.startswith(grammar.MTEB) and model.checkpoint:
        base = _local_name(model.checkpoint)
    return _format_name(base, portable)


def _entry_name(base: str) -> str:
    """Return the entry of a hub id, where there is one without an adapter; any other base as it is."""
    hub_id, entries = base.removeprefix(grammar.HUB), grammar.entries().items()
    matches = (name for name, entry in entries if entry.get("hub") == hub_id and "adapter" not in entry)
    return next(matches, base) if base.startswith(grammar.HUB) else base


def _local_name(checkpoint: hub.Checkpoint) -> str:
    return f"local-{checkpoint.revision.removeprefix('sha256:')[:8]}"


def _mean(names: Sequence[Name], options: dict[str, str], precision: str | None, template: str | None) -> Model:
    typed = Name("mean", tuple(names))
    if any(name.label for name in names):
        raise InputError(f"{typed} must name its encoders without labels", "Label the whole: mine=mean(/one,/two)")
    parts = tuple(resolve(name, precision, template) for name in names)
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
    stem = _format_name(f"mean({','.join(part.key for part in parts)})", options)
    query = _format_name(query, options) if query else ""
    return Model(name, spec, parts[0].distance, parts=parts, query=query, stem=stem, view=view)


def known_models() -> list[KnownModel]:
    """Return all entries with their state on this machine, without using the network."""
    return [_known_model(name) for name in grammar.entries()]


def _known_model(name: str) -> KnownModel:
    entry = grammar.entries()[name]
    parts = [_known_model(part) for part in entry.get("parts", ())]
    source, adapter, package = (entry.get(key, "") for key in ("hub", "adapter", "package"))
    folder, revision, available = None, entry.get("revision", "main") if source else "", not source
    installed = hub.packaged(package) if package else None
    if parts:
        source, available = str(_mean_of(entry["parts"])), all(part.available for part in parts)
    elif installed:
        source, folder, revision, available = package, installed, "", bool(hub.weights(installed))
    elif source and (cached := _cached(source, revision)):
        available = not adapter or _cached(adapter, entry.get("adapter_revision", "main"), hub.ADAPTER) is not None
        folder, revision = (cached.folder, cached.revision) if available else (None, revision)
    if entry.get("kind") == "oagbert":
        source, available = "weights=FOLDER", False
    return KnownModel(
        name=name,
        source=source,
        adapter=adapter,
        folder=folder,
        revision=revision,
        available=available,
        licence=", ".join(dict.fromkeys(part.licence for part in parts)) or entry.get("licence", ""),
        published=_reference().get(name, {}),
        exclusions=tuple(dict.fromkeys(chain(entry.get("exclusions", ()), *(part.exclusions for part in parts)))),
        package=package.partition("/")[0],
        recipe={key: value for key, value in entry.items() if key not in _SHOWN_ELSEWHERE},
    )


_SHOWN_ELSEWHERE = ("hub", "revision", "package", "adapter", "adapter_revision", "licence", "exclusions")
"""Keys of an entry that are fields of :class:`KnownModel`."""


def _cached(hub_id: str, revision: str, layout: hub.Layout = hub.MODEL) -> hub.Checkpoint | None:
    """Return a model or adapter of the local cache; None if it or its weights are missing."""
    checkpoint = hub.cached(hub_id, revision, layout)
    return checkpoint if checkpoint and hub.weights(checkpoint.folder, layout) else None


@functools.cache
def _reference() -> dict[str, dict[str, float]]:
    """Return the published figures by system."""
    figures: dict[str, dict[str, float]] = {}
    for path in sorted(_REFERENCE.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                key = f"{row['experiment']}.{row['measure']}"
                figures.setdefault(row["system"], {})[key] = float(row["percent"])
    return figures


def _entry(base: str, task: str = "") -> dict[str, Any]:
    entries = grammar.entries()
    if base in entries:
        return dict(entries[base])
    if base.startswith(grammar.HUB):
        entry = entries.get(_entry_name(base), {"hub": base.removeprefix(grammar.HUB)})
        return {key: value for key, value in entry.items() if key != "package"}
    if base.startswith(grammar.MTEB):
        return recipes.of_mteb(base.removeprefix(grammar.MTEB), task)
    if base.startswith(grammar.VECTORS):
        path = base.removeprefix(grammar.VECTORS)
        return {"kind": "vectors", "place": path, "distance": "l2", "missing": "error", "storage": "float32"}
    prefix = next((prefix for prefix in grammar.RERANKERS if base.startswith(prefix)), "")
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
    hint = nearest(base, sorted(grammar.known_names() - {base})).rstrip("?")
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
