"""Systems by name (:mod:`pipeline.encode.names` defines the grammar).

``bm25``, ``bm25:tuned``, ``bm25:k1=1.2,b=0.75``, ``scincl``, ``hf:org/name``, a folder, ``vectors:FILE``,
``rrf(bm25,scincl)``, ``wsum(bm25,scincl)``, ``rerank(bm25,cross:org/name,100)``, ``rerank(bm25,maxsim:org/name,100)``,
``run:FILE``, ``most-cited``, ``newest``, ``random:seed=7``; with a label, ``mine=/path/to/model``.
Scores record the name of their system as data; :func:`stored_system` reads it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pipeline.core.errors import InputError, require_known
from pipeline.core.manifest import Manifest
from pipeline.encode import kinds, names, registry
from pipeline.encode.names import Name
from pipeline.encode.spec import Model
from pipeline.exchange.entries import labelled_file, name_of
from pipeline.retrieve.engines import KINDS as INDEXES
from pipeline.retrieve.fusion import Method

DEFAULT_K1, DEFAULT_B = 0.9, 0.4
"""Anserini's default parameters of BM25."""

_RERANK = "Write rerank(bm25,cross:ORGANISATION/NAME,100), or maxsim:"

TUNED = "bm25:tuned"
"""BM25 with the parameters of ``mdcr tune``; pools without a tuning are an error. Tables call it ``bm25``."""

UNTUNED = f"bm25:k1={DEFAULT_K1:g},b={DEFAULT_B:g}"
"""BM25 with Anserini's parameters. On pools without a tuning, tables call it ``bm25``."""

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class _Named(ABC):
    @property
    @abstractmethod
    def title(self) -> Name:
        """Name of the system in tables: without folders, with labels."""

    @property
    def name(self) -> str:
        """The title as text."""
        return self.title.title

    @property
    def key(self) -> str:
        """The name without label and path."""
        return self.name


@dataclass(frozen=True)
class Bm25(_Named):
    """BM25 (Medić & Šnajder 2022, appendix A).

    Attributes:
        k1: saturation of term frequency.
        b: normalisation by document length.
        tuning: whether a tuning of the pool sets both: never (``none``), if there is one (``any``), or always.
    """

    k1: float = DEFAULT_K1
    b: float = DEFAULT_B
    tuning: Literal["none", "any", "required"] = "none"

    @property
    def title(self) -> Name:
        """The name under which scores are stored (:func:`shown` in tables): default parameters are not spelled."""
        if self.tuning == "required":
            return Name(TUNED)
        usual = (self.k1, self.b) == (DEFAULT_K1, DEFAULT_B)
        return Name("bm25", options=() if usual else (("k1", f"{self.k1:g}"), ("b", f"{self.b:g}")))


@dataclass(frozen=True)
class Baseline(_Named):
    """A ranking that reads no text, one of :data:`names.BASELINES`; ``seed`` is used by ``random``."""

    order: str
    seed: int = 13

    @property
    def title(self) -> Name:
        """The name as users write it."""
        return Name(self.order, options=(("seed", str(self.seed)),) if self.seed != Baseline.seed else ())


@dataclass(frozen=True)
class Dense(_Named):
    """An article encoder with vector search; ``label`` is its name in tables; empty: the model's name."""

    model: Model
    label: str = ""

    @property
    def title(self) -> Name:
        """The model as users write it; of a path, only the last part."""
        return replace(names.display_name(names.parse_one(self.model.name)), label=self.label)

    @property
    def key(self) -> str:
        """The name without label and path."""
        return self.model.key


@dataclass(frozen=True)
class ImportedRun(_Named):
    """A run of the pool by another tool; ``label`` is its name in tables; empty: the file's name."""

    path: Path
    label: str = ""

    @property
    def title(self) -> Name:
        """The file's name; its default label is the name without known endings: ``theirs`` for ``theirs.trec.gz``."""
        file = self.path.name
        return Name(names.RUN + file, label=self.label or name_of(self.path))

    @property
    def key(self) -> str:
        """The name, which has no path."""
        return f"run:{self.name}"


