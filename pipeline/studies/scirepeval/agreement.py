"""Which figures say the same over systems (Singh et al. 2023, appendix G), and what each format gains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.report.figures import COLOURS, WIDTH
from pipeline.studies.scirepeval.averages import Outcome, average, difference
from pipeline.studies.scirepeval.tasks import FORMATS, Entry

LEAST_SYSTEMS = 3
"""Systems a correlation needs."""
_LARGEST_SUBSET = 4


def labels(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Return the task of each figure, with the measure where a task has several."""
    outcomes = next(iter(found.values()))
    tasks = [each.task for each in outcomes]
    return [each.task if tasks.count(each.task) == 1 else f"{each.task} {each.measure}" for each in outcomes]


def correlations(found: Mapping[str, Sequence[Outcome]]) -> npt.NDArray[np.float64]:
    """Return Pearson's correlation of the figures over systems, ``[figures, figures]``; NaN where one is constant."""
    values = np.array([[each.value for each in outcomes] for outcomes in found.values()])
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix: npt.NDArray[np.float64] = np.corrcoef(values, rowvar=False).reshape(values.shape[1], -1)
    return matrix


def smallest_subset(found: Mapping[str, Sequence[Outcome]]) -> list[str] | None:
    """Return the fewest figures, up to four, whose mean orders the systems like the mean of all; None: no so few do."""
    values, names = np.array([[each.value for each in outcomes] for outcomes in found.values()]), labels(found)
    order = np.argsort(-values.mean(axis=1), kind="stable").tolist()
    for size in range(1, _LARGEST_SUBSET + 1):
        for chosen in itertools.combinations(range(len(names)), size):
            if np.argsort(-values[:, chosen].mean(axis=1), kind="stable").tolist() == order:
                return [names[each] for each in chosen]
    return None


def draw_correlations(figure_class: Any, found: Mapping[str, Sequence[Outcome]]) -> Any:
    """Correlation of each two figures over systems."""
    names, matrix = labels(found), correlations(found)
    side = WIDTH + 0.2 * len(names)
    figure = figure_class(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="PuOr", vmin=-1, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    figure.colorbar(image, ax=axes, label="Pearson's correlation", shrink=0.7)
    return figure


def draw_gains(
    figure_class: Any, found: Mapping[str, Sequence[Outcome]], entries: Mapping[str, Entry], baseline: str, seed: int
) -> Any:
    """What each system gains over the baseline in each format: bars with 95% intervals."""
    figure = figure_class(figsize=(WIDTH, 2.8), layout="constrained")
    axes = figure.subplots()
    others = [name for name in found if name != baseline]
    for number, name in enumerate(others):
        for place, kind in enumerate(FORMATS):
            own, base = ([one for one in found[n] if entries[one.task].format == kind] for n in (name, baseline))
            if average(own, entries, "average") is None:
                continue
            mean = difference(own, base, entries, seed).mean
            at = place + (number - (len(others) - 1) / 2) * 0.8 / len(others)
            error = [[max(0.0, 100 * (mean.value - mean.low))], [max(0.0, 100 * (mean.high - mean.value))]]
            axes.bar(
                at, 100 * mean.value, 0.8 / len(others), yerr=error, error_kw={"lw": 0.8}, color=COLOURS[number % 8]
            )
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(len(FORMATS)), FORMATS)
    axes.set_ylabel(f"difference from {baseline} (points)")
    axes.legend(handles=[axes.bar(0, 0, color=COLOURS[n % 8], label=name) for n, name in enumerate(others)])
    return figure
