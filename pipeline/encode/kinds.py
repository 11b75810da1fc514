"""The kinds of encoders and rerankers: what identifies each, and how it is resolved, fitted and loaded. No torch.

:func:`register` adds a kind, from this package or from any other. Kinds with weights share:

- ``checkpoint``: hub id; empty for a folder, which ``revision`` alone identifies.
- ``revision``: commit of the hub repository, or ``sha256:`` and a digest of weights, tokenizer and configuration.
- ``compute``: data type of weights and activations.

Encoders that are fitted on a corpus read at most ``sample`` of its papers, drawn by ``seed``, and keep the
``vocabulary`` terms with the highest document frequency in the sample.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pipeline.core.config import OMIT_DEFAULT
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import Positive, convert
from pipeline.encode import hub, recipes, shape
from pipeline.encode.model import BESIDE, MODULES, POOLING, Distance, Missing, Model, Pals, Precision, Storage

_Kind = TypeVar("_Kind", bound=type[Model])

KINDS: dict[str, type[Model]] = {}
"""The kinds by name."""


def register(kind: _Kind) -> _Kind:
    """Make a kind known; it replaces a kind of the same name."""
    KINDS[kind.kind] = kind
    return kind


def find(name: str) -> type[Model]:
    """Return the kind of that name; raise InputError if there is none."""
    require_known(name, KINDS, f"there is no kind of encoder {name!r}")
    return KINDS[name]


@dataclass(frozen=True, kw_only=True)
class Pretrained(Model):
    """A network with weights of the hub, of an installed package or of a folder."""

    accelerated, loader = True, "pipeline.encode.transformer:load"
    checkpoint: str
    revision: str
    compute: Precision = "float32"

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Self:
        """Return the model whose files the settings locate."""
        with shape.reading(settings.get("folder") or settings.get("weights") or settings.get("hub")):
            return cls.of_files(name, settings, cls.locate(settings))

    @classmethod
    def locate(cls, settings: dict[str, Any]) -> hub.Checkpoint:
        """Remove the place of the files from ``settings``; return them: of a package, a folder, or the hub."""
        package, folder = settings.pop("package", ""), settings.pop("folder", "")
        hub_id, revision = settings.pop("hub", ""), settings.pop("revision", "main")
        installed = hub.packaged(package) if package else None
        if installed or folder:
            return hub.local(installed or Path(folder))
        return hub.find(hub_id, revision)

    @classmethod
    def of_files(cls, name: str, settings: dict[str, Any], files: hub.Checkpoint, **found: Any) -> Self:
        """Return the model of some files, as :meth:`Model.built`."""
        if "distance" not in found:
            found["distance"] = _distance(settings)
        return cls.built(name, settings, files=files, checkpoint=files.hub, revision=files.revision, **found)

    def ready(self) -> Path:
        """Return the folder of its files, after downloading missing weights; raises as :meth:`hub.Checkpoint.ready`."""
        if self.files is None:
            raise TypeError(f"{self.name} has no files")
        return self.files.ready()


@register
@dataclass(frozen=True, kw_only=True)
class Transformer(Pretrained):
    """A transformer, and the pooling of its last layer's states; the head of ``models.toml`` explains the settings.

    ``adapter`` is a hub id, or ``local`` for an adapter or a fusion in a folder.
    """

    kind = "transformer"
    locators = (
        *("adapter", "adapter_revision", "revision", "template"),
        *("paper_prefix", "query_prefix", "query_paper_prefix"),
    )
    template: str = "title-sep-abstract"
    pooling: str = "cls"
    max_length: Positive = 512
    normalise: bool = False
    adapter: str = ""
    adapter_revision: str = ""
    paper_prefix: str = ""
    query_prefix: str = ""
    pals: Pals = field(default="", metadata=OMIT_DEFAULT)

    @classmethod
    def of_files(cls, name: str, settings: dict[str, Any], files: hub.Checkpoint, **found: Any) -> Self:
        """Return the model of some files: what the settings do not say is what the folder says."""
        of_folder = recipes.of_folder(files.folder)
        complete = settings.keys() >= set(_COMPLETE)
        if not complete:
            settings = {**of_folder, **settings}
        settings |= recipes.task_prefixes(name, settings, files.folder)
        adapter = found["adapter_files"] = _adapter(settings)
        if adapter:
            settings |= {"adapter": adapter.hub or "local", "adapter_revision": adapter.revision}
        _check_pooling(name, settings, of_folder["pooling"] if files.folder.is_dir() else MODULES)
        recipes.check_template(settings["template"])
        found |= {key: settings.pop(key, None) for key in ("passage_prefix", "query_paper_prefix")}
        if found["query_paper_prefix"] == settings.get("paper_prefix", ""):
            found["query_paper_prefix"] = None
        model = super().of_files(name, settings, files, **found)
        origin = (
            f"of its {shape.MODULE_FILE}" if of_folder["pooling"] == MODULES else f"SPECTER's: no {shape.MODULE_FILE}"
        )
        return dataclasses.replace(model, recipe=f"{model._recipe_text()} ({'of models.toml' if complete else origin})")

    def _recipe_text(self) -> str:
        """Return the settings that turn a text into a vector, written as options."""
        prefixes = ("paper_prefix", "query_paper_prefix", "query_prefix", "passage_prefix")
        values = {key: getattr(self, key) for key in (*_COMPLETE, "normalise", *prefixes)}
        shown = {key: repr(value) if "prefix" in key else value for key, value in values.items() if value}
        return ", ".join(f"{key}={value}" for key, value in shown.items()).replace("=True", "=true")


_COMPLETE = ("template", "pooling", "max_length", "distance")
"""A recipe with these settings needs none of the model folder."""


def _check_pooling(name: str, settings: Mapping[str, Any], folder_pooling: str) -> None:
    """Check the pooling and the settings that depend on it; ``folder_pooling`` is that of the model folder."""
    pooling = settings.get("pooling", "cls")
    valid = re.fullmatch(r"position:\d+", pooling) or pooling == MODULES or set(pooling.split("+")) <= set(POOLING)
    if not valid or (pooling == MODULES != folder_pooling):
        raise InputError(f"pooling {pooling!r} of {name} is unknown", f"Choose {', '.join(POOLING)} or position:1")
    for key in ("normalise", "adapter", "pals"):
        if pooling == MODULES and settings.get(key) not in (None, False, "", "false"):
            raise InputError(
                f"{key} of {name} must go with a pooling, got the modules of its {shape.MODULE_FILE}",
                f"Add one, such as pooling={POOLING[0]}",
            )


def _distance(settings: dict[str, Any], default: Distance = "l2") -> Distance:
    """Remove the distance from ``settings``; return it."""
    distance: Distance = convert(settings.pop("distance", default), Distance, "distance")
    return distance


def _adapter(settings: dict[str, Any]) -> hub.Checkpoint | None:
    """Remove the adapter settings from ``settings``; return the adapter, from a folder or the hub."""
    adapter, revision = settings.pop("adapter", ""), settings.pop("adapter_revision", "main")
    if not adapter:
        return None
    if hub.is_folder(adapter):
        return hub.local_adapter(Path(adapter).expanduser())
    return hub.find(adapter, revision, hub.ADAPTER)


@register
@dataclass(frozen=True, kw_only=True)
class Aspire(Pretrained):
    """A transformer with one vector a sentence (:mod:`pipeline.encode.aspire`).

    ``max_tokens`` counts no special tokens; ``sentences`` is the version of the rule that splits an abstract.
    """

    kind, contextual, multi_vector = "aspire", True, True
    max_tokens: Positive = 500
    sentences: Positive = 1


@register
@dataclass(frozen=True, kw_only=True)
class Oagbert(Pretrained):
    """OAG-BERT in a folder of cogdl (:mod:`pipeline.encode.oagbert`); ``version`` 2 has a second position."""

    kind, loader, locators = "oagbert", "pipeline.encode.oagbert:load", ("weights",)
    version: Literal[1, 2]
    max_length: Positive = 512

    @classmethod
    def locate(cls, settings: dict[str, Any]) -> hub.Checkpoint:
        """Return the files of the folder ``weights``."""
        if not (place := settings.pop("weights", "")):
            raise InputError(
                "OAG-BERT must have the folder of its weights, got none",
                "Download them (github.com/THUDM/OAG-BERT, ModelScope), and write oagbert-v2:weights=FOLDER",
            )
        folder = Path(place).expanduser()
        vocabulary, version = folder / "vocab.txt", folder / "version"
        files = hub.local(folder, hub.OAGBERT, [path for path in (vocabulary, version) if path.is_file()])
        found = 2 if version.is_file() and version.read_text().strip() == "2" else 1
        if not vocabulary.is_file() or found != int(settings["version"]):
            raise InputError(
                f"{folder} must hold OAG-BERT {settings['version']} with a vocab.txt, got {found}",
                "Versions are oagbert and oagbert-v2",
            )
        return files


@register
@dataclass(frozen=True, kw_only=True)
class Mean(Model):
    """The mean of several encoders' vectors (:class:`pipeline.encode.base.MeanEncoder`)."""

    kind, loader, accelerated = "mean", "pipeline.encode.base:MeanEncoder", True
    parts: tuple[Model, ...] = ()


