"""The figures of one task with one system's vectors, and their bootstrap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import parse_measures
from pipeline.measure.resampling import resampled
from pipeline.measure.statistics import Floats, bootstrap_means
from pipeline.studies.scirepeval import authors, probes
from pipeline.studies.scirepeval.data import Judged, Labelled, load_judged, load_labelled
from pipeline.studies.scirepeval.layout import Folder
from pipeline.studies.scirepeval.tasks import Entry, VectorsOf

Ints = npt.NDArray[np.int64]
_BEST = 3
"""Papers of a reviewer that count."""


class TaskFigure(NamedTuple):
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


class Settings(NamedTuple):
    """Seed and number of resamples of the bootstrap, and processes of the probes."""

    seed: int
    resamples: int
    workers: int


def score(
    entry: Entry, folder: Folder, vectors: VectorsOf, settings: Settings
) -> tuple[list[TaskFigure], Counter[str]]:
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
    judged, names = load_judged(entry, folder), list(entry.measures)
    if entry.kind == "reviewers":
        values = match(judged, vectors, names, judged.counts)
        names = [f"{label} {measure}" for label in ("hard", "soft") for measure in names]
    else:
        values = rank(entry.name, judged, vectors, names, judged.counts)
    rows = [row[np.isfinite(row)] for row in values]
    return [_means(entry, name, row, settings) for name, row in zip(names, rows, strict=True)], judged.counts


def rank(task: str, judged: Judged, vectors: VectorsOf, measures: Sequence[str], counts: Counter[str]) -> Floats:
    """Return the measures of each query by ascending Euclidean distance, ``[measures, queries]``; NaN: no positive.

    Each query ranks its own candidates. Ties go by paper key, descending. Queries without a positive are counted.
    """
    names, (query, candidates, grade) = list(judged.grades), _pairs(judged)
    keys, row = np.unique([judged.keys[each] for each in candidates], return_inverse=True)
    papers = vectors(keys.tolist(), "paper")
    if judged.texts:
        asked = vectors([f"{task}/{name}" for name in names], "query")
    else:
        asked = vectors([judged.keys[name] for name in names], "paper")
    scores, starts = np.empty(len(query)), np.searchsorted(query, np.arange(len(names) + 1))
    for each, start, end in zip(asked.astype(np.float64), starts, starts[1:], strict=False):
        scores[start:end] = -np.sqrt(np.square(papers[row[start:end]] - each).sum(axis=1))
    return _measure(query, row, scores, grade, measures, counts, "queries_without_positive")


def match(judged: Judged, vectors: VectorsOf, measures: Sequence[str], counts: Counter[str]) -> Floats:
    """Return the measures of each query of reviewer matching, ``[2 * measures, queries]``: hard, then soft labels.

    A reviewer's score is the mean of the three highest cosines of the reviewer's papers with the paper; either of them
    may be the query. The pairs are those with hard labels, as in the published evaluation; one without a soft label is
    not relevant by these. NaN: a query without a positive. A reviewer without papers is not ranked; both are counted.
    """
    names, (query, candidates, hard) = list(judged.grades), _pairs(judged)
    pairs, soft = [], []
    for asked, candidate in zip([names[each] for each in query], candidates, strict=True):
        group, paper = (asked, candidate) if asked in judged.groups else (candidate, asked)
        soft.append(judged.soft.get(asked, {}).get(candidate, 0))
        pairs.append(([judged.keys[each] for each in judged.groups.get(group, ())], judged.keys[paper]))
    keys = sorted({key for own, paper in pairs for key in (*own, paper)})
    units = vectors(keys, "paper").astype(np.float64)
    lengths = np.linalg.norm(units, axis=1, keepdims=True)
    unit = dict(zip(keys, units / np.where(lengths > 0, lengths, 1), strict=True))
    best = [np.sort([unit[key] @ unit[paper] for key in own])[-_BEST:] for own, paper in pairs]
    scores = np.array([each.mean() if len(each) else np.nan for each in best])
    counts["reviewers_without_papers"] += int(np.isnan(scores).sum())
    row, figures = np.unique(candidates, return_inverse=True)[1], []
    for label, grade in (("hard", hard), ("soft", np.array(soft, int))):
        figures.append(_measure(query, row, scores, grade, measures, counts, f"queries_without_{label}_positive"))
    return np.concatenate(figures)


def _pairs(judged: Judged) -> tuple[Ints, list[str], Ints]:
    """Return the number of the query, the candidate and the grade of each judgement."""
    sizes = [len(candidates) for candidates in judged.grades.values()]
    pairs = [pair for candidates in judged.grades.values() for pair in candidates.items()]
    return np.repeat(np.arange(len(sizes)), sizes), [each for each, _ in pairs], np.array([g for _, g in pairs], int)


def _measure(
    query: Ints, row: Ints, scores: Floats, grade: Ints, measures: Sequence[str], counts: Counter[str], reason: str
) -> Floats:
    """Return the measures of each query, ``[measures, queries]``; NaN without a positive, counted as ``reason``.

    Of each pair: the numbers of its query and candidate (which orders equal scores), its score (NaN: not ranked) and
    its grade.
    """
    found = np.full((len(measures), int(query.max(initial=-1)) + 1), np.nan)
    held = np.unique(query[grade >= 1])
    counts[reason] += found.shape[1] - len(held)
    kept = np.isin(query, held)
    query, row, scores, grade = np.searchsorted(held, query[kept]), row[kept], scores[kept], grade[kept]
    ranked, judged = np.lexsort((-row, -scores, query)), np.lexsort((row, -grade, query))
    ranked, judged = ranked[np.isfinite(scores[ranked])], judged[grade[judged] >= 1]
    (offsets, rows), (starts, positives) = (
        (np.searchsorted(query[each], np.arange(len(held) + 1)), row[each].astype(np.uint32))
        for each in (ranked, judged)
    )
    if len(held):
        qrels = Qrels(starts, positives, grade[judged].astype(np.int16))
        found[:, held] = evaluate(qrels, Run(offsets, rows), parse_measures(measures))
    return found


def _means(entry: Entry, name: str, values: Floats, settings: Settings) -> TaskFigure:
    """Return the mean over queries or repetitions."""
    if not len(values):
        raise InputError(f"task {entry.name} must have a query with a positive for {name}, got none", "Leave it out")
    item = f"{entry.name}|{name.partition(' ')[0] if ' ' in name else ''}"
    draws = bootstrap_means(values[None], seed=settings.seed, item=item, resamples=settings.resamples)
    return TaskFigure(name, float(values.mean()), draws[0], len(values))


def _classes(entry: Entry, data: Labelled, vectors: VectorsOf, settings: Settings) -> Iterator[TaskFigure]:
    held = [part.values for part in (data.train, data.test)]
    classes = sorted({label for values in held for labels in values for label in labels})
    train, test = (probes.indicator(values, classes) for values in held)  # type: ignore[arg-type]
    x_train, x_test = (vectors(part.keys, "paper") for part in (data.train, data.test))
    several, (measure,) = entry.several_labels, entry.measures
    average = "positive" if measure == "f1" else "labels" if several else "classes"
    if average == "positive" and len(classes) != 2:
        raise InputError(f"task {entry.name} must have two classes, got {len(classes)}", "Fetch it again")
    with _named(entry):
        predicted = probes.classify(x_train, train, x_test, several, settings.workers, data.counts)
    yield _resampled(entry, measure, lambda times: probes.f1(test, predicted, times, average), len(test), settings)
    for row in entry.few_shot:
        values = []
        for found, counts in probes.few_shot(x_train, train, x_test, several, row, entry.name, settings.workers):
            values.append(float(probes.f1(test, found, np.ones((1, len(test))), average)[0]))
            data.counts.update({f"{name}@{row[0]}": count for name, count in counts.items()})
        yield _means(entry, f"{measure}@{row[0]}", np.array(values), settings)


def _numbers(entry: Entry, data: Labelled, vectors: VectorsOf, settings: Settings) -> Iterator[TaskFigure]:
    train, truth = (np.asarray(part.values, np.float64) for part in (data.train, data.test))
    x_train, x_test = (vectors(part.keys, "paper") for part in (data.train, data.test))
    with _named(entry):
        predicted = probes.regress(x_train, train, x_test, settings.workers)

    def figure(times: Floats) -> Floats:
        rows = (np.repeat(np.arange(len(truth)), row.astype(int)) for row in times)
        return np.array([probes.kendall(truth[row], predicted[row]) for row in rows])

    yield _resampled(entry, "kendall", figure, len(truth), settings)


def _clusters(entry: Entry, found: Sequence[authors.DataSet], vectors: VectorsOf, settings: Settings) -> TaskFigure:
    """Return the mean B-cubed F1 of the data sets; test blocks are resampled within each."""
    figures = []
    for each in found:
        sums = authors.b_cubed(*authors.cluster(each, vectors))
        figures.append(_resampled(entry, each.name, partial(authors.f1, *sums), len(sums[2]), settings, each.name))
    _, values, draws, blocks = zip(*figures, strict=True)
    return TaskFigure("b3_f1", float(np.mean(values)), np.mean(draws, axis=0), sum(blocks))


def _resampled(
    entry: Entry, name: str, figure: Callable[[Floats], Floats], items: int, settings: Settings, part: str = ""
) -> TaskFigure:
    """Return a figure that is no mean over items, with resamples of the items (of a part of the task)."""
    if not items:
        raise InputError(f"task {entry.name} must have test papers, got none", "Fetch it again")
    item = f"{entry.name}|{part}" if part else entry.name
    draws = [figure(times) for times in resampled(items, seed=settings.seed, item=item, resamples=settings.resamples)]
    return TaskFigure(name, float(figure(np.ones((1, items)))[0]), np.concatenate(draws), items)


@contextmanager
def _named(entry: Entry) -> Iterator[None]:
    """Name the task in the error of a fit."""
    try:
        yield
    except InputError as error:
        raise InputError(f"task {entry.name}: {error.what}", error.remedy) from error
