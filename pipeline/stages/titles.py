"""Names of systems in tables. Scores record the name of their system as data; :func:`stored_system` reads it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pipeline.core.manifest import Manifest
from pipeline.encode import names
from pipeline.encode.names import Name
from pipeline.retrieve.engines import INDEXES
from pipeline.stages.systems import DEFAULT_B, DEFAULT_K1, TUNED, System, ranks_without_encoder, resolve

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
    system = system_of(text)
    return [part.title for part in system.parts or ()] if system.base == "rrf" else []
