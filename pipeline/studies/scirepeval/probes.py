"""What is predicted from vectors: classes and numbers by linear probes, and authors by clustering.

Linear probes (Singh et al. 2023, section 3, appendix B.1): every fit is scikit-learn's, called plainly. The fits of a
grid, or the repetitions of a few-shot row, run in several processes. Fits are seeded, so their number does not change a
prediction.

S2AND (Subramanian et al. 2021): signatures clustered by author within blocks, and B-cubed F1. The published evaluation
gives a pairwise model features of names, affiliations and papers; here vectors alone decide. Signatures of a block are
clustered by average linkage of cosine distances. The distance at which the tree is cut is the best of the quantiles of
the distances at which clusters merge, on a fifth of the blocks of each data set; the others are the test blocks. So
cuts are as fine for an encoder whose cosines are all near 1 as for any other.
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

from pipeline.core.errors import InputError
from pipeline.measure.statistics import Floats
from pipeline.studies.scirepeval.data import DataSet
from pipeline.studies.scirepeval.tasks import VectorsOf

Vectors = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Indicator = npt.NDArray[np.bool_]
"""``[papers, classes]``; several of a row are set where a paper has several labels, none where it has none."""

FOLDS = 3
SEED = 42
_CLASSIFICATION, _REGRESSION = np.logspace(-2, 2, 5), np.logspace(-4, 2, 7)
SMALL = 2**22
"""Components of a training set whose grid is not worth several processes."""
_ITERATIONS = 10_000
"""Iterations of a fit for one of several labels; other fits have scikit-learn's default."""
_TUNE_SHARE = 5
_CUTS = 41
"""Quantiles of the merging distances that are tried, from the lowest to the highest."""


def classify(
    train: Vectors,
    labels: Indicator,
    test: Vectors,
    several: bool,
    workers: int,
    counts: Counter[str],
    seed: int = SEED,
) -> Indicator:
    """Return the predicted classes of test papers, by ``workers`` processes; ``seed`` is of the fits.

    C is the best of 0.01 to 100 by accuracy in three folds. With several labels a paper, each label has its own
    classifier and C. Rules for small classes, each counted:

    - ``classes_below_folds``: fewer papers than folds; the folds leave the class out. A label of several with so few
      papers, or so few without it, is fitted with C = 1.
    - ``classes_without_contrast``: no paper, or every paper, has the label; it is predicted like that.
    """
    if several:
        return np.stack([_binary(train, column, test, workers, counts, seed) for column in labels.T], axis=1)
    target = labels.argmax(axis=1)
    sizes = np.bincount(target, minlength=labels.shape[1])
    counts["classes_below_folds"] += int(np.count_nonzero((sizes > 0) & (sizes < FOLDS)))
    probe = LinearSVC(random_state=seed)
    if sizes.max() >= FOLDS:
        probe = _grid(probe, _CLASSIFICATION, train, workers)
    return _one_hot(_predict(probe, train, target, test), labels.shape[1])


def _binary(
    train: Vectors, label: npt.NDArray[np.bool_], test: Vectors, workers: int, counts: Counter[str], seed: int
) -> Any:
    smaller = int(min(label.sum(), (~label).sum()))
    if smaller == 0:
        counts["classes_without_contrast"] += 1
        return np.full(len(test), bool(label[0]))
    probe = LinearSVC(loss="hinge", max_iter=_ITERATIONS, random_state=seed)
    counts["classes_below_folds"] += smaller < FOLDS
    return _predict(probe if smaller < FOLDS else _grid(probe, _CLASSIFICATION, train, workers), train, label, test)


def regress(train: Vectors, labels: Floats, test: Vectors, workers: int, seed: int = SEED) -> Floats:
    """Return the predicted numbers of test papers; C is the best of 0.0001 to 100 by R² in three folds."""
    probe = _grid(LinearSVR(random_state=seed), _REGRESSION, train, workers)
    return np.asarray(_predict(probe, train, labels, test))


def few_shot(
    train: Vectors,
    labels: Indicator,
    test: Vectors,
    several: bool,
    row: tuple[int, int],
    task: str,
    workers: int,
    seed: int = SEED,
) -> Iterator[tuple[Indicator, Counter[str]]]:
    """Yield the predicted classes of each repetition, and its counts; ``row`` is (training papers, repetitions).

    With one label a paper, a repetition trains on a stratified part of about so many papers, in their order, with
    C = 1; parts share no paper, and there are at most as many repetitions as parts. With several labels, it trains on
    so many papers of each label (all of a rarer one, counted as ``labels_below_shot``), drawn as the published
    evaluation draws them, and chooses C. A part with one class is left out and counted as
    ``repetitions_of_one_class``.
    """
    drawn = _per_label(labels, *row) if several else _parts(labels, *row, task)
    calls = (joblib.delayed(_shot)(train[rows], labels[rows], test, several, counts, seed) for rows, counts in drawn)
    yield from joblib.Parallel(workers if several else 1, return_as="generator")(calls)  # one fit is milliseconds


def _shot(
    train: Vectors, labels: Indicator, test: Vectors, several: bool, counts: Counter[str], seed: int
) -> tuple[Indicator, Counter[str]]:
    if several:
        return classify(train, labels, test, several, 1, counts, seed), counts
    predicted = _predict(LinearSVC(random_state=seed), train, labels.argmax(axis=1), test)
    return _one_hot(predicted, labels.shape[1]), counts