@dataclass(frozen=True)
class Fused(_Named):
    """Several systems fused by reciprocal rank, or by a weighted sum with weights chosen on validation queries."""

    method: Method
    parts: tuple[Part, ...]
    label: str = ""

    @property
    def title(self) -> Name:
        """The name as users write it, with the labels of its parts."""
        return self.of([part.title for part in self.parts])

    def of(self, parts: Iterable[Name]) -> Name:
        """Return its name with other names of its parts."""
        return Name(self.method, tuple(parts), label=self.label)


@dataclass(frozen=True)
class Reranked(_Named):
    """A system whose first entries of every query are reordered by a reranker.

    Attributes:
        first: the system that ranks first.
        model: the reranker.
        head: number of entries per query that it reads.
        label: its name in tables; empty: the name users write.
    """

    first: Part | Fused
    model: Model
    head: int
    label: str = ""

    @property
    def title(self) -> Name:
        """The name as users write it."""
        return self.of(self.first.title)

    def of(self, first: Name) -> Name:
        """Return its name with another name of the system that ranks first."""
        model = names.display_name(names.parse_one(self.model.name))
        return Name("rerank", (first, model, Name(str(self.head))), label=self.label)


Part = Baseline | Bm25 | Dense | ImportedRun
"""A system that ranks by itself."""

System = Part | Fused | Reranked


def parse_systems(text: str, precision: str | None = None, runs: Sequence[str | Path] = ()) -> list[System]:
    """Parse ``--model``: systems separated by commas.

    ``precision`` is the compute precision of encoders; None: each model's own. ``runs`` are run files, also systems:
    paths, or texts ``LABEL=FILE``.
    """
    compute = parse_precision(precision)
    typed = names.parse(text)
    systems = [*(_system(name, compute) for name in typed), *map(_imported, runs)]
    if not systems:
        raise InputError("no system was named", "Give --model, such as bm25,scincl")
    files = {os.path.realpath(system.path): system.name for system in systems if isinstance(system, ImportedRun)}
    for name, count in Counter(files.values()).items():
        if count > 1:
            raise InputError(f"runs must have different names, got {count} named {name!r}", "Rename the files")
    has_encoder = any(isinstance(system, Reranked) for system in systems) or any(
        kinds.find(part.spec.kind).takes("compute") for model in encoders(systems) for part in (model, *model.parts)
    )
    if precision is not None and not has_encoder:
        raise InputError(f"--precision={precision} must go with an encoder that computes", "Leave it out")
    for label, count in Counter(name.label for name in set(typed)).items():
        if label and count > 1:
            raise InputError(f"the label {label} must name one system, got several", "Give each its own label")
    by_name: dict[tuple[str, str | None], System] = {}
    for system in systems:
        first = by_name.setdefault((system.name, getattr(system, "tuning", None)), system)
        if _identity(first) != _identity(system):
            raise InputError(
                f"the name {system.name} must be of one system, got several", "Label them: one=/a/model,two=/b/model"
            )
    return list(by_name.values())


def _identity(system: System) -> tuple[object, ...]:
    """Return what distinguishes systems of the same name, such as models in folders of the same name."""
    return *(part.key for part in parts_of([system])), system.model.spec if isinstance(system, Reranked) else None


def parse_precision(text: str | None) -> str | None:
    """Return the compute precision for ``fp32``, ``fp16`` or ``bf16``; a full name is returned unchanged."""
    if text is None or text in PRECISIONS.values():
        return text
    require_known(text, PRECISIONS, f"--precision={text!r} is unknown")
    return PRECISIONS[text]


def system_names(text: str) -> list[str]:
    """Return each system of ``--model`` as typed."""
    return list(map(str, names.parse(text)))


def stored_names(text: str) -> tuple[str, ...]:
    """Return the names of systems in tables: labels, paths cut to their last part, BM25's parameters spelled once."""
    return tuple(_as_shown(name).title for name in names.parse(text))


def _as_shown(name: Name) -> Name:
    if name.parts is not None and not name.label:
        return replace(name, parts=tuple(map(_as_shown, name.parts)))
    if name.label or not _ranks_alone(name):
        return name if name.label else names.display_name(name)
    system = _system(name, None)
    is_default = system.name == "bm25" and isinstance(system, Bm25) and system.tuning == "none"
    return names.parse_one(UNTUNED) if is_default else system.title


