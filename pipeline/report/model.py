"""The objects of a report; every format renders the same ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.fields import MAG_FIELDS
from pipeline.measure.statistics import LEVEL, PERMUTATIONS, RESAMPLES

AVERAGE = "AVG"
"""In place of a field's name: the macro average over fields."""


class Setup(NamedTuple):
    """What the samples of one pool share: the field (None: dataset-level) and the number of candidates."""

    field: str | None
    size: int


@dataclass(frozen=True)
class PoolFacts:
    """One pool.

    Attributes:
        name: folder name of its artifact.
        setup: field and number of candidates.
        sample: number of the sample.
        positives: relevant papers of all queries.
        corpus: identity of its corpus.
        settings: its configuration without the sample, equal for all samples of a setup.
        absent: positives that are not in the collection, which denominators leave out or count.
        marks: how many positives and negatives lack what (:func:`pipeline.corpus.marks.counted`).
    """

    name: str
    setup: Setup
    sample: int
    positives: int
    corpus: str
    settings: Mapping[str, Any]
    absent: int = 0
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one system on one pool.

    Attributes:
        system: label of its row: the name, with the settings in which rows of that name differ.
        pool: the pool it ranked.
        measures: canonical names.
        queries: int64 ``[queries]``, positions in the pool.
        values: fractions, float64 ``[measures, queries]``.
        counts: what the stage ``score`` counted.
        corpus: folder name of the corpus.
        parameters: settings of the system, such as ``k1=0.9, b=0.4``; may be empty.
        identity: what identifies it, by the names of :data:`pipeline.report.frame.SCHEMA`.
        scores: folder names of the score artifacts.
        replaced: whether older tunings of the system were left out.
    """

    system: str
    pool: PoolFacts
    measures: tuple[str, ...]
    queries: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    counts: Mapping[str, Any]
    corpus: str
    parameters: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)
    scores: tuple[str, ...] = ()
    replaced: bool = False

    @property
    def collection(self) -> str:
        """The readable part of :attr:`corpus`: the name it was built under."""
        return self.corpus.rpartition("-")[0] or self.corpus

    @property
    def name(self) -> str:
        """Name of the system, as users write it."""
        return str(self.identity.get("system", self.system))

    @property
    def depth(self) -> int:
        """Entries ranked a query."""
        return int(self.identity.get("depth", self.counts["depth"]))


@dataclass(frozen=True)
class ReportSettings:
    """What decides the figures of a report besides the scores.

    Attributes:
        seed: of the bootstrap and the permutation test.
        resamples: of the bootstrap over queries.
        level: of its interval.
        permutations: sign flips of the paired test.
        alpha: adjusted p-values below it are marked.
        baseline: name or label of the system the others are tested against, or None.
    """

    seed: int = 13
    resamples: int = RESAMPLES
    level: float = LEVEL
    permutations: int = PERMUTATIONS
    alpha: float = 0.05
    baseline: str | None = None


@dataclass(frozen=True)
class Summary:
    """One measure of one system over all samples of a setup, or its macro average over fields.

    Attributes:
        field: a field, None (dataset-level) or :data:`AVERAGE`.
        size: candidates; None for an average over pools of different sizes.
        value: mean over samples of the mean over queries, a fraction.
        deviation: standard deviation over samples; None for one sample.
        low: lower end of the bootstrap interval over queries (of each query's mean over samples).
        high: upper end.
        samples: number of samples.
        queries: of one sample; in an average, the sum over fields.
        positives: likewise.
        pools: folder names.
        p_value: of the paired permutation test against the baseline; None if untested.
        p_adjusted: after Holm's correction over the setups of the family.
    """

    system: str
    field: str | None
    size: int | None
    measure: str
    value: float
    deviation: float | None
    low: float
    high: float
    samples: int
    queries: int
    positives: int
    pools: tuple[str, ...]
    p_value: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True)
class Family:
    """Setups shown in one table, over which p-values are corrected.

    Attributes:
        kind: ``fields`` (one setup a field) or ``sizes`` (one field, or the dataset, at rising sizes).
        setups: in the order shown.
    """

    kind: Literal["fields", "sizes"]
    setups: tuple[Setup, ...]

    @property
    def size(self) -> int | None:
        """Number of candidates if it is the same in all setups."""
        sizes = {setup.size for setup in self.setups}
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class Report:
    """Everything a table, a plot or a file shows.

    Attributes:
        summaries: every figure of every measure.
        families: which figures are shown together.
        systems: labels, in the order shown.
        measures: canonical names of what is shown, in order.
        settings: what decided the figures.
        scored: what the figures were made from.
        baselines: for each system that is tested, the label of the row it is tested against.
    """

    summaries: tuple[Summary, ...]
    families: tuple[Family, ...]
    systems: tuple[str, ...]
    measures: tuple[str, ...]
    settings: ReportSettings
    scored: tuple[Scored, ...]
    baselines: Mapping[str, str] = field(default_factory=dict)

    @property
    def corpus(self) -> str:
        """Folder name of the corpus."""
        return self.scored[0].corpus

    @property
    def pools(self) -> tuple[str, ...]:
        """Folder names of all pools."""
        return unique(sorted(each.pool.name for each in self.scored))

    def within(self, family: Family) -> tuple[Scored, ...]:
        """Return what the figures of a family were made from."""
        setups: set[Setup] = set(family.setups)
        return tuple(each for each in self.scored if each.pool.setup in setups)

    def find(self, system: str, field: str | None, size: int | None, measure: str) -> Summary | None:
        """Return one figure, or None if it was not measured."""
        return self._index.get((system, field, size, measure))

    @functools.cached_property
    def _index(self) -> Mapping[tuple[str, str | None, int | None, str], Summary]:
        return {(each.system, each.field, each.size, each.measure): each for each in self.summaries}


def families(setups: Iterable[Setup]) -> tuple[Family, ...]:
    """Return which setups are shown together.

    Fields with one setup each form one family, whatever their sizes: a field with few papers has a smaller pool. Fields
    at several sizes form a family for each size that all of them have. The rest, and the dataset-level pools, form
    families of rising sizes.
    """
    ordered = sorted(set(setups), key=lambda setup: (_field_order(setup.field), setup.size))
    by_field: dict[str | None, list[Setup]] = {}
    for setup in ordered:
        by_field.setdefault(setup.field, []).append(setup)
    dataset = by_field.pop(None, [])
    found: list[Family] = [Family("sizes", tuple(dataset))] if dataset else []
    if len(by_field) > 1:
        if all(len(each) == 1 for each in by_field.values()):
            return (*found, Family("fields", tuple(setup for each in by_field.values() for setup in each)))
        for size in sorted({setup.size for setup in ordered}):
            at_size = [setup for each in by_field.values() for setup in each if setup.size == size]
            if len(at_size) == len(by_field):
                found.append(Family("fields", tuple(at_size)))
                by_field = {name: [s for s in each if s.size != size] for name, each in by_field.items()}
    return (*found, *(Family("sizes", tuple(each)) for each in by_field.values() if each))


def _field_order(name: str | None) -> tuple[int, str]:
    """Sort key: the dataset, the 19 fields, other names."""
    if name is None:
        return -1, ""
    return (MAG_FIELDS.index(name), name) if name in MAG_FIELDS else (len(MAG_FIELDS), name)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value once, in order of first appearance."""
    return tuple(dict.fromkeys(values))