@register
@dataclass(frozen=True, kw_only=True)
class Sentences(Model):
    """One vector a sentence by a text encoder; ``sentences`` is the version of the sentence-splitting rule."""

    kind, loader, locators = "sentences", "pipeline.encode.aspire:SentencesEncoder", ("encoder",)
    accelerated = multi_vector = True
    encoder: Model
    sentences: Positive = 1

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Self:
        """Return the model of an ``encoder`` that is resolved already."""
        encoder = settings.pop("encoder")
        if not isinstance(encoder, Transformer):
            raise InputError(
                f"encoder of {name} must be a transformer with one vector a text, got {encoder.name!r}",
                "Write sentences:encoder=minilm",
            )
        distance = _distance(settings, encoder.distance)
        return cls.built(name, settings, distance=distance, encoder=encoder, files=encoder.files)

    @property
    def parts(self) -> tuple[Model, ...]:
        """The text encoder."""
        return (self.encoder,)


@dataclass(frozen=True, kw_only=True)
class Fitted(Model):
    """An encoder that is fitted on a corpus (:mod:`pipeline.encode.lsa`) and compared by cosine."""

    loader, fitter = "pipeline.encode.lsa:load", "pipeline.encode.lsa:fit"
    sample: Positive = 20_000
    vocabulary: Positive = 50_000
    seed: Positive = 13
    distance: Distance = field(default="cosine", metadata=BESIDE)


