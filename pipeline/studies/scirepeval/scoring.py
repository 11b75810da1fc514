"""The figures of one task with one system's vectors, and their bootstrap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from pipeline.studies import kit
from pipeline.studies.kit import Floats, InputError
from pipeline.studies.scirepeval import probes
from pipeline.studies.scirepeval.data import DataSet, Judged, Labelled, load_authors, load_judged, load_labelled
from pipeline.studies.scirepeval.tasks import Entry, Folder, VectorsOf
from pipeline.studies.sentences import SCORES, Pairing

Ints = npt.NDArray[np.int64]
_TOP = 3
"""Number of a reviewer's most similar papers that are averaged."""


@dataclass(frozen=True)
class FiguresConfig:
    """Settings of the figures of a task; ``pairing``: how papers with one vector per sentence are compared."""

    task: Entry
    seed: int
    resamples: int
    pairing: Pairing | None = field(default=None, metadata=kit.OMIT_DEFAULT)


TaskFigure = tuple[str, float, int, Floats]
"""One figure of a task: the measure, followed by ``@`` and the size of a few-shot row, or preceded by ``hard`` or
``soft``; its value, a fraction; the number of test items; and the value in each resample of test items (and of
repetitions), float64 ``[resamples]``."""


def score(
    config: FiguresConfig, folder: Folder, vectors: VectorsOf, workers: int
) -> tuple[list[TaskFigure], Counter[str]]:
    """Return the figures of a task and its counts; ``workers`` processes fit the probes.

    Raises:
        InputError: a file of the task is not valid; the message names the task and the id.
    """
    entry, counts = config.task, Counter[str]()
    if entry.kind == "authors":
        return [_cluster(config, load_authors(entry, folder, counts), vectors)], counts
    if entry.format in ("classification", "regression"):
        data = load_labelled(entry, folder)
        figures_of = _classify if entry.format == "classification" else _regress
        return list(figures_of(config, data, vectors, workers)), data.counts
    judged, names = load_judged(entry, folder), list(entry.measures)
    if entry.kind == "reviewers":
        values = match(judged, vectors, names, config.pairing)
        names = [f"{labels} {measure}" for labels in ("hard", "soft") for measure in names]
    else:
        values = rank(entry.name, judged, vectors, names, config.pairing)
    rows = [row[np.isfinite(row)] for row in values]
    return [_mean(config, name, row) for name, row in zip(names, rows, strict=True)], judged.keys.counts


def rank(
    task: str, judged: Judged, vectors: VectorsOf, measures: Sequence[str], pairing: Pairing | None = None
) -> Floats:
    """Return the measures of each query by ascending Euclidean distance, ``[measures, queries]``; NaN: no positive.

    Each query ranks its own candidates; ``pairing`` compares papers with one vector per sentence. Ties are in falling
    order of paper key. Queries without a positive are counted.
    """
    queries, candidates = judged.queries, judged.pairs["candidate"]
    keys, row = np.unique([judged.keys[paper] for paper in candidates], return_inverse=True)
    papers = vectors(keys.tolist(), "paper")
    if judged.texts:
        query_vectors = vectors([f"{task}/{query_id}" for query_id in queries], "query")
    else:
        query_vectors = vectors([judged.keys[query_id] for query_id in queries], "paper")
    if not pairing and papers.shape[1] != query_vectors.shape[1]:
        raise InputError(
            f"queries must have vectors of {papers.shape[1]} components, as papers have, got {query_vectors.shape[1]}",
            "Name encoders of one model for search and query in formats",
        )
    query = _query_numbers(judged)
    scores, starts = np.empty(len(query)), np.searchsorted(query, np.arange(len(queries) + 1))
    for vector, start, end in zip(query_vectors, starts, starts[1:], strict=False):
        candidate_vectors = papers[row[start:end]]
        if pairing:
            scores[start:end] = [SCORES[pairing](vector, paper) for paper in candidate_vectors]
        else:
            scores[start:end] = -np.sqrt(np.square(candidate_vectors - vector.astype(np.float64)).sum(axis=1))
    values = _measure(query, row, scores, judged.pairs["grade"].to_numpy(), measures)
    judged.keys.counts["queries_without_positive"] += int(np.isnan(values[0]).sum())
    return values


def match(judged: Judged, vectors: VectorsOf, measures: Sequence[str], pairing: Pairing | None = None) -> Floats:
    """Return the measures of each query of reviewer matching, ``[2 * measures, queries]``: hard, then soft labels.

    The score of a reviewer and a paper is the mean of the three highest cosines (or scores by ``pairing``) between the
    reviewer's papers and the paper; either side may be the query. Pairs are those with hard labels, and one without a
    soft label is not relevant. NaN: a query without a positive; it is counted, as are reviewers without papers.
    """
    pairs = []
    for query, candidate in judged.pairs.select("query", "candidate").iter_rows():
        reviewer, paper = (query, candidate) if query in judged.groups else (candidate, query)
        pairs.append(([judged.keys[written] for written in judged.groups.get(reviewer, ())], judged.keys[paper]))
    keys = sorted({key for papers, paper in pairs for key in (*papers, paper)})
    key_vectors, score = vectors(keys, "paper"), SCORES[pairing] if pairing else np.dot
    if not pairing:
        key_vectors = key_vectors.astype(np.float64)
        lengths = np.linalg.norm(key_vectors, axis=1, keepdims=True)
        key_vectors /= np.where(lengths > 0, lengths, 1)
    vector_of = dict(zip(keys, key_vectors, strict=True))
    best = [np.sort([score(vector_of[key], vector_of[paper]) for key in papers])[-_TOP:] for papers, paper in pairs]
    scores = np.array([top.mean() if len(top) else np.nan for top in best])
    judged.keys.counts["reviewers_without_papers"] += int(np.isnan(scores).sum())
    row, values = np.unique(judged.pairs["candidate"], return_inverse=True)[1], []
    for labels, column in (("hard", "grade"), ("soft", "soft")):
        values.append(_measure(_query_numbers(judged), row, scores, judged.pairs[column].to_numpy(), measures))
        judged.keys.counts[f"queries_without_{labels}_positive"] += int(np.isnan(values[-1][0]).sum())
    return np.concatenate(values)


