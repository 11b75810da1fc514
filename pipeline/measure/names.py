"""Measure names, apart from the engines that compute them: parsing what users type, and what tables print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.core.errors import InputError, nearest

_LABELS = {
    "map": "MAP",
    "ndcg": "NDCG",
    "recall": "R",
    "precision": "P",
    "mrr": "MRR",
    "hit_rate": "Hit",
    "r-precision": "R-Prec",
    "f1": "F1",
}
"""Label of every measure, in the canonical order."""

_ORDER = {name: place for place, name in enumerate(_LABELS)}

_ALIASES = {
    "ap": "map",
    "p": "precision",
    "r": "recall",
    "rr": "mrr",
    "recip_rank": "mrr",
    "hit": "hit_rate",
    "success": "hit_rate",
    "r_precision": "r-precision",
    "rprec": "r-precision",
}

_SPELLING = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)(?:@(?P<cutoff>[1-9][0-9]{0,8}))?")


@dataclass(frozen=True)
class Measure:
    """One measure of a ranking; its value for a query is a fraction from 0 to 1.

    Attributes:
        name: one of ``map``, ``ndcg``, ``recall``, ``precision``, ``mrr``, ``hit_rate``, ``r-precision``, ``f1``.
        cutoff: ranks that count, or None for the whole ranking.
    """

    name: str
    cutoff: int | None = None

    def __str__(self) -> str:
        return self.name if self.cutoff is None else f"{self.name}@{self.cutoff}"

    @property
    def label(self) -> str:
        """What tables print: ``MAP``, ``R@30``."""
        return _LABELS[self.name] if self.cutoff is None else f"{_LABELS[self.name]}@{self.cutoff}"

    @property
    def order(self) -> tuple[int, int]:
        """Sorts measures by name in the canonical order, then by rising cutoff, uncut first."""
        return _ORDER[self.name], self.cutoff or 0


DEFAULT = (
    Measure("map"),
    Measure("ndcg"),
    Measure("recall", 30),
    Measure("precision", 1),
    Measure("mrr"),
    Measure("recall", 100),
)
"""What is measured unless the user says otherwise: the papers' three, then three beyond them (protocol 4)."""


def parse_measures(text: str | Iterable[str]) -> tuple[Measure, ...]:
    """Read measures as users type them, such as ``ndcg@10,map@100`` or ``P@1 rr``.

    Case does not matter; ``p``, ``r``, ``rr``, ``ap``, ``success``, ``rprec`` are understood; one named twice counts
    once.

    Args:
        text: names separated by commas or white space, or the names one by one.

    Returns:
        The measures, in the order given.

    Raises:
        InputError: some are unknown (all of them are listed), or there is none.
    """
    words = re.split(r"[,\s]+", text) if isinstance(text, str) else list(text)
    words = [word for word in words if word]
    parsed = {word: _parse(word) for word in words}
    bad = [word for word, measure in parsed.items() if measure is None]
    if bad:
        listed = ", ".join(map(repr, bad))
        raise InputError(f"unknown measure{'s' * (len(bad) > 1)} {listed}", ". ".join(_hint(word) for word in bad))
    if not words:
        raise InputError("no measure was named", f"Name some, such as {','.join(map(str, DEFAULT))}")
    return tuple(dict.fromkeys(measure for measure in parsed.values() if measure is not None))


def _parse(word: str) -> Measure | None:
    match = _SPELLING.fullmatch(word.casefold())
    if match is None:
        return None
    name = _ALIASES.get(match["name"], match["name"])
    cutoff = None if match["cutoff"] is None else int(match["cutoff"])
    if name not in _LABELS or (name == "r-precision" and cutoff is not None):
        return None
    return Measure(name, cutoff)


def _hint(word: str) -> str:
    name, at, cutoff = word.casefold().partition("@")
    canonical = _ALIASES.get(name, name)
    if canonical == "r-precision":
        return f"{canonical} sets its own cutoff: write it without {at + cutoff!r}"
    if canonical in _LABELS:
        return f"The cutoff of {word!r} must be a whole number from 1 on, such as {canonical}@10"
    return nearest(name, _LABELS)
