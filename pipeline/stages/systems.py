"""The systems users name: ``bm25``, ``bm25:tuned``, ``bm25:k1=1.2,b=0.75``, ``scincl``, ``hf:org/name``, a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pipeline.core.errors import InputError, nearest
from pipeline.encode import registry
from pipeline.encode.spec import Model

DEFAULT_K1, DEFAULT_B = 0.9, 0.4
"""BM25 as Anserini sets it."""

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Bm25:
    """BM25 with its two parameters (Medić & Šnajder 2022, appendix A).

    Attributes:
        k1: saturation of term frequency.
        b: normalisation by length.
        tuning: whether a tuning of the pool decides both instead: never, where there is one, or always.
    """

    k1: float = DEFAULT_K1
    b: float = DEFAULT_B
    tuning: Literal["none", "any", "required"] = "none"

    @property
    def name(self) -> str:
        """As users write it; what a tuning decides has a name of its own, for every pool may have another one."""
        if self.tuning == "required":
            return "bm25:tuned"
        return "bm25" if (self.k1, self.b) == (DEFAULT_K1, DEFAULT_B) else f"bm25:k1={self.k1:g},b={self.b:g}"


@dataclass(frozen=True)
class Dense:
    """An article encoder with exact search of its vectors."""

    model: Model

    @property
    def name(self) -> str:
        """As users write it."""
        return self.model.name


System = Bm25 | Dense


def parse_systems(text: str, precision: str | None = None) -> list[System]:
    """Read ``--model``: systems with commas.

    Args:
        text: as typed.
        precision: compute precision of the encoders, or None for each model's own.

    Raises:
        InputError: a system is unknown, or a parameter is none of BM25's.
    """
    names = split_systems(text)
    if not names:
        raise InputError("no system was named", "Give --model, such as bm25,scincl")
    systems = [_parse(name, precision) for name in names]
    return list({(system.name, getattr(system, "tuning", None)): system for system in systems}.values())


def split_systems(text: str) -> list[str]:
    """Return the names in ``--model``, as typed.

    A piece that is a parameter (``b=0.75``) belongs to the system before it, which has one already.
    """
    names: list[str] = []
    for piece in registry.split_names(text):
        if names and re.fullmatch(r"\w+\s*=[^:/]*", piece) and re.search(r":\w+\s*=", names[-1]):
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def _parse(name: str, precision: str | None) -> System:
    if name in ("bm25", "bm25:tuned"):
        return Bm25(tuning="any" if name == "bm25" else "required")
    if name.startswith("bm25:"):
        return _parse_bm25(name)
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"--precision {precision!r} is unknown", nearest(precision, PRECISIONS))
    return Dense(registry.resolve(name, PRECISIONS[precision] if precision else None))


def _parse_bm25(name: str) -> Bm25:
    values: dict[str, float] = {}
    for piece in name.removeprefix("bm25:").split(","):
        key, _, value = (part.strip() for part in piece.partition("="))
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(
                f"{piece!r} in {name!r} is no parameter", "Write bm25, bm25:tuned or bm25:k1=1.2,b=0.75"
            ) from None
    bm25 = Bm25(values.pop("k1", DEFAULT_K1), values.pop("b", DEFAULT_B))
    if values:
        raise InputError(f"BM25 has no parameter {next(iter(values))!r}", "Write bm25:k1=1.2,b=0.75")
    if not (0 <= bm25.k1 < float("inf") and 0 <= bm25.b <= 1):
        raise InputError(f"{name!r} is out of range", "k1 is at least 0, b between 0 and 1")
    return bm25
