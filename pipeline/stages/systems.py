"""The systems users name.

``bm25``, ``bm25:tuned``, ``bm25:k1=1.2,b=0.75``, ``scincl``, ``hf:org/name``, a folder, ``vectors:FILE``,
``rrf(bm25,scincl)``, ``wsum(bm25,scincl)``, ``rerank(bm25,cross:org/name,100)``, ``run:FILE``; with a label of the
user's own, ``mine=/path/to/model``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pipeline.core.config import pairs
from pipeline.core.errors import InputError, nearest
from pipeline.encode import registry
from pipeline.encode.spec import CrossModel, Model

Method = Literal["rrf", "wsum"]
"""How systems are fused (:mod:`pipeline.retrieve.fusion`)."""

DEFAULT_K1, DEFAULT_B = 0.9, 0.4
"""BM25 as Anserini sets it."""

_RERANK = "Write rerank(bm25,cross:ORGANISATION/NAME,100)"

_FUSED = r"(rrf|wsum)\((.*)\)"

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Bm25:
    """BM25 (Medić & Šnajder 2022, appendix A).

    Attributes:
        k1: saturation of term frequency.
        b: normalisation by length.
        tuning: whether a tuning of the pool decides both: never, where there is one, or always.
    """

    k1: float = DEFAULT_K1
    b: float = DEFAULT_B
    tuning: Literal["none", "any", "required"] = "none"

    @property
    def name(self) -> str:
        """As users write it; tuned parameters, which differ between pools, are ``bm25:tuned``."""
        if self.tuning == "required":
            return "bm25:tuned"
        return "bm25" if (self.k1, self.b) == (DEFAULT_K1, DEFAULT_B) else f"bm25:k1={self.k1:g},b={self.b:g}"

    @property
    def key(self) -> str:
        """The name, which has no label."""
        return self.name


@dataclass(frozen=True)
class Dense:
    """An article encoder with exact search of its vectors; ``label`` is its name in tables, empty for the model's."""

    model: Model
    label: str = ""

    @property
    def name(self) -> str:
        """Its label, or the model as users write it, without the folders that a path leads through."""
        return self.label or registry.shown(self.model.name)

    @property
    def key(self) -> str:
        """The name without label and path."""
        return self.model.key


@dataclass(frozen=True)
class ImportedRun:
    """A run of the pool that another tool made; ``label`` is its name in tables, empty for the file's."""

    path: Path
    label: str = ""

    @property
    def name(self) -> str:
        """Its label, or the name of the file without endings: ``theirs.trec.gz`` is ``theirs``."""
        return self.label or self.path.name.removesuffix(".gz").rpartition(".")[0] or self.path.name

    @property
    def key(self) -> str:
        """The name, which has no path."""
        return f"run:{self.name}"


@dataclass(frozen=True)
class Fused:
    """Several systems fused by reciprocal rank, or by a weighted sum with weights chosen on validation queries."""

    method: Method
    parts: tuple[Bm25 | Dense | ImportedRun, ...]
    label: str = ""

    @property
    def name(self) -> str:
        """Its label, or as users write it with the labels of its parts."""
        return self.label or f"{self.method}({','.join(part.name for part in self.parts)})"


@dataclass(frozen=True)
class Reranked:
    """A system whose first entries of every query a cross-encoder orders anew.

    Attributes:
        first: the system that ranks first.
        model: the cross-encoder.
        head: entries of a query that it reads.
        label: its name in tables, empty for the one users write.
    """

    first: Bm25 | Dense | Fused | ImportedRun
    model: CrossModel
    head: int
    label: str = ""

    @property
    def name(self) -> str:
        """Its label, or as users write it."""
        return self.named(self.first.name)

    def named(self, first: str) -> str:
        """Return the name with another name for the system that ranks first."""
        return self.label or f"rerank({first},{registry.shown(self.model.name)},{self.head})"


System = Bm25 | Dense | Fused | ImportedRun | Reranked


