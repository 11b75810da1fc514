"""Specifications of encoders: everything that affects a vector; and models, which add everything else. No torch.

Specifications of models with weights share:

- ``checkpoint``: hub id; empty for a folder, which ``revision`` alone identifies.
- ``revision``: commit of the hub repository, or ``sha256:`` and a digest of weights, tokenizer and configuration.
- ``compute``: data type of weights and activations. ``storage``: data type of stored vectors.

Encoders that are fitted on a corpus read at most ``sample`` of its papers, drawn by ``seed``, and keep the
``vocabulary`` terms with the highest document frequency in the sample.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, get_args

from pipeline.core.config import OMIT_DEFAULT, file_name
from pipeline.core.settings import Positive
from pipeline.encode.hub import Checkpoint
from pipeline.encode.views import WHOLE, VectorTransform

Role = Literal["paper", "query_paper", "query"]
"""``paper``: title and abstract of a candidate, or of a query without a prompt of its own. ``query_paper``: of a query
with one. ``query``: an ad-hoc query, which is raw text."""

Distance = Literal["l2", "inner_product", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
Storage = Literal["float32", "float16", "bfloat16"]
Quantise = Literal["", "int8", "binary"]
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


class EncoderSpec(Protocol):
    """Identity of an encoder or reranker: a frozen dataclass of plain values, with exactly what affects a vector."""

    @property
    def kind(self) -> str:
        """Name of the :class:`pipeline.encode.kinds.Kind` that can load it."""

    @property
    def storage(self) -> Storage:
        """Data type the vectors are stored in; a reranker has none."""


@dataclass(frozen=True)
class TransformerSpec:
    """A transformer, and the pooling of its last layer's states.

    Attributes:
        template: joins title and abstract. ``title-sep-abstract`` (SPECTER family): title, the tokenizer's separator,
            abstract, always with the separator; ``title-space-abstract``: empty parts skipped; ``fields-sep``
            (SciRepEval): non-empty fields, separated. Any other text has the placeholders ``{title}``, ``{abstract}``,
            ``{sep}`` and ``{eos}``; ``{title|none}`` is ``none`` for an empty title.
        pooling: a name of :data:`POOLING`, several joined by ``+`` (their vectors are concatenated), ``position:N``
            (control-code models: 1), or :data:`MODULES`: the modules in the folder's ``modules.json``.
        max_length: maximum tokens of a text, special ones included.
        normalise: whether vectors are scaled to length 1.
        adapter: hub id of a bottleneck adapter; ``local`` for one, or a fusion of several, in a folder; empty for none.
        adapter_revision: ``revision`` of the adapter.
        paper_prefix: prefix of papers (E5: ``query: ``).
        query_prefix: prefix of ad-hoc queries.
        lower_case: whether text is lower-cased before the tokenizer's own normalisation.
        pals: code of the projected attention layers (:mod:`pipeline.encode.pals`); empty without PALs.
    """

    checkpoint: str
    revision: str
    template: str = "title-sep-abstract"
    pooling: str = "cls"
    max_length: Positive = 512
    compute: Precision = "float32"
    storage: Storage = "float32"
    normalise: bool = False
    adapter: str = ""
    adapter_revision: str = ""
    paper_prefix: str = ""
    query_prefix: str = ""
    kind: str = "transformer"
    lower_case: bool = field(default=False, metadata=OMIT_DEFAULT)
    pals: Pals = field(default="", metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class AspireSpec:
    """A transformer with one vector a sentence (:mod:`pipeline.encode.aspire`).

    Attributes:
        max_tokens: maximum tokens of title and sentences together, without special tokens.
        sentences: version of the rule that splits an abstract (:func:`pipeline.encode.aspire.split_sentences`).
    """

    checkpoint: str
    revision: str
    max_tokens: Positive = 500
    compute: Precision = "float32"
    storage: Storage = "float32"
    sentences: Positive = 1
    kind: str = "aspire"


@dataclass(frozen=True)
class OagbertSpec:
    """OAG-BERT in a folder of cogdl (:mod:`pipeline.encode.oagbert`); ``version`` 2 has a second position."""

    checkpoint: str
    revision: str
    version: Literal[1, 2]
    max_length: Positive = 512
    compute: Precision = "float32"
    storage: Storage = "float32"
    kind: str = "oagbert"


@dataclass(frozen=True)
class MeanSpec:
    """The mean of several encoders' vectors (:class:`pipeline.encode.base.MeanEncoder`)."""

    parts: tuple[EncoderSpec, ...]
    storage: Storage = "float32"
    kind: str = "mean"


