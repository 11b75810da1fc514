"""Which papers of a corpus are the same paper: by DOI, or by normalised title and year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, nearest
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.partition import partition_of
from pipeline.corpus.prefilter import Attributes

Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

RULES = ("doi", "title")


@dataclass(frozen=True)
class DuplicatesConfig:
    """What happens to papers that stand in a corpus more than once.

    Attributes:
        action: ``drop`` leaves one paper of each group; ``merge`` also lets the citations of the others be its own.
        rules: some of :data:`RULES`: the same DOI; the same normalised title and year.
        min_title_chars: shorter titles ("Editorial", "Book reviews") say nothing and are never compared.
    """

    action: Literal["drop", "merge"]
    rules: tuple[str, ...] = RULES
    min_title_chars: int = 20

    def __post_init__(self) -> None:
        if self.action not in ("drop", "merge"):
            raise InputError(f"--duplicates={self.action!r} is unknown", "Choose keep, drop or merge")
        for rule in self.rules:
            if rule not in RULES:
                raise InputError(f"duplicates cannot be identified by {rule!r}", nearest(rule, RULES))


class Groups(NamedTuple):
    """Rows that share a key with another row.

    Attributes:
        rows: int64 ``[n]``, group after group, rising within one.
        starts: int64 ``[groups]``, where each group begins.
    """

    rows: Rows
    starts: Rows

    @property
    def extra(self) -> int:
        """Number of papers beyond the first of each group."""
        return len(self.rows) - len(self.starts)


def title_keys(attributes: Attributes, rows: slice, min_title_chars: int) -> Keys:
    """Return the key by which two papers have one title and year, uint64; 0: not compared."""
    year = attributes["year"][rows]
    with np.errstate(over="ignore"):
        keys: Keys = attributes["title_key"][rows] + year.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    compared = (attributes["title_chars"][rows] >= min_title_chars) & (attributes["title_key"][rows] != 0)
    keys[~compared | (year == NO_YEAR)] = 0
    return keys


def groups(attributes: Attributes, rule: str, min_title_chars: int, memory: int) -> Groups:
    """Return the groups of one rule.

    The columns are read once for each ``memory / 40`` papers.
    """
    papers = len(attributes["key"])
    partitions = max(1, -(-papers * 40 // max(memory, 1)))
    block = max(1, min(papers, 4_000_000))
    parts: list[Groups] = []
    for partition in range(partitions):
        taken: list[tuple[Keys, Rows]] = []
        for start in range(0, papers, block):
            rows = slice(start, start + block)
            keys = attributes["doi_key"][rows] if rule == "doi" else title_keys(attributes, rows, min_title_chars)
            mine = np.flatnonzero((partition_of(keys, partitions) == partition) & (keys != 0))
            taken.append((keys[mine], mine + start))
        if taken:
            parts.append(_repeated(np.concatenate([k for k, _ in taken]), np.concatenate([r for _, r in taken])))
    offsets = np.cumsum([0, *(len(part.rows) for part in parts)])
    nothing = np.empty(0, np.int64)
    return Groups(
        np.concatenate([nothing, *(part.rows for part in parts)]),
        np.concatenate([nothing, *(part.starts + offset for part, offset in zip(parts, offsets, strict=False))]),
    )


def _repeated(keys: Keys, rows: Rows) -> Groups:
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    same = keys[1:] == keys[:-1]
    inside = np.concatenate([same, [False]]) | np.concatenate([[False], same]) if len(keys) else np.empty(0, bool)
    first = np.concatenate([[True], ~same]) if len(keys) else inside
    return Groups(rows[inside], np.flatnonzero(first[inside]))


class Duplicates(NamedTuple):
    """Papers that another paper replaces.

    Attributes:
        rows: int64 ``[n]``, rising, the papers that are not kept.
        kept: int64 ``[n]``, the paper that stands for each.
        by_doi: bool ``[n]``, whether its DOI tells (otherwise title and year do).
    """

    rows: Rows
    kept: Rows
    by_doi: npt.NDArray[np.bool_]


def find_duplicates(attributes: Attributes, config: DuplicatesConfig, memory: int) -> Duplicates:
    """Return which papers are the same as another one, over all rules together: A is B by DOI and B is C by title.

    Of a group that paper is kept that has an abstract, then the most references, then the most citations, then the
    lowest id.
    """
    by_rule = {rule: groups(attributes, rule, config.min_title_chars, memory) for rule in config.rules}
    members = np.unique(np.concatenate([np.empty(0, np.int64), *(rule.rows for rule in by_rule.values())]))
    label = np.arange(len(members))
    places = [(np.searchsorted(members, rule.rows), rule.starts) for rule in by_rule.values() if len(rule.rows)]
    while True:
        before = label.copy()
        for place, starts in places:
            lowest = np.minimum.reduceat(label[place], starts)
            np.minimum.at(label, place, np.repeat(lowest, np.diff([*starts, len(place)])))
        if np.array_equal(before, label):
            break
    chars, outbound, inbound = (attributes[n][members] for n in ("abstract_chars", "n_outbound", "n_inbound"))
    order = np.lexsort((members, -inbound, -outbound, chars == 0, label))
    first = np.concatenate([[True], label[order][1:] != label[order][:-1]]) if len(order) else np.empty(0, bool)
    best = members[order[first]][np.cumsum(first) - 1]
    gone = order[~first]
    rows, kept = members[gone], best[~first]
    rising = np.argsort(rows)
    rows, kept = rows[rising], kept[rising]
    return Duplicates(rows, kept, np.isin(rows, by_rule["doi"].rows) if "doi" in by_rule else np.zeros(len(rows), bool))
