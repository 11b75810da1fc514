"""The kinds of encoders: how each is resolved from its settings, fitted where it must be, and loaded.

:func:`register` adds a kind, from this package or from any other.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pipeline.core.config import canonical, from_mapping
from pipeline.core.errors import InputError, StageError, nearest, require_known
from pipeline.core.install import pip
from pipeline.core.settings import convert
from pipeline.encode import hub, recipes, shape
from pipeline.encode.spec import (
    MODULES,
    POOLING,
    AspireSpec,
    CrossSpec,
    Distance,
    LsaSpec,
    MaxSimSpec,
    MeanSpec,
    Missing,
    Model,
    OagbertSpec,
    SentencesSpec,
    TransformerSpec,
    VectorsSpec,
    WordsSpec,
)

if TYPE_CHECKING:
    from pipeline.core.artifact import Artifact
    from pipeline.core.manifest import Counts
    from pipeline.core.resources import Resources
    from pipeline.core.workdir import Workdir
    from pipeline.corpus.reader import Corpus
    from pipeline.encode.base import Encoder

_Spec = TypeVar("_Spec")


@dataclass(frozen=True)
class Kind:
    """One kind of encoder.

    Attributes:
        name: the ``kind`` of its specifications.
        resolve: ``resolve(name, settings) -> Model``, from an entry of ``models.toml`` with the user's options; it may
            change ``settings``.
        load: ``load(model, fit, resources) -> Encoder``; ``fit`` is None unless the kind has one.
        fit: ``fit(spec, corpus, out) -> counts``; for kinds that are fitted on a corpus before they encode.
        models: entries it adds to those of ``models.toml``, by name.
        accelerated: whether it is a network that uses GPUs, one process each.
        contextual: whether its vectors are of sentences, each read in its whole text.
        reranks: whether it scores pairs of a query and a paper, and has no vectors.
        locators: settings whose value is a file, a folder, another model or a branch.
    """

    name: str
    spec: type[Any]
    resolve: Callable[[str, dict[str, Any]], Model]
    load: Callable[[Model, Artifact | None, Resources], Encoder]
    fit: Callable[[Any, Corpus, Workdir], Counts] | None = None
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    accelerated: bool = False
    contextual: bool = False
    reranks: bool = False
    locators: tuple[str, ...] = ()

    def takes(self, setting: str) -> bool:
        """Whether a setting, such as the precision ``compute``, is part of the specification."""
        return any(field.name == setting for field in dataclasses.fields(self.spec))


_kinds: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind; it replaces a kind of the same name."""
    _kinds[kind.name] = kind


def unregister(name: str) -> None:
    """Remove a kind."""
    del _kinds[name]


def registered() -> list[Kind]:
    """Return all kinds."""
    return list(_kinds.values())


def find(name: str) -> Kind:
    """Return the kind of that name."""
    require_known(name, _kinds, f"there is no kind of encoder {name!r}")
    return _kinds[name]


def devices(model: Model, resources: Resources) -> list[str]:
    """Return the devices to load a model on, one process each."""
    if not find(model.spec.kind).accelerated:
        return [resources.device]
    from pipeline.encode.network import torch_devices

    return torch_devices(resources.device)


def build_spec(cls: type[_Spec], settings: Mapping[str, Any]) -> _Spec:
    """Return a specification from settings; values that users typed are checked and converted, and texts stay."""
    types = {name: kind for name, kind in get_type_hints(cls, include_extras=True).items() if kind is not str}
    typed = {key for key, value in settings.items() if key in types and isinstance(value, str | int | float)}
    values = {key: convert(value, types[key], key) if key in typed else value for key, value in settings.items()}
    return from_mapping(cls, values)