@register
@dataclass(frozen=True, kw_only=True)
class Lsa(Fitted):
    """TF-IDF and truncated SVD.

    ``dimension`` is the number of components; a sample with fewer papers or terms gives fewer.
    """

    kind = "lsa"
    dimension: Positive = 256


@register
@dataclass(frozen=True, kw_only=True)
class Words(Fitted):
    """Averaged word vectors.

    ``window`` terms on each side predict a term; ``corpus`` is the one they are trained on, empty: the one encoded.
    """

    kind = "words"
    weights: Literal["uniform", "tfidf"] = "uniform"
    dimension: Positive = 200
    window: Positive = 5
    epochs: Positive = 5
    sample: Positive = 200_000
    corpus: str = field(default="", metadata=OMIT_DEFAULT)


@register
@dataclass(frozen=True, kw_only=True)
class Vectors(Model):
    """Vectors made elsewhere (:mod:`pipeline.encode.precomputed`).

    ``content`` is ``sha256:`` and a digest of the files' content, not of their names.
    """

    kind, locators = "vectors", ("queries",)
    content: str

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Self:
        """Return the model of the file or folder ``place``."""
        from pipeline.encode import precomputed

        place, queries = Path(settings.pop("place")).expanduser().absolute(), settings.pop("queries", "")
        missing: Missing = convert(settings.pop("missing"), Missing, "missing")
        content, distance = precomputed.content(precomputed.find(place)), _distance(settings)
        model = cls.built(name, settings, distance=distance, content=content, place=place, missing=missing)
        query = f"vectors:{queries}:distance={distance},storage={model.storage}" if queries else ""
        return dataclasses.replace(model, query=query)

    def load(self, fit: Any, resources: Any) -> Any:  # noqa: ARG002
        """Raise InputError: these vectors encode nothing."""
        raise InputError(f"{self.name} must be an encoder, got vectors made elsewhere", "Name the encoder itself")


@dataclass(frozen=True, kw_only=True)
class Reranker(Pretrained):
    """What scores pairs of a query and a paper (:mod:`pipeline.encode.reranker`)."""

    loader, reranks = "pipeline.encode.reranker:load", True
    recipe: str = field(default="title-space-abstract, prompts and length of its folder", metadata=BESIDE)
    storage: Storage = field(default="float32", metadata=BESIDE)
    described: ClassVar[Any]
    """Returns the settings of a model folder."""

    @classmethod
    def of_files(cls, name: str, settings: dict[str, Any], files: hub.Checkpoint, **found: Any) -> Self:
        """Return the model of some files: what the settings do not say is what the folder says."""
        of_folder = cls.described(files.folder) if files.folder.is_dir() else {}  # absent: a plan
        settings = {**of_folder, **settings}
        return super().of_files(name, settings, files, distance="inner_product", **found)


@register
@dataclass(frozen=True, kw_only=True)
class Cross(Reranker):
    """A cross-encoder; ``prompt`` is a prefix of the query."""

    kind = "cross"
    described = staticmethod(recipes.of_cross_encoder)
    max_length: Positive = 512
    prompt: str = field(default="", metadata=OMIT_DEFAULT)


@register
@dataclass(frozen=True, kw_only=True)
class MaxSim(Reranker):
    """A multi-vector encoder, whose folder decides all but the precision."""

    kind = "maxsim"
    described = staticmethod(recipes.of_multi_vector_encoder)
