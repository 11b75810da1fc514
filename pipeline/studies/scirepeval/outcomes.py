"""Figures that count, averages and differences (Singh et al. 2023, table 2), and correlations (appendix G)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.errors import InputError
from pipeline.measure.statistics import Floats, paired_permutation, percentiles
from pipeline.scores.figures import WIDTH
from pipeline.scores.page.parts import Chart, Series
from pipeline.studies.scirepeval.tasks import FORMATS, Entry

GROUPS = ("in-train", "out-of-train", "average")
LEAST_SYSTEMS = 3
"""Systems a correlation needs."""
_LARGEST_SUBSET = 4


@dataclass(frozen=True)
class TaskScore:
    """A figure that counts in averages.

    Attributes:
        task: the task.
        measure: its measure; of a mean over few-shot rows also their sizes, of another mean all measures.
        value: fraction.
        draws: its value in each resample, float64 ``[resamples]``.
        items: test items; 1: there is no interval.
    """

    task: Entry
    measure: str
    value: float
    draws: Floats
    items: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval; None for a task of one item, such as one query."""
        return percentiles(self.draws) if self.items > 1 else None


Found = Mapping[str, Sequence[TaskScore]]
"""The figures of each system, of the same tasks in the same order."""


class Mean(NamedTuple):
    """An average over figures: a fraction, its 95% interval, and the number of figures."""

    value: float
    low: float
    high: float
    figures: int


def outcomes(entry: Entry, figures: Sequence[tuple[str, float, Floats, int]]) -> list[TaskScore]:
    """Return the figures of a task, (name, value, draws, items) each, as they count.

    Each measure of a ranking task counts on its own. Few-shot rows are averaged with the row of all training papers
    (appendix A.3), and the four figures of reviewer matching (appendix A.2).
    """
    if len(figures) == 1 or entry.kind in ("proximity", "search", "triplets"):
        return [TaskScore(entry, *figure) for figure in figures]
    names, values, draws, items = zip(*figures, strict=True)
    sizes = ", ".join(name.partition("@")[2] for name in names[1:])
    measure = f"{names[0]} (all, {sizes})" if entry.few_shot else ", ".join(entry.measures)
    return [TaskScore(entry, measure, float(np.mean(values)), np.mean(draws, axis=0), min(items))]


def counted(found: Iterable[TaskScore], group: str = "average", kind: str = "") -> list[TaskScore]:
    """Return the figures that count in the average of a group, or of a format of it."""
    return [
        each
        for each in found
        if each.task.averaged
        and (group == "average" or each.task.in_train == (group == "in-train"))
        and kind in ("", each.task.format)
    ]


def average(found: Iterable[TaskScore], group: str = "average", kind: str = "") -> Mean | None:
    """Return the average of the figures that count; None where there are none."""
    chosen = counted(found, group, kind)
    if not chosen:
        return None
    low, high = percentiles(np.mean([each.draws for each in chosen], axis=0))
    return Mean(float(np.mean([each.value for each in chosen])), low, high, len(chosen))


def difference(
    first: Sequence[TaskScore], second: Sequence[TaskScore], seed: int, kind: str = ""
) -> tuple[Mean, float, int]:
    """Return mean difference, p-value and number of higher figures of two systems, over all figures or a format's.

    The interval resamples test items, with the same draws for both systems. The test flips the signs of the differences
    figure by figure: it asks whether the one system is better over tasks.

    Raises:
        InputError: they were not evaluated on the same tasks.
    """
    one, other = (counted(found, kind=kind) for found in (first, second))
    if [(each.task, each.measure) for each in one] != [(each.task, each.measure) for each in other] or not one:
        raise InputError("two systems must be compared on the same tasks, got others", "Evaluate both on all of them")
    values = np.array([a.value - b.value for a, b in zip(one, other, strict=True)])
    low, high = percentiles(np.mean([a.draws - b.draws for a, b in zip(one, other, strict=True)], axis=0))
    p_value = float(paired_permutation(values[None], seed=seed, item="scirepeval")[0])
    return Mean(float(values.mean()), low, high, len(values)), p_value, int(np.count_nonzero(values > 0))


def labels(found: Found) -> list[str]:
    """Return the task of each figure, with the measure where a task has several."""
    figures = next(iter(found.values()))
    names = [each.task.name for each in figures]
    several = {name for name in names if names.count(name) > 1}
    return [f"{each.task.name} {each.measure}" if each.task.name in several else each.task.name for each in figures]


def correlations(found: Found) -> Floats:
    """Return Pearson's correlation of the figures over systems, ``[figures, figures]``; NaN where one is constant."""
    values = np.array([[each.value for each in outcomes] for outcomes in found.values()])
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix: Floats = np.corrcoef(values, rowvar=False).reshape(values.shape[1], -1)
    return matrix


def smallest_subset(found: Found) -> list[str] | None:
    """Return the fewest figures, up to four, whose mean orders the systems like the mean of all; None: no so few do."""
    values, names = np.array([[each.value for each in outcomes] for outcomes in found.values()]), labels(found)
    order = np.argsort(-values.mean(axis=1), kind="stable").tolist()
    for size in range(1, _LARGEST_SUBSET + 1):
        for chosen in itertools.combinations(range(len(names)), size):
            if np.argsort(-values[:, chosen].mean(axis=1), kind="stable").tolist() == order:
                return [names[each] for each in chosen]
    return None


def draw_correlations(figure_class: Any, found: Found) -> Any:
    """Correlation of each two figures over systems."""
    names, side = labels(found), WIDTH + 0.2 * len(labels(found))
    figure = figure_class(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(correlations(found), cmap="PuOr", vmin=-1, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=axes, label="Pearson's correlation", shrink=0.7)
    return figure


def gains(found: Found, baseline: str, seed: int, provenance: str) -> Chart:
    """Return what each system gains over the baseline in each format, with 95% intervals."""
    series = []
    for name in found:
        places = [place for place, kind in enumerate(FORMATS) if average(found[name], kind=kind) is not None]
        if name != baseline:
            means = [difference(found[name], found[baseline], seed, FORMATS[place])[0] for place in places]
            series.append(Series(name, places, *zip(*((m.value, m.low, m.high) for m in means), strict=True)))
    title = f"Gain over {baseline} by format"
    return Chart(title, "", "points", {"difference": series}, categories=FORMATS, provenance=provenance)