def _resolve_transformer(name: str, values: dict[str, Any]) -> Model:
    checkpoint = _checkpoint(values)
    of_folder = recipes.of_folder(checkpoint.folder)
    complete = values.keys() >= set(_COMPLETE)
    if not complete:
        values = {**of_folder, **values}
    values |= _task_prompts(name, values, checkpoint.folder)
    adapter = _adapter(values)
    if adapter:
        values |= {"adapter": adapter.hub or "local", "adapter_revision": adapter.revision}
    _check_pooling(name, values, of_folder["pooling"] if checkpoint.folder.is_dir() else MODULES)
    if shape.first_module(checkpoint.folder)[0] == shape.STATIC and values["pooling"] != MODULES:
        raise InputError(
            f"pooling of {name} must be modules, got {values['pooling']} of a {shape.STATIC}", "Leave it out"
        )
    recipes.check_template(values["template"])
    passage, query_paper = values.pop("passage_prefix", None), values.pop("query_paper_prefix", None)
    if query_paper == values.get("paper_prefix", ""):
        query_paper = None
    model = _pretrained(TransformerSpec, name, values, checkpoint)
    model = dataclasses.replace(model, adapter=adapter, passage_prefix=passage, query_paper_prefix=query_paper)
    origin = f"of its {shape.MODULE_FILE}" if of_folder["pooling"] == MODULES else f"SPECTER's: no {shape.MODULE_FILE}"
    return dataclasses.replace(model, recipe=f"{_recipe_text(model)} ({'of models.toml' if complete else origin})")


_COMPLETE = ("template", "pooling", "max_length", "distance")
"""A recipe with these settings needs none of the model folder."""