def parse_systems(text: str, precision: str | None = None, runs: Sequence[Path] = ()) -> list[System]:
    """Read ``--model``: systems separated by commas.

    ``precision`` is of the encoders, None for each model's own; ``runs`` are run files, which are systems too.
    """
    compute = parse_precision(precision)
    systems = [*(_parse(name, compute) for name in system_names(text)), *map(_imported, runs)]
    if not systems:
        raise InputError("no system was named", "Give --model, such as bm25,scincl")
    files = {os.path.realpath(system.path): system.name for system in systems if isinstance(system, ImportedRun)}
    for name, count in Counter(files.values()).items():
        if count > 1:
            raise InputError(f"runs must have different names, got {count} named {name!r}", "Rename the files")
    names = system_names(text)
    computing = any(isinstance(system, Reranked) for system in systems) or any(
        hasattr(part.spec, "compute") for model in encoders(systems) for part in (model, *model.parts)
    )
    if precision is not None and not computing:
        raise InputError(f"--precision={precision} must go with an encoder that computes", "Leave it out")
    for label in [_labelled(name)[0] for name in names]:
        if label and sum(_labelled(name)[0] == label for name in set(names)) > 1:
            raise InputError(f"the label {label} must name one system, got several", "Give each its own label")
    by_name: dict[tuple[str, str | None], System] = {}
    for system in systems:
        other = by_name.setdefault((system.name, getattr(system, "tuning", None)), system)
        if _identity(other) != _identity(system):
            raise InputError(
                f"the name {system.name} must be of one system, got several", "Label them: one=/a/model,two=/b/model"
            )
    return list(by_name.values())


def _identity(system: System) -> tuple[object, ...]:
    """Return what tells apart systems of one name, which folders of one name may have."""
    return *(part.key for part in parts_of([system])), system.model.spec if isinstance(system, Reranked) else None


def parse_precision(text: str | None) -> str | None:
    """Return the compute precision that ``fp32``, ``fp16`` or ``bf16`` means, or its own name."""
    if text is None or text in PRECISIONS.values():
        return text
    if text not in PRECISIONS:
        raise InputError(f"--precision={text!r} is unknown", nearest(text, PRECISIONS))
    return PRECISIONS[text]


def system_names(text: str) -> list[str]:
    """Split ``--model`` at the commas between systems, not at those in parentheses or between parameters."""
    names: list[str] = []
    for piece in registry.split_names(text):
        if names and _is_option(piece) and re.search(r":\w+\s*=", names[-1]):
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def stored_names(text: str) -> tuple[str, ...]:
    """Return the names under which the scores of systems are stored: labels, and BM25's parameters spelled once."""
    return tuple(_labelled(name)[0] or _stored_name(name) for name in system_names(text))


def _stored_name(name: str) -> str:
    if fused := re.fullmatch(_FUSED, name):
        return f"{fused[1]}({','.join(stored_names(fused[2]))})"
    if name.startswith("rerank(") and len(parts := system_names(name.removeprefix("rerank(").removesuffix(")"))) == 3:
        return f"rerank({','.join(stored_names(parts[0]))},{registry.shown(parts[1])},{parts[2]})"
    if name.startswith(("bm25", "run:")):
        return _parse(name, None).name
    return registry.shown(name)


def encoder_names(text: str) -> list[str]:
    """Return the encoders of the systems in ``--model``, as typed, each once; weights need not be on this machine."""
    names: list[str] = []
    for name in (_labelled(each)[1] for each in system_names(text)):
        inside = re.fullmatch(r"(?:rrf|wsum|rerank)\((.*)\)", name)
        if inside:
            parts = system_names(inside[1])
            names += encoder_names(",".join(parts[:1] if name.startswith("rerank(") else parts))
        else:
            names += [name] * (name.partition(":")[0] not in ("bm25", "run"))
    for name in names:
        for part in registry.part_names(name):
            registry.kind_of(part)
    return list(dict.fromkeys(names))


def encoders(systems: Iterable[System]) -> list[Model]:
    """Return the encoders of systems, also of fused ones, each once."""
    return list({part.key: part.model for part in parts_of(systems) if isinstance(part, Dense)}.values())


def parts_of(systems: Iterable[System]) -> list[Bm25 | Dense | ImportedRun]:
    """Return the systems that rank by themselves, of fused and reranked ones too."""
    first = [system.first if isinstance(system, Reranked) else system for system in systems]
    return [part for system in first for part in (system.parts if isinstance(system, Fused) else (system,))]


def _is_option(piece: str) -> bool:
    """Whether a piece between commas is an option of the system before it, not a system with a label."""
    found = re.fullmatch(r"(\w+)\s*=([^:/]*)", piece)
    return piece.startswith(("adapter=", "queries=")) or (found is not None and not _is_system(found[2].strip()))


