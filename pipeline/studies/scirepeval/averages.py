"""Averages over tasks, their intervals, and the difference of two systems (Singh et al. 2023, table 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.measure.statistics import LEVEL, paired_permutation
from pipeline.studies.scirepeval.tasks import Entry

Floats = npt.NDArray[np.float64]
GROUPS = ("in-train", "out-of-train", "average")


def percentiles(draws: Floats) -> tuple[float, float]:
    """Return the percentile interval of resampled figures, which need not be means (F1, tau): low, high."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Outcome:
    """A figure that counts in averages.

    Attributes:
        task: name of the task.
        measure: its measure; of a mean over few-shot rows also their sizes, of another mean all measures.
        value: fraction.
        draws: its value in each resample, float64 ``[resamples]``.
        items: test items; 1: there is no interval.
    """

    task: str
    measure: str
    value: float
    draws: Floats
    items: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval; None for a task of one item, such as one query."""
        if self.items < 2:
            return None
        return percentiles(self.draws)


@dataclass(frozen=True)
class Mean:
    """An average over figures.

    Attributes:
        value: fraction.
        low: of the 95% interval.
        high: of the 95% interval.
        figures: number of figures.
    """

    value: float
    low: float
    high: float
    figures: int


def outcomes(entry: Entry, figures: Sequence[tuple[str, float, Floats, int]]) -> list[Outcome]:
    """Return the figures of a task as they count: each measure of a ranking task on its own, others averaged.

    Few-shot rows are averaged with the row of all training papers (appendix A.3), and the four figures of reviewer
    matching (appendix A.2).

    Args:
        entry: the task.
        figures: (name, value, draws, items) of each.
    """
    if len(figures) == 1 or entry.kind in ("proximity", "search", "triplets"):
        return [Outcome(entry.name, *figure) for figure in figures]
    names, values, draws, items = zip(*figures, strict=True)
    sizes = ", ".join(name.partition("@")[2] for name in names[1:])
    measure = f"{names[0]} (all, {sizes})" if entry.few_shot else ", ".join(entry.measures)
    return [Outcome(entry.name, measure, float(np.mean(values)), np.mean(draws, axis=0), min(items))]


def average(found: Iterable[Outcome], entries: Mapping[str, Entry], group: str) -> Mean | None:
    """Return the average of the figures of a group that count; None where there are none."""
    chosen = _counted(found, entries, group)
    if not chosen:
        return None
    low, high = percentiles(np.mean([each.draws for each in chosen], axis=0))
    return Mean(float(np.mean([each.value for each in chosen])), low, high, len(chosen))


def _counted(found: Iterable[Outcome], entries: Mapping[str, Entry], group: str) -> list[Outcome]:
    averaged = [each for each in found if entries[each.task].averaged]
    return [each for each in averaged if group == "average" or entries[each.task].in_train == (group == "in-train")]


@dataclass(frozen=True)
class Difference:
    """One system less another over the same figures.

    Attributes:
        mean: of the differences, as a fraction, with its interval over test items.
        p_value: of the paired permutation test over figures.
        better: figures in which the first is higher.
    """

    mean: Mean
    p_value: float
    better: int


def difference(
    first: Sequence[Outcome], second: Sequence[Outcome], entries: Mapping[str, Entry], seed: int
) -> Difference:
    """Compare two systems over all figures that count.

    The interval resamples test items, with the same draws for both systems. The test flips the signs of the differences
    figure by figure: it asks whether the one system is better over tasks.

    Raises:
        InputError: they were not evaluated on the same tasks.
    """
    pairs = [[(each.task, each.measure) for each in _counted(found, entries, "average")] for found in (first, second)]
    if pairs[0] != pairs[1] or not pairs[0]:
        raise InputError("two systems must be compared on the same tasks, got others", "Evaluate both on all of them")
    one, other = (_counted(found, entries, "average") for found in (first, second))
    values = np.array([a.value - b.value for a, b in zip(one, other, strict=True)])
    low, high = percentiles(np.mean([a.draws - b.draws for a, b in zip(one, other, strict=True)], axis=0))
    p_value = float(paired_permutation(values[None], seed=seed, item="scirepeval")[0])
    mean = Mean(float(values.mean()), low, high, len(values))
    return Difference(mean, p_value, int(np.count_nonzero(values > 0)))
