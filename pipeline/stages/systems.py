"""Systems: parsed names (:mod:`pipeline.encode.names` defines the grammar) with what they resolve to.

``bm25``, ``bm25:tuned``, ``bm25:k1=1.2,b=0.75``, ``scincl``, ``hf:org/name``, a folder, ``vectors:FILE``,
``rrf(bm25,scincl)``, ``rerank(bm25,cross:org/name,100)``, ``rerank(bm25,maxsim:org/name,100)``,
``run:FILE``, ``most-cited``, ``newest``, ``random:seed=7``; with a label, ``mine=/path/to/model``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.manifest import Manifest
from pipeline.encode import names, registry
from pipeline.encode.model import Model
from pipeline.encode.names import Name
from pipeline.exchange.entries import labelled_file, name_of
from pipeline.retrieve.engines import INDEXES

DEFAULT_K1, DEFAULT_B = 0.9, 0.4
"""Anserini's default parameters of BM25."""

TUNED = "bm25:tuned"
"""BM25 with the parameters of ``mdcr tune``; pools without a tuning are an error. Tables call it ``bm25``."""

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

_RERANK = "Write rerank(bm25,cross:ORGANISATION/NAME,100), or maxsim:"
_COMBINING = ("rrf", "rerank")


@dataclass(frozen=True)
class Bm25:
    """Parameters of BM25 (Medić & Šnajder 2022, appendix A): saturation of term frequency, normalisation by length.

    A tuning of the pool sets both never (``none``), if there is one (``any``), or always (``required``).
    """

    k1: float = DEFAULT_K1
    b: float = DEFAULT_B
    tuning: Literal["none", "any", "required"] = "none"

    @property
    def title(self) -> Name:
        """The name under which scores are stored; default parameters are not spelled."""
        if self.tuning == "required":
            return Name(TUNED)
        usual = (self.k1, self.b) == (DEFAULT_K1, DEFAULT_B)
        return Name("bm25", options=() if usual else (("k1", f"{self.k1:g}"), ("b", f"{self.b:g}")))


@dataclass(frozen=True)
class Baseline:
    """A ranking that reads no text, one of :data:`names.BASELINES`; ``seed`` is used by ``random``."""

    order: str
    seed: int = 13


@dataclass(frozen=True)
class Reranker:
    """A model that reorders the first ``head`` entries of every query."""

    model: Model
    head: int