def _ranks_alone(name: Name) -> bool:
    """Return whether a name is that of a system without an encoder."""
    return name.base in ("bm25", *names.BASELINES) or name.base.startswith(("bm25:", names.RUN))


def uses(text: str, base: str) -> bool:
    """Return whether a system of ``--model``, or a part of one, has a base such as ``wsum`` or :data:`TUNED`."""
    return any(inner.base == base for name in names.parse(text) for inner in name.walk())


def encoder_names(text: str) -> list[str]:
    """Return the encoders of the systems in ``--model``, as typed, each once; weights need not be installed."""
    typed = [str(name) for system in names.parse(text) for name in _encoder_names(system)]
    for name in typed:
        for part in registry.part_names(name):
            registry.kind_of(part)
    return list(dict.fromkeys(typed))


def _encoder_names(name: Name) -> list[Name]:
    if name.parts is not None and name.base in (*get_args(Method), "rerank"):
        ranking = name.parts[:1] if name.base == "rerank" else name.parts
        return [inner for part in ranking for inner in _encoder_names(part)]
    return [] if _ranks_alone(name) else [replace(name, label="")]


def stored_system(scores: Manifest) -> Name:
    """Return the system of scores; scores of earlier versions record it as text only."""
    if "system" in scores.provenance:
        return Name.of(scores.provenance["system"])
    return system_of(str(scores.config["system"]))


@cache
def system_of(text: str) -> Name:
    """Return the system with a name in tables; text that cannot be parsed is a system without parts."""
    plain, _, index = text.rpartition("@")
    if index.partition(":")[0] not in INDEXES:
        plain, index = text, ""
    (*others, name) = names.parse(plain) or [Name(plain)]
    return replace(Name(plain) if others or name.label else name, index=index)


def is_tuned(system: Name) -> bool:
    """Return whether a stored system, or a part of it, is BM25 with tuned parameters."""
    return any(part.base == TUNED for part in system.walk())


def spelled(system: Name, tuned: str, untuned: str) -> Name:
    """Return a stored system with a name each for tuned BM25 and for BM25 with Anserini's parameters."""
    by_name = {TUNED: names.parse_one(tuned), "bm25": names.parse_one(untuned)}
    return system.map(lambda part: by_name.get(part.title, part) if part.parts is None else part)


def shown(system: Name, *, tuned: bool) -> tuple[str, list[str]]:
    """Return the name of a stored system in tables, and the further names that mean it.

    Args:
        system: a stored name.
        tuned: whether its pool has a tuning. Then ``bm25`` is the tuned one.
    """
    name = spelled(system, "bm25", UNTUNED if tuned else "bm25")
    others = spelled(system, "bm25", UNTUNED), spelled(system, TUNED, UNTUNED)
    titles = [each.title for exact in (name, *others) for each in (exact, replace(exact, index=""))]
    return name.title, [title for title in dict.fromkeys(titles) if title != name.title]


def fused_names(text: str) -> list[str]:
    """Return the names in tables of the systems that a fused one combines; empty for any other system."""
    first, *others = names.parse(text) or [Name("")]
    is_fused = not others and first.base in get_args(Method) and not first.label
    return [part.title for part in first.parts or ()] if is_fused else []


def weighted(system: System) -> bool:
    """Return whether the weights of a system are chosen on validation queries."""
    fused = system.first if isinstance(system, Reranked) else system
    return isinstance(fused, Fused) and fused.method == "wsum"


def needs_tuning(system: System) -> bool:
    """Return whether a part of a system is ``bm25:tuned``."""
    return any(isinstance(part, Bm25) and part.tuning == "required" for part in parts_of([system]))


def encoders(systems: Iterable[System]) -> list[Model]:
    """Return the encoders of systems and of their parts, each once."""
    return list({part.key: part.model for part in parts_of(systems) if isinstance(part, Dense)}.values())


def parts_of(systems: Iterable[System]) -> list[Part]:
    """Return the systems that rank by themselves, including the parts of fused and reranked ones."""
    first = [system.first if isinstance(system, Reranked) else system for system in systems]
    return [part for system in first for part in (system.parts if isinstance(system, Fused) else (system,))]


