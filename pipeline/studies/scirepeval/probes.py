"""Linear probes by scikit-learn (Singh et al. 2023, section 3, appendix B.1), and authors by clustering (S2AND).

Fits are seeded, so the number of processes does not change a prediction. Signatures of a block are clustered by average
linkage of cosine distances; the cut, a quantile of the distances at which clusters merge, is tuned on a fifth of the
blocks of each data set.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from scipy.stats import kendalltau
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC, LinearSVR

from pipeline.studies.kit import Floats, InputError
from pipeline.studies.scirepeval.data import DataSet
from pipeline.studies.scirepeval.tasks import VectorsOf

Vectors = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Indicator = npt.NDArray[np.bool_]
"""bool ``[papers, classes]``; a row has one true value for each label of the paper."""

FOLDS = 3
SEED = 42
_CLASSIFICATION, _REGRESSION = np.logspace(-2, 2, 5), np.logspace(-4, 2, 7)
SMALL = 2**22
"""Number of values in a training set from which a grid search uses several processes."""
_ITERATIONS = 10_000
"""Maximum iterations of a fit where papers have several labels; other fits use scikit-learn's default."""
_TUNE_SHARE = 5
_CUTS = 41
"""Number of candidate cuts: quantiles of the merging distances, from the lowest to the highest."""


def classify(
    train: Vectors, labels: Indicator, test: Vectors, several: bool, workers: int, counts: Counter[str]
) -> Indicator:
    """Return the predicted classes of test papers; C is chosen from 0.01 to 100 by accuracy in three folds.

    If papers have ``several`` labels, each has its own classifier and C. Counted are ``classes_below_folds``, classes
    with fewer papers than folds (with several labels fitted with C = 1), and ``classes_without_contrast``, labels of no
    paper, or of every paper, which are predicted so.
    """
    if several:
        return np.stack([_predict_label(train, column, test, workers, counts) for column in labels.T], axis=1)
    target = labels.argmax(axis=1)
    sizes = np.bincount(target, minlength=labels.shape[1])
    counts["classes_below_folds"] += int(np.count_nonzero((sizes > 0) & (sizes < FOLDS)))
    probe = LinearSVC(random_state=SEED)
    if sizes.max() >= FOLDS:
        probe = _grid_search(probe, _CLASSIFICATION, train, workers)
    return _one_hot(_predict(probe, train, target, test), labels.shape[1])


def _predict_label(
    train: Vectors, label: npt.NDArray[np.bool_], test: Vectors, workers: int, counts: Counter[str]
) -> Any:
    """Return which test papers are predicted to have a label, bool ``[papers]``."""
    minority = int(min(label.sum(), (~label).sum()))
    if minority == 0:
        counts["classes_without_contrast"] += 1
        return np.full(len(test), bool(label[0]))
    probe = LinearSVC(loss="hinge", max_iter=_ITERATIONS, random_state=SEED)
    counts["classes_below_folds"] += minority < FOLDS
    searched = probe if minority < FOLDS else _grid_search(probe, _CLASSIFICATION, train, workers)
    return _predict(searched, train, label, test)


def regress(train: Vectors, labels: Floats, test: Vectors, workers: int) -> Floats:
    """Return the predicted numbers of test papers; C is chosen from 0.0001 to 100 by R² in three folds."""
    probe = _grid_search(LinearSVR(random_state=SEED), _REGRESSION, train, workers)
    return np.asarray(_predict(probe, train, labels, test))


def few_shot(
    train: Vectors, labels: Indicator, test: Vectors, several: bool, row: tuple[int, int], task: str, workers: int
) -> Iterator[tuple[Indicator, Counter[str]]]:
    """Yield the predicted classes of each repetition, and its counts; ``row`` is (training papers, repetitions).

    With one label, a repetition trains on a stratified part of about that many papers, in order, with C = 1; a part of
    one class is left out and counted. With several, it trains on that many papers of each label (all of a rarer one,
    counted), drawn like in the published evaluation, and C is chosen.
    """
    subsets = _draw_per_label(labels, *row) if several else _draw_parts(labels, *row, task)
    calls = (joblib.delayed(_shot)(train[rows], labels[rows], test, several, counts) for rows, counts in subsets)
    yield from joblib.Parallel(workers if several else 1, return_as="generator")(calls)  # one fit is milliseconds


def _shot(
    train: Vectors, labels: Indicator, test: Vectors, several: bool, counts: Counter[str]
) -> tuple[Indicator, Counter[str]]:
    if several:
        return classify(train, labels, test, several, 1, counts), counts
    predicted = _predict(LinearSVC(random_state=SEED), train, labels.argmax(axis=1), test)
    return _one_hot(predicted, labels.shape[1]), counts