@dataclass(frozen=True)
class System:
    """What ranks: a parsed name with what it resolves to.

    ``title`` is its name in tables (:func:`display_name`): without folders, with labels. The ranker is BM25, a
    baseline, an encoder or a run file, which rank by themselves; ``rrf``, which fuses ``parts``; or a reranker of the
    only one.
    """

    title: Name
    ranker: Bm25 | Baseline | Model | Path | Literal["rrf"] | Reranker
    parts: tuple[System, ...] = ()

    @classmethod
    def bm25(cls, settings: Bm25 = Bm25()) -> System:
        """Return BM25 with fixed parameters, or with those of a tuning."""
        return cls(settings.title, settings)

    @classmethod
    def run(cls, path: Path, label: str = "") -> System:
        """Return a run by another tool; without a label, ``theirs.trec.gz`` is called ``theirs``."""
        return cls(Name(names.RUN + path.name, label=label or name_of(path)), path)

    @property
    def name(self) -> str:
        """The title as text."""
        return self.title.title

    @property
    def key(self) -> str:
        """The name without label and path."""
        if isinstance(self.ranker, Path):
            return names.RUN + self.name
        return self.ranker.key if isinstance(self.ranker, Model) else self.name

    @property
    def leaves(self) -> tuple[System, ...]:
        """The systems that rank by themselves: its parts and theirs, or itself."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) or (self,)

    @property
    def needs_tuning(self) -> bool:
        """Whether it reads ``bm25:tuned``."""
        return any(isinstance(leaf.ranker, Bm25) and leaf.ranker.tuning == "required" for leaf in self.leaves)

    def of(self, parts: Iterable[Name]) -> Name:
        """Return its title with other names of its parts."""
        return replace(self.title, parts=(*parts, *(self.title.parts or ())[len(self.parts) :]))


def parse_systems(text: str, precision: str | None = None, runs: Sequence[str | Path] = ()) -> list[System]:
    """Parse ``--model``: systems separated by commas.

    ``precision`` is the compute precision of encoders; None: each model's own. ``runs`` are run files, also systems:
    paths, or texts ``LABEL=FILE``.

    Raises:
        InputError: a name is no system; the message has the position of the part that is wrong. Or several systems have
            one name.
    """
    compute = parse_precision(precision)
    typed = names.parse(text)
    systems = [*(resolve(name, compute) for name in typed), *map(_imported, runs)]
    if not systems:
        raise InputError("no system was named", "Give --model, such as bm25,scincl")
    files = {os.path.realpath(system.ranker): system.name for system in systems if isinstance(system.ranker, Path)}
    for name, count in Counter(files.values()).items():
        if count > 1:
            raise InputError(f"runs must have different names, got {count} named {name!r}", "Rename the files")
    has_encoder = any(isinstance(system.ranker, Reranker) for system in systems) or any(
        "compute" in part.settings() for model in encoders(systems) for part in (model, *model.parts)
    )
    if precision is not None and not has_encoder:
        raise InputError(f"--precision={precision} must go with an encoder that computes", "Leave it out")
    for label, count in Counter(name.label for name in set(typed)).items():
        if label and count > 1:
            raise InputError(f"the label {label} must name one system, got several", "Give each another label")
    by_name: dict[tuple[str, str | None], System] = {}
    for system in systems:
        first = by_name.setdefault((system.name, getattr(system.ranker, "tuning", None)), system)
        if _identity(first) != _identity(system):
            raise InputError(
                f"the name {system.name} must be of one system, got several", "Label them: one=/a/model,two=/b/model"
            )
    return list(by_name.values())


def _identity(system: System) -> tuple[object, ...]:
    """Return what distinguishes systems of the same name, such as models in folders of the same name."""
    reranker = system.ranker.model.identity if isinstance(system.ranker, Reranker) else None
    return *(leaf.key for leaf in system.leaves), reranker


def parse_precision(text: str | None) -> str | None:
    """Return the compute precision for ``fp32``, ``fp16`` or ``bf16``; a full name is returned unchanged."""
    if text is None or text in PRECISIONS.values():
        return text
    require_known(text, PRECISIONS, f"--precision={text!r} is unknown")
    return PRECISIONS[text]


def encoders(systems: Iterable[System]) -> list[Model]:
    """Return the encoders of systems and of their parts, each once."""
    leaves = [leaf for system in systems for leaf in system.leaves]
    return list({leaf.key: leaf.ranker for leaf in leaves if isinstance(leaf.ranker, Model)}.values())


def ranks_without_encoder(name: Name) -> bool:
    """Return whether a name is of BM25, a baseline or a run."""
    return name.base in ("bm25", *names.BASELINES) or name.base.startswith(("bm25:", names.RUN))


def resolve(name: Name, precision: str | None = None) -> System:
    """Return the system of a name; InputError, of the part that is wrong, if there is none."""
    return _labelled(name, precision) if name.label else _resolve(name, precision)


def _labelled(name: Name, precision: str | None) -> System:
    if names.is_name(name.label):
        raise InputError(f"the label {name.label} is the name of another system", "Choose another label")
    unlabelled = replace(name, label="")
    system = resolve(unlabelled, precision)
    if isinstance(system.ranker, Bm25 | Baseline):
        raise InputError(
            f"{name} must label an encoder or a fusion; {unlabelled.base} has a name of its own", str(unlabelled)
        )
    return replace(system, title=replace(system.title, label=name.label))


def _resolve(name: Name, precision: str | None) -> System:
    if name.parts is not None and name.base in _COMBINING:
        if name.options:
            raise InputError(f"{name.base}(...) takes no options, got {name.options[0][0]}", "Leave them out")
        combined = _reranked if name.base == "rerank" else _fused
        return combined(name, name.parts, precision)
    if name.parts is not None and name.base != "mean":
        raise InputError(f"{name} combines no systems", nearest(name.base, (*_COMBINING, "mean")))
    if name.base.startswith(names.RUN):
        return _imported(Path(name.base.removeprefix(names.RUN)))
    if name.base in names.BASELINES:
        return _baseline(name)
    if ranks_without_encoder(name):
        return System.bm25(_bm25(name))
    model = registry.resolve(name, precision)
    return System(names.display_name(names.parse_one(model.name)), model)


def _imported(text: str | Path) -> System:
    label, path = labelled_file(text)
    run = System.run(path, label)
    if run.name in names.known_names():
        raise InputError(f"the run {path} must not have the name of a system", "Rename the file")
    return run


def _reranked(name: Name, parts: Sequence[Name], precision: str | None) -> System:
    if len(parts) != 3 or not parts[1].base.startswith(names.RERANKERS):
        raise InputError(f"{name} must name a system, a reranker and a number", _RERANK)
    head = str(parts[2])
    if not head.isdecimal() or int(head) < 1:
        raise InputError(f"{name} must rerank a whole number of entries, got {head!r}", _RERANK)
    first = resolve(parts[0], precision)
    if isinstance(first.ranker, Reranker):
        raise InputError(f"{name} reranks what is reranked already", "Name the system itself")
    model = registry.resolve(parts[1], precision, reranker=True)
    shown = names.display_name(names.parse_one(model.name))
    title = Name("rerank", (first.title, shown, Name(str(int(head)))))
    return System(title, Reranker(model, int(head)), (first,))


def _fused(name: Name, part_names: Sequence[Name], precision: str | None) -> System:
    parts = tuple(resolve(part, precision) for part in part_names)
    if len(parts) < 2:
        raise InputError(f"{name} fuses {len(parts)} systems", "Name two or more: rrf(bm25,scincl)")
    if len({part.key for part in parts}) < len(parts):
        raise InputError(f"{name} names a system twice", "Name each once")
    if any(part.parts for part in parts):
        raise InputError(f"{name} fuses what is fused already or reranked", "Name the systems themselves")
    return System(Name("rrf", tuple(part.title for part in parts)), "rrf", parts)


def _baseline(name: Name) -> System:
    seed = dict(name.options).get("seed", str(Baseline.seed))
    unknown = [key for key, _ in name.options if key != "seed" or name.base != "random"]
    if unknown or name.parts is not None or not seed.isdecimal():
        raise InputError(f"{str(name)!r} is no baseline", "Write most-cited, newest, random or random:seed=7")
    baseline = Baseline(name.base, int(seed))
    options = (("seed", str(baseline.seed)),) if baseline.seed != Baseline.seed else ()
    return System(Name(baseline.order, options=options), baseline)


def _bm25(name: Name) -> Bm25:
    if not name.options and name.base in ("bm25", TUNED):
        return Bm25(tuning="any" if name.base == "bm25" else "required")
    values = {"k1": DEFAULT_K1, "b": DEFAULT_B}
    for key, value in name.options if name.base == "bm25" else [(name.base.partition(":")[2], "")]:
        if value:
            require_known(key, values, f"BM25 has no parameter {key!r}")
        try:
            values[key] = float(value)
        except ValueError:
            typed, remedy = f"{key}={value}" if value else key, f"Write bm25, {TUNED} or bm25:k1=1.2,b=0.75"
            remedy = remedy if value else nearest(key, ["tuned"], remedy)
            raise InputError(f"{typed!r} in {str(name)!r} is not a parameter", remedy) from None
    bm25 = Bm25(values["k1"], values["b"])
    if not (0 <= bm25.k1 < float("inf") and 0 <= bm25.b <= 1):
        raise InputError(f"{str(name)!r} is out of range", "k1 is at least 0, b between 0 and 1")
    return bm25


UNTUNED = f"bm25:k1={DEFAULT_K1:g},b={DEFAULT_B:g}"
"""BM25 with Anserini's parameters. On pools without a tuning, tables call it ``bm25``."""