def _is_system(text: str) -> bool:
    return (
        bool(re.match(r"(mean|rrf|wsum|rerank)\(", text)) or text in ("bm25", *registry.names()) or Path(text).is_dir()
    )


def _labelled(text: str) -> tuple[str, str]:
    """Split ``mine=/path/to/model`` into label and system; the label is empty where there is none."""
    found = re.fullmatch(r"([A-Za-z][\w.+-]*)\s*=\s*(.+)", text)
    return ("", text) if found is None or Path(text).is_dir() else (found[1], found[2])


def _parse(name: str, precision: str | None) -> System:
    label, plain = _labelled(name)
    if label:
        if _is_system(label):
            raise InputError(f"the label {label} is the name of another system", "Choose another label")
        system = _parse(plain, precision)
        if isinstance(system, Bm25):
            raise InputError(f"{name} must label an encoder or a fusion; BM25 is named by its parameters", plain)
        return replace(system, label=label)
    parts = registry.split_names(name[len("mean(") :].rpartition(")")[0]) if name.startswith("mean(") else []
    if any(_labelled(part)[0] and not _is_option(part) for part in parts):
        raise InputError(f"{name} must name its encoders without labels", "Label the whole: mine=mean(/one,/two)")
    if fused := re.fullmatch(_FUSED, name):
        return _parse_fused(fused[1], fused[2], precision)
    if name.startswith("rerank("):
        return _parse_reranked(name, precision)
    if name in ("bm25", "bm25:tuned"):
        return Bm25(tuning="any" if name == "bm25" else "required")
    if name.startswith("bm25:"):
        return _parse_bm25(name)
    if name.startswith("run:"):
        return _imported(Path(name.removeprefix("run:")))
    return Dense(registry.resolve(name, precision))


def _imported(path: Path) -> ImportedRun:
    found = ImportedRun(path)
    if found.name == "bm25" or found.name in registry.names():
        raise InputError(f"the run {path} must have a name of its own, got that of a system", "Rename the file")
    return found


def _parse_reranked(name: str, precision: str | None) -> Reranked:
    parts = system_names(name.removeprefix("rerank(").removesuffix(")"))
    if len(parts) != 3 or not name.endswith(")") or not parts[1].startswith(registry.CROSS_PREFIX):
        raise InputError(f"{name} must name a system, a cross-encoder and a number", _RERANK)
    if not parts[2].isdecimal() or int(parts[2]) < 1:
        raise InputError(f"{name} must rerank a whole number of entries, got {parts[2]!r}", _RERANK)
    first = _parse(parts[0], precision)
    if isinstance(first, Reranked):
        raise InputError(f"{name} reranks what is reranked already", "Name the system itself")
    return Reranked(
        first,
        registry.resolve_cross_encoder(parts[1], precision),
        int(parts[2]),
    )


def _parse_fused(method: str, inside: str, precision: str | None) -> Fused:
    parts = [_parse(name, precision) for name in system_names(inside)]
    if len(parts) < 2:
        raise InputError(f"{method}({inside}) fuses {len(parts)} systems", f"Name two or more: {method}(bm25,scincl)")
    if len({part.key if isinstance(part, Bm25 | Dense) else part.name for part in parts}) < len(parts):
        raise InputError(f"{method}({inside}) names a system twice", "Name each once")
    plain = tuple(part for part in parts if not isinstance(part, Fused | Reranked))
    if len(plain) < len(parts):
        raise InputError(f"{method}({inside}) fuses what is fused already or reranked", "Name the systems themselves")
    return Fused("rrf" if method == "rrf" else "wsum", plain)


def _parse_bm25(name: str) -> Bm25:
    values = {"k1": DEFAULT_K1, "b": DEFAULT_B}
    for piece, key, value in pairs(name.removeprefix("bm25:")):
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(
                f"{piece!r} in {name!r} is not a parameter", "Write bm25, bm25:tuned or bm25:k1=1.2,b=0.75"
            ) from None
    if unknown := values.keys() - {"k1", "b"}:
        raise InputError(f"BM25 has no parameter {min(unknown)!r}", "Write bm25:k1=1.2,b=0.75")
    bm25 = Bm25(values["k1"], values["b"])
    if not (0 <= bm25.k1 < float("inf") and 0 <= bm25.b <= 1):
        raise InputError(f"{name!r} is out of range", "k1 is at least 0, b between 0 and 1")
    return bm25
