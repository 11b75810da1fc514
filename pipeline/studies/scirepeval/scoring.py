"""The figures of one task with one system's vectors, and their bootstrap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.statistics import bootstrap_means
from pipeline.studies.scirepeval import authors, probes
from pipeline.studies.scirepeval.data import Labelled, load_judged, load_labelled
from pipeline.studies.scirepeval.layout import Folder
from pipeline.studies.scirepeval.ranking import VectorsOf, match, rank
from pipeline.studies.scirepeval.tasks import Entry

Floats = npt.NDArray[np.float64]
_BLOCK = 2**22
"""Weights of resampled test papers held at a time."""


@dataclass(frozen=True)
class Figure:
    """One figure of a task.

    Attributes:
        name: measure, ``@`` the size of a few-shot row, or ``hard`` or ``soft`` before it.
        value: fraction.
        draws: its value in each resample of test items (or of repetitions), float64 ``[resamples]``.
        items: number of test items or repetitions.
    """

    name: str
    value: float
    draws: Floats
    items: int


@dataclass(frozen=True)
class Settings:
    """Settings of the bootstrap, and workers.

    Attributes:
        seed: of the bootstrap.
        resamples: number of resamples.
        workers: processes.
    """

    seed: int
    resamples: int
    workers: int


def score(entry: Entry, folder: Folder, vectors: VectorsOf, settings: Settings) -> tuple[list[Figure], Counter[str]]:
    """Return the figures of a task and its counts.

    Raises:
        InputError: the task's files are bad; the task and the id are named.
    """
    counts: Counter[str] = Counter()
    if entry.kind == "authors":
        return [_clusters(entry, authors.load(entry, folder, counts), vectors, settings)], counts
    if entry.format in ("classification", "regression"):
        data = load_labelled(entry, folder)
        make = _classes if entry.format == "classification" else _numbers
        return list(make(entry, data, vectors, settings)), data.counts
    judged = load_judged(entry, folder)
    if entry.kind == "reviewers":
        values = match(judged, vectors, entry.measures, judged.counts)
        names = [f"{label} {measure}" for label in ("hard", "soft") for measure in entry.measures]
        figures = [
            _means(entry, name, row[np.isfinite(row)], settings) for name, row in zip(names, values, strict=True)
        ]
        return figures, judged.counts
    values = rank(entry.name, judged, vectors, entry.measures, judged.counts)
    return [_means(entry, name, row, settings) for name, row in zip(entry.measures, values, strict=True)], judged.counts


def _means(entry: Entry, name: str, values: Floats, settings: Settings) -> Figure:
    """Return the mean over queries or repetitions."""
    if not len(values):
        raise InputError(f"task {entry.name} must have a query with a positive for {name}, got none", "Leave it out")
    item = f"{entry.name}|{name.partition(' ')[0] if ' ' in name else ''}"
    draws = bootstrap_means(values[None], seed=settings.seed, item=item, resamples=settings.resamples)
    return Figure(name, float(values.mean()), draws[0], len(values))


def _classes(entry: Entry, data: Labelled, vectors: VectorsOf, settings: Settings) -> Iterator[Figure]:
    held = [part.values for part in (data.train, data.test)]
    classes = sorted({label for values in held for labels in values for label in labels})
    train, test = (probes.indicator(values, classes) for values in held)  # type: ignore[arg-type]
    x_train, x_test = (vectors(part.keys, "paper") for part in (data.train, data.test))
    average = "positive" if entry.measures == ("f1",) else "labels" if entry.several_labels else "classes"
    if average == "positive" and len(classes) != 2:
        raise InputError(f"task {entry.name} must have two classes, got {len(classes)}", "Fetch it again")
    (measure,) = entry.measures
    predicted = _named(
        entry, lambda: probes.classify(x_train, train, x_test, entry.several_labels, settings.workers, data.counts)
    )

    def figure(times: Floats) -> Floats:
        return probes.f1(test, predicted, times, average)

    yield _resampled(entry, measure, figure, len(test), settings)
    once = np.ones((1, len(test)))
    for size, repetitions in entry.few_shot:
        shots = probes.few_shot(
            x_train, train, x_test, entry.several_labels, size, repetitions, entry.name, settings.workers
        )
        values = []
        for found, counts in shots:
            values.append(float(probes.f1(test, found, once, average)[0]))
            data.counts.update({f"{name}@{size}": count for name, count in counts.items()})
        yield _means(entry, f"{measure}@{size}", np.array(values), settings)


def _numbers(entry: Entry, data: Labelled, vectors: VectorsOf, settings: Settings) -> Iterator[Figure]:
    (train, truth) = (np.asarray(part.values, np.float64) for part in (data.train, data.test))
    x_train, x_test = (vectors(part.keys, "paper") for part in (data.train, data.test))
    predicted = _named(entry, lambda: probes.regress(x_train, train, x_test, settings.workers))

    def figure(times: Floats) -> Floats:
        return np.array(
            [probes.kendall(*(np.repeat(each, row.astype(int)) for each in (truth, predicted))) for row in times]
        )

    yield _resampled(entry, "kendall", figure, len(truth), settings)


def _clusters(entry: Entry, found: Sequence[authors.DataSet], vectors: VectorsOf, settings: Settings) -> Figure:
    """Return the mean B-cubed F1 of the data sets; test blocks are resampled within each."""
    values, draws, blocks = [], [], 0
    for each in found:
        sums = authors.b_cubed(*authors.cluster(each, vectors))
        count = len(sums[2])
        times = authors.resampled(count, settings.resamples, settings.seed, f"{entry.name}|{each.name}")
        values.append(float(authors.f1(*sums, np.ones((1, count)))[0]))
        draws.append(authors.f1(*sums, times))
        blocks += count
    return Figure("b3_f1", float(np.mean(values)), np.mean(draws, axis=0), blocks)


def _resampled(entry: Entry, name: str, figure: Callable[[Floats], Floats], items: int, settings: Settings) -> Figure:
    """Return a figure that is no mean over items, with resamples of the items."""
    if not items:
        raise InputError(f"task {entry.name} must have test papers, got none", "Fetch it again")
    random = generator(settings.seed, "bootstrap", entry.name)
    draws, step = [], max(1, _BLOCK // items)
    for start in range(0, settings.resamples, step):
        drawn = random.integers(0, items, size=(min(step, settings.resamples - start), items))
        flat = drawn + items * np.arange(len(drawn))[:, None]
        draws.append(figure(np.bincount(flat.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)))
    value = float(figure(np.ones((1, items)))[0])
    return Figure(name, value, np.concatenate(draws), items)


def _named(entry: Entry, fit: Callable[[], npt.NDArray]) -> npt.NDArray:  # type: ignore[type-arg]
    """Return what a fit gives; its error names the task."""
    try:
        return fit()
    except InputError as error:
        raise InputError(f"task {entry.name}: {error.what}", error.remedy) from error