def _query_numbers(judged: Judged) -> Ints:
    """Return the query number of each pair, rising."""
    return np.array(judged.pairs["query"].rle_id(), np.int64)


def _measure(query: Ints, row: Ints, scores: Floats, grade: Ints, measures: Sequence[str]) -> Floats:
    """Return the measures of each query, ``[measures, queries]``; NaN without a positive.

    Each pair has the numbers of its query and candidate (``row``, which breaks ties), its score (NaN: not ranked) and
    its grade.
    """
    starts = np.arange(int(query.max(initial=-1)) + 2)
    ranked, judged = np.lexsort((-row, -scores, query)), np.lexsort((row, -grade, query))
    ranked, judged = ranked[np.isfinite(scores[ranked])], judged[grade[judged] >= 1]
    run = kit.RankedRun(np.searchsorted(query[ranked], starts), row[ranked].astype(np.uint32))
    qrels = kit.Qrels(
        np.searchsorted(query[judged], starts), row[judged].astype(np.uint32), grade[judged].astype(np.int16)
    )
    return kit.evaluate_all(qrels, run, kit.parse_measures(measures))


def _classify(config: FiguresConfig, data: Labelled, vectors: VectorsOf, workers: int) -> Iterator[TaskFigure]:
    entry, several = config.task, config.task.several_labels
    train, test, (measure,) = data.train_labels, data.test_labels, entry.measures
    average = "positive" if measure == "f1" else "labels" if several else "classes"
    if average == "positive" and test.shape[1] != 2:
        raise InputError(f"task {entry.name} must have two classes, got {test.shape[1]}", "Fetch it again")
    if not several and np.count_nonzero(train.any(axis=0)) < 2:
        problem = f"task {entry.name}: the training papers must have at least two classes, got one"
        raise InputError(problem, "Check the labels")
    x_train, x_test = vectors(data.train, "paper"), vectors(data.test, "paper")
    predicted = probes.classify(x_train, train, x_test, several, workers, data.counts)
    yield _bootstrap(config, measure, [lambda times: probes.f1(test, predicted, times, average)], len(test))
    for row in entry.few_shot:
        shots = list[probes.Indicator]()
        repetitions = probes.few_shot(x_train, train, x_test, several, row, entry.name, workers)
        for shot, counts in repetitions:
            shots.append(shot)
            data.counts.update({f"{name}@{row[0]}": count for name, count in counts.items()})
        statistics = [lambda times, shot=shot: probes.f1(test, shot, times, average) for shot in shots]
        yield _bootstrap(config, f"{measure}@{row[0]}", statistics, len(test))  # repetitions are resampled too


def _regress(config: FiguresConfig, data: Labelled, vectors: VectorsOf, workers: int) -> Iterator[TaskFigure]:
    if len(data.train) < probes.FOLDS:
        raise InputError(
            f"task {config.task.name}: a regression must have at least {probes.FOLDS} training papers, "
            f"got {len(data.train)}",
            "",
        )
    x_train, x_test = vectors(data.train, "paper"), vectors(data.test, "paper")
    predicted = probes.regress(x_train, data.train_labels, x_test, workers)

    def figure(times: Floats) -> Floats:
        rows = (np.repeat(np.arange(len(predicted)), row.astype(int)) for row in times)
        return np.array([probes.kendall(data.test_labels[row], predicted[row]) for row in rows])

    yield _bootstrap(config, "kendall", [figure], len(predicted))


def _cluster(config: FiguresConfig, sets: Sequence[DataSet], vectors: VectorsOf) -> TaskFigure:
    """Return the mean B-cubed F1 of the data sets; test blocks are resampled within each."""
    figures = []
    for data in sets:
        sums = probes.b_cubed(*probes.cluster(data, vectors))
        figures.append(_bootstrap(config, data.name, [partial(probes.b_cubed_f1, *sums)], len(sums[2]), data.name))
    _, values, blocks, draws = zip(*figures, strict=True)
    return "b3_f1", float(np.mean(values)), sum(blocks), np.mean(draws, axis=0)


def _mean(config: FiguresConfig, name: str, values: Floats) -> TaskFigure:
    """Return the mean over queries; hard and soft labels have independent resamples."""
    if not len(values):
        problem = f"task {config.task.name} must have a query with a positive for {name}, got none"
        raise InputError(problem, "Leave it out")
    item = f"{config.task.name}|{name.partition(' ')[0] if ' ' in name else ''}"
    (draws,) = kit.bootstrap_means(values[None], seed=config.seed, item=item, resamples=config.resamples)
    return name, float(values.mean()), len(values), draws


def _bootstrap(
    config: FiguresConfig, name: str, statistics: Sequence[Callable[[Floats], Floats]], items: int, data_set: str = ""
) -> TaskFigure:
    """Return a figure that is not a mean over items, with resamples of the items (of one data set of the task)."""
    task, draws = config.task.name, {"seed": config.seed, "resamples": config.resamples}
    item = f"{task}|{data_set}" if data_set else task
    value, resamples = kit.bootstrap(statistics, items, item=item, repetition=f"{task}|{name}", **draws)
    return name, value, items, resamples