def _parts(labels: Indicator, size: int, repetitions: int, task: str) -> Iterator[tuple[Ints, Counter[str]]]:
    target = labels.argmax(axis=1)
    parts = -(-len(target) // size)
    if parts < 2 or parts > np.bincount(target).max():
        raise InputError(
            f"task {task} must have more than {size} training papers and a class for every part, got "
            f"{len(target)} papers",
            "Leave out its few-shot rows",
        )
    with _quiet():
        drawn = [rows for _, rows in StratifiedKFold(parts).split(target, target)][:repetitions]
    kept = [rows for rows in drawn if len(np.unique(target[rows])) > 1]
    if not kept:
        raise InputError(f"parts of {size} papers of task {task} must have two classes, got one in each", "")
    for number, rows in enumerate(kept):
        yield rows, Counter(repetitions_of_one_class=0 if number else len(drawn) - len(kept))


def _per_label(labels: Indicator, size: int, repetitions: int) -> Iterator[tuple[Ints, Counter[str]]]:
    for number in range(repetitions):
        random = np.random.RandomState(SEED + number)  # as the published evaluation
        counts, chosen = Counter[str](), set[int]()
        for column in labels.T:
            holders = np.flatnonzero(column)
            counts["labels_below_shot"] += len(holders) < size
            chosen.update(random.choice(holders, min(size, len(holders)), replace=False).tolist())
        yield np.array(list(chosen), np.int64), counts


def _grid(probe: Any, values: Floats, train: Vectors, workers: int) -> GridSearchCV:
    jobs = 1 if train.size < SMALL else min(workers, FOLDS * len(values))
    return GridSearchCV(probe, {"C": values}, cv=FOLDS, n_jobs=jobs)


def _predict(probe: Any, train: Vectors, target: Any, test: Vectors) -> Any:
    with _quiet():
        return probe.fit(train, target).predict(test)


def _one_hot(target: Ints, classes: int) -> Indicator:
    return np.equal.outer(target, np.arange(classes))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings of fits that reach their iterations, and of small classes, which are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")
        yield


def f1(truth: Indicator, predicted: Indicator, times: Floats, average: str) -> Floats:
    """Return the F1 of each resample of test papers; ``times`` is ``[resamples, papers]``.

    ``times`` is how often each has each paper. The average is ``positive``: of the last of two classes; ``labels``:
    mean over all labels; ``classes``: mean over the classes that the resample has or predicts. F1 of a class that is
    never found is 0.
    """
    hits, relevant, positive = (times @ papers.astype(np.float64) for papers in (truth & predicted, truth, predicted))
    total = relevant + positive
    scores = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
    if average == "positive":
        return scores[:, -1]
    classes = (total > 0).sum(axis=1) if average == "classes" else np.full(len(times), truth.shape[1])
    return np.asarray(scores.sum(axis=1) / np.maximum(classes, 1))


def kendall(truth: Floats, predicted: Floats) -> float:
    """Return Kendall's tau-b; 0 where either side is constant."""
    return float(np.nan_to_num(kendalltau(truth, predicted).statistic))


def cluster(data: DataSet, vectors: VectorsOf) -> tuple[list[Ints], list[Ints]]:
    """Return the authors and the clusters of the signatures of each test block."""
    tuned = max(1, len(data.blocks) // _TUNE_SHARE)
    trees = [_tree(vectors(keys, "paper")) for keys, _ in data.blocks]
    authors = [numbers for _, numbers in data.blocks]

    def quality(cut: float) -> float:
        sums = b_cubed(authors[:tuned], [_cut(tree, cut) for tree in trees[:tuned]])
        return float(b_cubed_f1(*sums, np.ones((1, tuned)))[0])

    merges = np.concatenate([np.zeros(1), *(tree[:, 2] for tree in trees[:tuned])])
    best = max(np.quantile(merges, np.linspace(0, 1, _CUTS)).tolist(), key=quality)
    return authors[tuned:], [_cut(tree, best) for tree in trees[tuned:]]


def _tree(vectors: npt.NDArray[np.float32]) -> Floats:
    if len(vectors) < 2:
        return np.empty((0, 4))
    distances = pdist(vectors.astype(np.float64), "cosine")
    tree: Floats = linkage(np.clip(np.nan_to_num(distances, nan=1.0), 0, 2), "average")  # a zero vector has no cosine
    return tree


def _cut(tree: Floats, distance: float) -> Ints:
    return fcluster(tree, distance, "distance").astype(np.int64) if len(tree) else np.ones(1, np.int64)


def b_cubed(authors: Sequence[Ints], clusters: Sequence[Ints]) -> tuple[Floats, Floats, Ints]:
    """Return the sums over the signatures of each block of B-cubed precision and recall, and their number.

    Precision of a signature: the share of its cluster that is of its author. Recall: the share of its author's
    signatures, in any block, that is in its cluster (Bagga and Baldwin 1998). Clusters of two blocks are distinct.
    """
    block = np.repeat(np.arange(len(authors)), list(map(len, authors)))
    author, number = np.concatenate(authors), np.concatenate(clusters)
    _, cluster = np.unique(np.stack([block, number]), axis=1, return_inverse=True)
    _, pair, shared = np.unique(np.stack([cluster, author]), axis=1, return_inverse=True, return_counts=True)
    _, author = np.unique(author, return_inverse=True)
    both = shared[pair]
    precision, recall = both / np.bincount(cluster)[cluster], both / np.bincount(author)[author]
    sums = [np.bincount(block, values, len(authors)).astype(np.float64) for values in (precision, recall)]
    return sums[0], sums[1], np.bincount(block, minlength=len(authors)).astype(np.int64)


def b_cubed_f1(precision: Floats, recall: Floats, sizes: Ints, times: Floats) -> Floats:
    """Return B-cubed F1 of each resample, of the sums of :func:`b_cubed` and how often each resample has each block."""
    total = times @ sizes
    p, r = times @ precision / total, times @ recall / total
    return np.asarray(2 * p * r / (p + r))