def stored_names(text: str) -> tuple[str, ...]:
    """Return the names of systems in tables: labels, paths cut to their last part, BM25's parameters spelled once."""
    return tuple(_as_shown(name).title for name in names.parse(text))


def _as_shown(name: Name) -> Name:
    if name.label:
        return name
    if name.parts is not None:
        return replace(name, parts=tuple(map(_as_shown, name.parts)))
    if not ranks_without_encoder(name):
        return names.display_name(name)
    system = resolve(name)
    return names.parse_one(UNTUNED) if system == System.bm25() else system.title


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


def exact_name(text: str) -> str:
    """Return a name in tables without its index: the same system by exact search."""
    return replace(system_of(text), index="").title


def is_tuned(system: Name) -> bool:
    """Return whether a stored system, or a part of it, is BM25 with tuned parameters."""
    return any(part.base == TUNED for part in system.walk())


def spelled(system: Name, tuned: str, untuned: str) -> Name:
    """Return a stored system with a name each for tuned BM25 and for BM25 with Anserini's parameters."""
    by_name = {TUNED: names.parse_one(tuned), "bm25": names.parse_one(untuned)}
    return system.map(lambda part: by_name.get(part.title, part) if part.parts is None else part)


def display_name(system: Name, *, tuned: bool) -> tuple[str, list[str]]:
    """Return the name of a stored system in tables, and the further names that mean it.

    ``tuned`` says whether its pool has a tuning. Then ``bm25`` is the tuned one.
    """
    name = spelled(system, "bm25", UNTUNED if tuned else "bm25")
    others = spelled(system, "bm25", UNTUNED), spelled(system, TUNED, UNTUNED)
    titles = [each.title for exact in (name, *others) for each in (exact, replace(exact, index=""))]
    return name.title, [title for title in dict.fromkeys(titles) if title != name.title]


def fused_names(text: str) -> list[str]:
    """Return the names in tables of the systems that a fused one combines; empty for any other system."""
    system = system_of(text)
    return [part.title for part in system.parts or ()] if system.base == "rrf" else []