def _draw_parts(labels: Indicator, size: int, repetitions: int, task: str) -> Iterator[tuple[Ints, Counter[str]]]:
    target = labels.argmax(axis=1)
    part_count = -(-len(target) // size)
    if part_count < 2 or part_count > np.bincount(target).max():
        raise InputError(
            f"task {task} must have more than {size} training papers and a class for every part, got "
            f"{len(target)} papers",
            "Leave out its few-shot rows",
        )
    with _without_warnings():
        parts = [rows for _, rows in StratifiedKFold(part_count).split(target, target)][:repetitions]
    usable = [rows for rows in parts if len(np.unique(target[rows])) > 1]
    if not usable:
        problem = f"parts of {size} papers of task {task} must have two classes, got one in each"
        raise InputError(problem, "Leave the task out, or give more of its papers")
    for position, rows in enumerate(usable):
        yield rows, Counter(repetitions_of_one_class=0 if position else len(parts) - len(usable))


def _draw_per_label(labels: Indicator, size: int, repetitions: int) -> Iterator[tuple[Ints, Counter[str]]]:
    for repetition in range(repetitions):
        random = np.random.RandomState(SEED + repetition)  # as the published evaluation
        counts, rows = Counter[str](), set[int]()
        for column in labels.T:
            holders = np.flatnonzero(column)
            counts["labels_below_shot"] += len(holders) < size
            rows.update(random.choice(holders, min(size, len(holders)), replace=False).tolist())
        yield np.array(list(rows), np.int64), counts


def _grid_search(probe: Any, values: Floats, train: Vectors, workers: int) -> GridSearchCV:
    jobs = 1 if train.size < SMALL else min(workers, FOLDS * len(values))
    return GridSearchCV(probe, {"C": values}, cv=FOLDS, n_jobs=jobs)


def _predict(probe: Any, train: Vectors, target: Any, test: Vectors) -> Any:
    with _without_warnings():
        return probe.fit(train, target).predict(test)


def _one_hot(target: Ints, classes: int) -> Indicator:
    return np.equal.outer(target, np.arange(classes))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence warnings of fits that do not converge, and of small classes, which are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")
        yield


def f1(truth: Indicator, predicted: Indicator, times: Floats, average: str) -> Floats:
    """Return the F1 of each resample of test papers, float64 ``[resamples]``.

    ``times``, ``[resamples, papers]``, says how often each resample contains each paper. The average is ``positive``:
    F1 of the last of two classes; ``labels``: mean over all labels; ``classes``: mean over the classes that are true or
    predicted in the resample. F1 of a class without a true positive is 0.
    """
    hits, relevant, positive = (times @ matrix.astype(np.float64) for matrix in (truth & predicted, truth, predicted))
    denominator = relevant + positive
    scores = np.divide(2 * hits, denominator, out=np.zeros_like(hits), where=denominator > 0)
    if average == "positive":
        return scores[:, -1]
    classes = (denominator > 0).sum(axis=1) if average == "classes" else np.full(len(times), truth.shape[1])
    return np.asarray(scores.sum(axis=1) / np.maximum(classes, 1))


def kendall(truth: Floats, predicted: Floats) -> float:
    """Return Kendall's tau-b; 0 where either side is constant."""
    return float(np.nan_to_num(kendalltau(truth, predicted).statistic))


def cluster(data: DataSet, vectors: VectorsOf) -> tuple[list[Ints], list[Ints]]:
    """Return the author numbers and the cluster numbers of the signatures of each test block."""
    tuning_count = max(1, len(data.blocks) // _TUNE_SHARE)
    trees = [_cluster_tree(vectors(keys, "paper")) for keys, _ in data.blocks]
    authors = [block_authors for _, block_authors in data.blocks]

    def quality(cut: float) -> float:
        sums = b_cubed(authors[:tuning_count], [_cut_tree(tree, cut) for tree in trees[:tuning_count]])
        return float(b_cubed_f1(*sums, np.ones((1, tuning_count)))[0])

    merges = np.concatenate([np.zeros(1), *(tree[:, 2] for tree in trees[:tuning_count])])
    best_cut = max(np.quantile(merges, np.linspace(0, 1, _CUTS)).tolist(), key=quality)
    return authors[tuning_count:], [_cut_tree(tree, best_cut) for tree in trees[tuning_count:]]


def _cluster_tree(vectors: npt.NDArray[np.float32]) -> Floats:
    if len(vectors) < 2:
        return np.empty((0, 4))
    distances = pdist(vectors.astype(np.float64), "cosine")
    tree: Floats = linkage(np.clip(np.nan_to_num(distances, nan=1.0), 0, 2), "average")  # a zero vector has no cosine
    return tree


def _cut_tree(tree: Floats, distance: float) -> Ints:
    return fcluster(tree, distance, "distance").astype(np.int64) if len(tree) else np.ones(1, np.int64)


def b_cubed(authors: Sequence[Ints], clusters: Sequence[Ints]) -> tuple[Floats, Floats, Ints]:
    """Return the sums of B-cubed precision and recall over the signatures of each block, and the number of signatures.

    Precision of a signature: the share of its cluster that has its author. Recall: the share of its author's
    signatures, in any block, that is in its cluster (Bagga and Baldwin 1998). No cluster spans two blocks.
    """
    block = np.repeat(np.arange(len(authors)), list(map(len, authors)))
    author, label = np.concatenate(authors), np.concatenate(clusters)
    _, cluster = np.unique(np.stack([block, label]), axis=1, return_inverse=True)
    _, pair, pair_sizes = np.unique(np.stack([cluster, author]), axis=1, return_inverse=True, return_counts=True)
    _, author = np.unique(author, return_inverse=True)
    shared = pair_sizes[pair]
    precision, recall = shared / np.bincount(cluster)[cluster], shared / np.bincount(author)[author]
    sums = [np.bincount(block, values, len(authors)).astype(np.float64) for values in (precision, recall)]
    return sums[0], sums[1], np.bincount(block, minlength=len(authors)).astype(np.int64)


def b_cubed_f1(precision: Floats, recall: Floats, sizes: Ints, times: Floats) -> Floats:
    """Return B-cubed F1 of each resample from the sums of :func:`b_cubed`; ``times`` is ``[resamples, blocks]``."""
    signatures = times @ sizes
    p, r = times @ precision / signatures, times @ recall / signatures
    return np.asarray(2 * p * r / (p + r))
