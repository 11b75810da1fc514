"""Models: what names of encoders and rerankers resolve to, one class a kind. No torch."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, get_type_hints

from pipeline.core.config import canonical, file_name
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import convert
from pipeline.encode.hub import Checkpoint

if TYPE_CHECKING:
    from pipeline.core.artifact import Artifact
    from pipeline.core.manifest import Counts
    from pipeline.core.resources import Resources
    from pipeline.core.workdir import Workdir
    from pipeline.corpus.reader import Corpus

Role = Literal["paper", "query_paper", "query"]
"""``paper``: title and abstract of a candidate, or of a query without a prompt of its own. ``query_paper``: of a query
with one. ``query``: an ad-hoc query, which is raw text."""

Distance = Literal["l2", "inner_product", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
Storage = Literal["float32", "float16"]
Missing = Literal["error", "skip"]
"""Policy for papers without a vector: refuse to rank the pool, or rank without them."""

Pals = Literal["", "[CLF]", "[PRX]", "[QRY]", "[RGN]"]
PALS: tuple[str, ...] = get_args(Pals)[1:]
"""Codes of projected attention layers."""

FIELD_MARK = "\u241f"
"""Separates further fields of a paper (SciRepEval: venue, year) inside its abstract."""

POOLING = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Pooling of token states into a vector, by the names of sentence-transformers."""

MODULES = "modules"
"""Pooling by the modules of a folder that sentence-transformers saved."""

TEMPLATES = ("title-sep-abstract", "title-space-abstract", "fields-sep")
"""Templates with a name; any other is text with ``{title}`` and ``{abstract}``."""