def _recipe_text(model: Model) -> str:
    """Return the settings that turn a text into a vector, written as options."""

    def text_of(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return repr(value) if isinstance(value, str) and (value != value.strip() or "\n" in value) else str(value)

    values = {**canonical(model.spec), "distance": model.distance}
    values |= {"query_paper_prefix": model.query_paper_prefix, "passage_prefix": model.passage_prefix}
    prefixes = ("paper_prefix", "query_paper_prefix", "query_prefix", "passage_prefix")
    keys = (*_COMPLETE, "normalise", *prefixes, "lower_case")
    return ", ".join(f"{key}={text_of(values[key])}" for key in keys if values.get(key) not in (False, "", None))


def _task_prompts(name: str, values: dict[str, Any], folder: Path) -> dict[str, str]:
    """Remove the prompts of tasks from ``values``; return the prefixes of the task in ``values``.

    An MTEB task takes the first prompt of its names that exists, for queries and for documents; there may be none.
    """
    prompts, task, names = values.pop("prompts", {}), values.pop("task", ""), values.pop("prompt_names", None)
    if not task:
        return {}
    if names is not None:
        texts = prompts or recipes.prompts(folder)
        by_role = {role: next((texts[key] for key in keys if key in texts), None) for role, keys in names.items()}
        keys = {"query_paper_prefix": "query", "query_prefix": "query", "paper_prefix": "document"}
        return {key: text for key, role in keys.items() if (text := by_role[role]) is not None}
    texts = {**recipes.prompts(folder), **prompts}
    if task not in texts:
        raise InputError(f"{name} must have a prompt for task {task!r}, got none", nearest(task, texts))
    prompt = texts[task]
    papers = {"paper_prefix": prompt} if task in _ALIKE else {}
    return {**papers, "query_paper_prefix": prompt, "query_prefix": prompt}


_ALIKE = ("classification", "regression", "proximity")
"""Task formats of SciRepEval whose prompt precedes every paper, since no paper is a query."""


def _check_pooling(name: str, values: Mapping[str, Any], folder_pooling: str) -> None:
    """Check the pooling and the settings that depend on it; ``folder_pooling`` is that of the model folder."""
    pooling = values.get("pooling", "cls")
    valid = re.fullmatch(r"position:\d+", pooling) or pooling == MODULES or set(pooling.split("+")) <= set(POOLING)
    if not valid or (pooling == MODULES != folder_pooling):
        raise InputError(f"pooling {pooling!r} of {name} is unknown", f"Choose {', '.join(POOLING)} or position:1")
    for key in ("normalise", "lower_case", "adapter", "pals"):
        if pooling == MODULES and values.get(key) not in (None, False, "", "false"):
            raise InputError(
                f"{key} of {name} must go with a pooling, got the modules of its {shape.MODULE_FILE}",
                f"Add one, such as pooling={POOLING[0]}",
            )


def _resolve_aspire(name: str, values: dict[str, Any]) -> Model:
    return dataclasses.replace(_pretrained(AspireSpec, name, values, _checkpoint(values)), multi_vector=True)


def _resolve_oagbert(name: str, values: dict[str, Any]) -> Model:
    if not (place := values.pop("weights", "")):
        raise InputError(
            f"{name} must have the folder of its weights, got none",
            f"Download them as github.com/THUDM/OAG-BERT says (ModelScope), and write {name}:weights=FOLDER",
        )
    folder = Path(place).expanduser()
    extra = [path for path in (folder / "vocab.txt", folder / "version") if path.is_file()]
    checkpoint = hub.local(folder, hub.OAGBERT, extra)
    found = 2 if (folder / "version").is_file() and (folder / "version").read_text().strip() == "2" else 1
    if not (folder / "vocab.txt").is_file() or found != int(values["version"]):
        raise InputError(
            f"{folder} must hold OAG-BERT {values['version']} with a vocab.txt, got {found}",
            "Versions are oagbert and oagbert-v2",
        )
    return _pretrained(OagbertSpec, name, values, checkpoint)


def _pretrained(spec: type[Any], name: str, values: dict[str, Any], checkpoint: hub.Checkpoint) -> Model:
    """Return a model with weights; the distance is not part of its specification."""
    distance = convert(values.pop("distance", "l2"), Distance, "distance")
    built = build_spec(spec, {**values, "checkpoint": checkpoint.hub, "revision": checkpoint.revision})
    return Model(name, built, distance, checkpoint)


def _load_composite(model: Model, _fit: Artifact | None, resources: Resources) -> Encoder:
    from pipeline.encode.aspire import SentencesEncoder
    from pipeline.encode.base import MeanEncoder

    parts = [find(part.spec.kind).load(part, None, resources) for part in model.parts]
    return MeanEncoder(parts) if isinstance(model.spec, MeanSpec) else SentencesEncoder(parts)


def _adapter(values: dict[str, Any]) -> hub.Checkpoint | None:
    """Remove the adapter settings from ``values``; return the adapter, from a folder or the hub."""
    adapter, revision = values.pop("adapter", ""), values.pop("adapter_revision", "main")
    if not adapter:
        return None
    if hub.is_folder(adapter):
        return hub.local_adapter(Path(adapter).expanduser())
    return hub.find(adapter, revision, hub.ADAPTER)


def _checkpoint(values: dict[str, Any]) -> hub.Checkpoint:
    """Remove the location of the weights from ``values``; return them: an installed package, a folder, or the hub."""
    package, folder = values.pop("package", ""), values.pop("folder", "")
    hub_id, revision = values.pop("hub", ""), values.pop("revision", "main")
    installed = hub.packaged(package) if package else None
    if installed or folder:
        return hub.local(installed or Path(folder))
    try:
        return hub.find(hub_id, revision)
    except StageError as error:
        if not package:
            raise
        line = pip(f"install {package.partition('/')[0]}")
        raise StageError(error.what, f"{line}, which carries it") from error


def _load_network(model: Model, _fit: Artifact | None, resources: Resources) -> Any:
    from pipeline.encode import oagbert, reranker, transformer  # here, because they bring torch

    loaders = {"oagbert": oagbert.load, "cross": reranker.CrossEncoder.load, "maxsim": reranker.MaxSim.load}
    return loaders.get(model.spec.kind, transformer.TransformerEncoder.load)(model, resources)


def _resolve_reranker(
    spec: type[Any], describe: Callable[[Path], Mapping[str, Any]], name: str, values: dict[str, Any]
) -> Model:
    checkpoint = _checkpoint(values)
    of_folder = describe(checkpoint.folder) if checkpoint.folder.is_dir() else {}  # absent: a plan
    location = {"checkpoint": checkpoint.hub, "revision": checkpoint.revision}
    built = build_spec(spec, {**of_folder, **values, **location})
    inputs = "prompts and lengths of its folder"
    if isinstance(built, CrossSpec):
        inputs = f"max_length={built.max_length}" + (f", prompt={built.prompt!r}" if built.prompt else "")
    return Model(name, built, "inner_product", checkpoint, recipe=f"title-space-abstract, {inputs}")


def _resolve_fitted(spec: type[Any], name: str, values: dict[str, Any]) -> Model:
    return Model(name, build_spec(spec, values), "cosine")


def _load_fitted(model: Model, fit: Artifact | None, _resources: Resources) -> Encoder:
    from pipeline.encode import lsa

    if fit is None:
        raise TypeError(f"{model.name} is loaded from the artifact of its fit")
    return (lsa.WordsEncoder if isinstance(model.spec, WordsSpec) else lsa.LsaEncoder).open(fit)


def _fit(spec: LsaSpec | WordsSpec, corpus: Corpus, out: Workdir) -> Counts:
    from pipeline.encode import lsa

    return lsa.fit(spec, corpus, out)


def _resolve_sentences(name: str, values: dict[str, Any]) -> Model:
    encoder: Model = values.pop("encoder")
    if encoder.multi_vector or not isinstance(encoder.spec, TransformerSpec):
        raise InputError(
            f"encoder of {name} must be a transformer with one vector a text, got {encoder.name!r}",
            "Write sentences:encoder=minilm",
        )
    distance = convert(values.pop("distance", encoder.distance), Distance, "distance")
    spec = build_spec(SentencesSpec, {**values, "encoder": encoder.spec})
    return Model(name, spec, distance, encoder.checkpoint, parts=(encoder,), multi_vector=True)


def _resolve_vectors(name: str, values: dict[str, Any]) -> Model:
    from pipeline.encode import precomputed

    path, queries = Path(values.pop("place")).expanduser().absolute(), values.pop("queries", "")
    distance = convert(values.pop("distance"), Distance, "distance")
    missing = convert(values.pop("missing"), Missing, "missing")
    spec = build_spec(VectorsSpec, {**values, "content": precomputed.content(precomputed.find(path))})
    query = f"vectors:{queries}:distance={distance},storage={spec.storage}" if queries else ""
    return Model(name, spec, distance, query=query, place=path, missing=missing)


def _load_vectors(model: Model, _fit: Artifact | None, _resources: Resources) -> Encoder:
    raise InputError(f"{model.name} must be an encoder, got vectors made elsewhere", "Name the encoder itself")


_WEIGHTS = ("adapter", "adapter_revision", "revision", "template", "paper_prefix", "query_prefix", "query_paper_prefix")
register(Kind("transformer", TransformerSpec, _resolve_transformer, _load_network, accelerated=True, locators=_WEIGHTS))
register(Kind("oagbert", OagbertSpec, _resolve_oagbert, _load_network, accelerated=True, locators=("weights",)))
register(Kind("aspire", AspireSpec, _resolve_aspire, _load_network, accelerated=True, contextual=True))
register(Kind("mean", MeanSpec, partial(_resolve_fitted, MeanSpec), _load_composite, accelerated=True))
register(Kind("lsa", LsaSpec, partial(_resolve_fitted, LsaSpec), _load_fitted, _fit))
register(Kind("vectors", VectorsSpec, _resolve_vectors, _load_vectors, locators=("queries",)))
register(Kind("words", WordsSpec, partial(_resolve_fitted, WordsSpec), _load_fitted, _fit))
register(Kind("sentences", SentencesSpec, _resolve_sentences, _load_composite, accelerated=True, locators=("encoder",)))
for _spec, _describe in ((CrossSpec, recipes.of_cross_encoder), (MaxSimSpec, recipes.of_multi_vector_encoder)):
    _resolve = partial(_resolve_reranker, _spec, _describe)
    register(Kind(_spec.kind, _spec, _resolve, _load_network, accelerated=True, reranks=True))