@dataclass(frozen=True)
class LsaSpec:
    """TF-IDF and truncated SVD fitted on a corpus (:mod:`pipeline.encode.lsa`).

    ``dimension`` is the number of components; a sample with fewer papers or terms gives fewer.
    """

    dimension: Positive = 256
    sample: Positive = 20_000
    vocabulary: Positive = 50_000
    seed: Positive = 13
    storage: Storage = "float32"
    kind: str = "lsa"


class Pair(NamedTuple):
    """A query and a paper as a reranker reads them: one string each."""

    query: str
    paper: str


@dataclass(frozen=True)
class CrossSpec:
    """A cross-encoder: everything that affects the score of a query and a paper.

    Attributes:
        max_length: maximum tokens of a pair, special ones included.
        prompt: prefix of the query.
    """

    checkpoint: str
    revision: str
    max_length: Positive = 512
    compute: Precision = "float32"
    prompt: str = field(default="", metadata=OMIT_DEFAULT)
    kind: str = field(default="cross", metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class MaxSimSpec:
    """A multi-vector encoder: everything that affects the MaxSim of a query and a paper beside its folder."""

    checkpoint: str
    revision: str
    compute: Precision = "float32"
    kind: str = field(default="maxsim", metadata=OMIT_DEFAULT)


@dataclass(frozen=True)
class WordsSpec:
    """Averaged word vectors trained on a corpus (:mod:`pipeline.encode.lsa`).

    Attributes:
        weights: ``uniform``, or ``tfidf``: weight terms by inverse document frequency.
        dimension: components of a vector.
        window: number of terms before and after a term that predict it.
        epochs: passes over the sample.
        corpus: name of the corpus they are trained on; empty: the one that is encoded.
    """

    weights: Literal["uniform", "tfidf"] = "uniform"
    dimension: Positive = 200
    window: Positive = 5
    epochs: Positive = 5
    sample: Positive = 200_000
    vocabulary: Positive = 50_000
    seed: Positive = 13
    storage: Storage = "float32"
    corpus: str = field(default="", metadata=OMIT_DEFAULT)
    kind: str = "words"


@dataclass(frozen=True)
class SentencesSpec:
    """One vector a sentence by a text encoder; ``sentences`` is the version of the sentence-splitting rule."""

    encoder: EncoderSpec
    storage: Storage = "float32"
    sentences: Positive = 1
    kind: str = "sentences"


@dataclass(frozen=True)
class VectorsSpec:
    """Vectors made elsewhere (:mod:`pipeline.encode.precomputed`).

    ``content`` is ``sha256:`` and a digest of the files' content, not of their names.
    """

    content: str
    storage: Storage = "float32"
    kind: str = "vectors"


@dataclass(frozen=True)
class Model:
    """A resolved encoder or reranker.

    Attributes:
        name: the user's name for it, with the options that differ from its entry: ``scincl:compute=bfloat16``.
        spec: its identity.
        distance: how its vectors are compared; rerankers ignore it.
        checkpoint: its weights; None for an encoder without weights.
        adapter: the weights of its adapter.
        query: name of the model that encodes ad-hoc queries; empty if it is this one.
        recipe: how texts become vectors, with the source of the settings, in one line; empty if the kind decides it.
        passage_prefix: prefix of papers that ad-hoc queries search; None: the specification's ``paper_prefix``.
        query_paper_prefix: prefix of papers that are queries; None: the specification's ``paper_prefix``.
        view: how its stored vectors are compared.
        parts: the encoders that a mean averages, or the encoder of sentences; else empty.
        multi_vector: whether a paper has several vectors; the distance of two papers is the smallest of their vectors.
        place: file or folder of vectors made elsewhere.
        missing: policy for papers without a vector; None if every paper has one.
        stem: the name without paths, for folders and parts of fused systems: weights in a folder are ``local-`` and
            their digest. Empty: the name has no path.
    """

    name: str
    spec: EncoderSpec
    distance: Distance
    checkpoint: Checkpoint | None = None
    adapter: Checkpoint | None = None
    query: str = ""
    recipe: str = ""
    passage_prefix: str | None = None
    query_paper_prefix: str | None = None
    view: VectorTransform = WHOLE
    parts: tuple[Model, ...] = ()
    multi_vector: bool = False
    place: Path | None = None
    missing: Missing | None = None
    stem: str = ""

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


def _slug(name: str) -> str:
    return file_name(name.casefold(), most=60) or "encoder"