BESIDE = {"beside": True}
"""Metadata of a field that is no part of the identity: it affects no stored vector."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a name of an encoder or a reranker resolves to; a subclass for each kind (:mod:`pipeline.encode.kinds`).

    The fields are the identity, everything that affects a stored vector, and settings that users may type
    (``lsa:dimension=64``); those with the metadata :data:`BESIDE` are neither.

    Attributes:
        entries: entries that the kind adds to those of ``models.toml``, by name.
        locators: settings whose value is a file, a folder, another model or a branch.
        accelerated: whether it is a network that uses GPUs, one process each.
        contextual: whether its vectors are of sentences, each read in its whole text.
        loader: ``MODULE:FUNCTION`` of :meth:`load`, which is imported first then.
        fitter: that of :meth:`fit`; empty for a kind that is not fitted on a corpus before it encodes.
        multi_vector: whether a paper has several vectors; the distance of two papers is the smallest of their vectors.
        reranks: whether it scores pairs of a query and a paper, and has no vectors.
        name: the user's name for it, with the options that differ from its entry: ``scincl:compute=bfloat16``.
        query: name of the model that encodes ad-hoc queries; empty if it is this one.
        recipe: how texts become vectors, with the source of the settings, in one line; empty if the kind decides it.
        stem: the name without paths, for folders and parts of fused systems: weights in a folder are ``local-`` and
            their digest. Empty: the name has no path.
        truncate_dim: number of first components of stored vectors that are compared (Kusupati et al. 2022); 0: all.
        files: its weights and tokenizer; None for an encoder without weights.
        adapter_files: the weights of its adapter.
        passage_prefix, query_paper_prefix: prefix of papers that ad-hoc queries search, of papers that are queries;
            None: that of any paper.
        place: file or folder of vectors made elsewhere.
        missing: policy for papers without a vector; None if every paper has one.
    """

    kind: ClassVar[str]
    entries: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    locators: ClassVar[tuple[str, ...]] = ()
    accelerated: ClassVar[bool] = False
    contextual: ClassVar[bool] = False
    loader: ClassVar[str]
    fitter: ClassVar[str] = ""
    multi_vector: ClassVar[bool] = False
    reranks: ClassVar[bool] = False

    storage: Storage = "float32"
    name: str = field(default="", metadata=BESIDE)
    distance: Distance = field(default="l2", metadata=BESIDE)
    query: str = field(default="", metadata=BESIDE)
    recipe: str = field(default="", metadata=BESIDE)
    stem: str = field(default="", metadata=BESIDE)
    truncate_dim: int = field(default=0, metadata=BESIDE)
    files: Checkpoint | None = field(default=None, metadata=BESIDE)
    adapter_files: Checkpoint | None = field(default=None, metadata=BESIDE)
    passage_prefix: str | None = field(default=None, metadata=BESIDE)
    query_paper_prefix: str | None = field(default=None, metadata=BESIDE)
    place: Path | None = field(default=None, metadata=BESIDE)
    missing: Missing | None = field(default=None, metadata=BESIDE)

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Model:
        """Return the model of an entry's settings with the user's options; raise InputError at an unknown one."""
        return cls.built(name, settings)

    @classmethod
    def built(cls, name: str, settings: Mapping[str, Any], **found: Any) -> Self:
        """Return a model of ``settings``, which are checked and converted, and of fields that were ``found``."""
        types, values = get_type_hints(cls, include_extras=True), {}
        for key, value in settings.items():
            require_known(key, cls.settings(), f"{cls.kind} has no setting {key!r}")
            values[key] = value if types[key] is str else convert(value, types[key], key)
        return cls(name=name, **{**values, **found})

    @classmethod
    def settings(cls) -> list[str]:
        """Return the names of the settings that are part of the identity, such as the precision ``compute``."""
        return [one.name for one in dataclasses.fields(cls) if not one.metadata.get("beside")]

    @property
    def identity(self) -> dict[str, Any]:
        """Plain data that identifies its vectors, or scores of pairs."""
        omitted = {one.name: one.default for one in dataclasses.fields(self) if one.metadata.get("omit_default")}
        values = {name: getattr(self, name) for name in self.settings()}
        kept = {k: _plain(value) for k, value in values.items() if k not in omitted or value != omitted[k]}
        return kept if self.reranks else {**kept, "kind": self.kind}

    @property
    def parts(self) -> tuple[Model, ...]:
        """The encoders that a mean averages, or the encoder of sentences; else empty."""
        return ()

    def load(self, fit: Artifact | None, resources: Resources) -> Any:
        """Return the :class:`pipeline.encode.base.Encoder`, or what scores pairs; ``fit`` is the artifact of a fit."""
        return pkgutil.resolve_name(self.loader)(self, fit, resources)

    def fit(self, corpus: Corpus, out: Workdir) -> Counts:
        """Fit the encoder on a corpus, and write the fit into ``out``."""
        counts: Counts = pkgutil.resolve_name(self.fitter)(self, corpus, out)
        return counts

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices to load it on, one process each."""
        if not self.accelerated:
            return [resources.device]
        from pipeline.encode.network import torch_devices  # here, because it brings torch

        return torch_devices(resources.device)

    def whole(self) -> Self:
        """Return the model; raise InputError if its vectors are truncated, which only rankings of pools do."""
        if self.truncate_dim:
            raise InputError(f"{self.name} must be compared by whole vectors here", "Leave out dimension")
        return self

    @property
    def key(self) -> str:
        """The name independent of the location of the weights."""
        return self.stem or self.name

    @property
    def slug(self) -> str:
        """The key as part of a folder's name; ``vectors`` for vectors made elsewhere."""
        return _slug(self.key) if self.place is None else "vectors"

    @property
    def base_slug(self) -> str:
        """The slug without options, some of which (``distance``) do not change vectors."""
        return _slug(re.split(r":(?=\w+=)", self.key)[0]) if self.place is None else self.slug


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.identity
    return list(map(_plain, value)) if isinstance(value, tuple) else canonical(value)


def _slug(name: str) -> str:
    return file_name(name.casefold(), most=60) or "encoder"