def _system(name: Name, precision: str | None) -> System:
    if name.label:
        if names.is_name(name.label):
            raise InputError(f"the label {name.label} is the name of another system", "Choose another label")
        unlabelled = replace(name, label="")
        system = _system(unlabelled, precision)
        if isinstance(system, Bm25 | Baseline):
            raise InputError(
                f"{name} must label an encoder or a fusion; {unlabelled.base} has a name of its own", str(unlabelled)
            )
        return replace(system, label=name.label)
    if name.parts is not None and not name.options:
        if name.base in get_args(Method):
            return _fused(name, name.parts, precision)
        if name.base == "rerank":
            return _reranked(name, name.parts, precision)
    if name.base.startswith(names.RUN):
        return _imported(Path(name.base.removeprefix(names.RUN)))
    if name.base in names.BASELINES:
        return _baseline(name)
    return _bm25(name) if name.parts is None and _ranks_alone(name) else Dense(registry.resolve(name, precision))


def _imported(text: str | Path) -> ImportedRun:
    label, path = labelled_file(text)
    run = ImportedRun(path, "" if label == name_of(path) else label)
    if run.name in names.known_names():
        raise InputError(f"the run {path} must have a name of its own, got that of a system", "Rename the file")
    return run


def _reranked(name: Name, parts: Sequence[Name], precision: str | None) -> Reranked:
    if len(parts) != 3 or not parts[1].base.startswith(names.RERANKERS):
        raise InputError(f"{name} must name a system, a reranker and a number", _RERANK)
    head = str(parts[2])
    if not head.isdecimal() or int(head) < 1:
        raise InputError(f"{name} must rerank a whole number of entries, got {head!r}", _RERANK)
    first = _system(parts[0], precision)
    if isinstance(first, Reranked):
        raise InputError(f"{name} reranks what is reranked already", "Name the system itself")
    return Reranked(first, registry.resolve(parts[1], precision, reranker=True), int(head))


def _fused(name: Name, part_names: Sequence[Name], precision: str | None) -> Fused:
    parts = [_system(part, precision) for part in part_names]
    if len(parts) < 2:
        raise InputError(f"{name} fuses {len(parts)} systems", f"Name two or more: {name.base}(bm25,scincl)")
    if len({part.key if isinstance(part, Bm25 | Dense) else part.name for part in parts}) < len(parts):
        raise InputError(f"{name} names a system twice", "Name each once")
    ranking_parts = tuple(part for part in parts if not isinstance(part, Fused | Reranked))
    if len(ranking_parts) < len(parts):
        raise InputError(f"{name} fuses what is fused already or reranked", "Name the systems themselves")
    return Fused("rrf" if name.base == "rrf" else "wsum", ranking_parts)


def _baseline(name: Name) -> Baseline:
    seed = dict(name.options).get("seed", str(Baseline.seed))
    unknown = [key for key, _ in name.options if key != "seed" or name.base != "random"]
    if unknown or name.parts is not None or not seed.isdecimal():
        raise InputError(f"{str(name)!r} is no baseline", "Write most-cited, newest, random or random:seed=7")
    return Baseline(name.base, int(seed))


def _bm25(name: Name) -> Bm25:
    if not name.options and name.base in ("bm25", TUNED):
        return Bm25(tuning="any" if name.base == "bm25" else "required")
    values = {"k1": DEFAULT_K1, "b": DEFAULT_B}
    for key, value in name.options if name.base == "bm25" else [(name.base.partition(":")[2], "")]:
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(
                f"{(f'{key}={value}' if value else key)!r} in {str(name)!r} is not a parameter",
                f"Write bm25, {TUNED} or bm25:k1=1.2,b=0.75",
            ) from None
    if unknown := values.keys() - {"k1", "b"}:
        raise InputError(f"BM25 has no parameter {min(unknown)!r}", "Write bm25:k1=1.2,b=0.75")
    bm25 = Bm25(values["k1"], values["b"])
    if not (0 <= bm25.k1 < float("inf") and 0 <= bm25.b <= 1):
        raise InputError(f"{str(name)!r} is out of range", "k1 is at least 0, b between 0 and 1")
    return bm25
