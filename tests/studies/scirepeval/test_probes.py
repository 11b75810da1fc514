"""Probes against scikit-learn called plainly on the same vectors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC, LinearSVR

from pipeline.core.errors import InputError
from pipeline.studies.scirepeval import probes, scoring
from pipeline.studies.scirepeval.scoring import FiguresConfig
from pipeline.studies.scirepeval.tasks import entries

pytestmark = pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")

GRID = {"C": [0.01, 0.1, 1, 10, 100]}
SEVERAL = OneVsRestClassifier(GridSearchCV(LinearSVC(loss="hinge", max_iter=10_000, random_state=42), GRID, cv=3))


def _vectors(seed: int, papers: int, dimension: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around a centre a class, and the classes."""
    random = np.random.default_rng(seed)
    target = random.integers(0, classes, papers)
    centres = random.normal(size=(classes, dimension))
    return (centres[target] + random.normal(scale=2, size=(papers, dimension))).astype(np.float32), target


@pytest.mark.parametrize(("classes", "workers"), [(2, 2), (5, 1)])
def test_one_label(classes: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "SMALL", 1)  # two workers share the grid of so few papers, too
    x, y = _vectors(3, 240, 20, classes)
    plain = GridSearchCV(LinearSVC(random_state=42), GRID, cv=3)
    expected = plain.fit(x[:180], y[:180]).predict(x[180:])
    labels = np.eye(classes, dtype=bool)[y]
    predicted = probes.classify(x[:180], labels[:180], x[180:], False, workers, Counter())
    np.testing.assert_array_equal(predicted.argmax(axis=1), expected)
    average = "positive" if classes == 2 else "classes"
    score = f1_score(y[180:], expected, average="binary" if classes == 2 else "macro")
    assert probes.f1(labels[180:], predicted, np.ones((1, 60)), average)[0] == pytest.approx(score, abs=1e-12)


def test_several_labels() -> None:
    x, y = _vectors(4, 200, 20, 4)
    labels = np.eye(4, dtype=bool)[y]
    labels[::3, 1] = True
    labels[5] = False  # a paper without a label
    expected = SEVERAL.fit(x[:150], labels[:150].astype(int)).predict(x[150:])
    predicted = probes.classify(x[:150], labels[:150], x[150:], True, 1, Counter())
    np.testing.assert_array_equal(predicted, expected)
    score = probes.f1(labels[150:], predicted, np.ones((1, 50)), "labels")[0]
    assert score == pytest.approx(f1_score(labels[150:], expected, average="macro", zero_division=0), abs=1e-12)


def test_regression() -> None:
    x, y = _vectors(5, 200, 20, 9)
    plain = GridSearchCV(LinearSVR(random_state=42), {"C": np.logspace(-4, 2, 7)}, cv=3).fit(x[:150], y[:150])
    np.testing.assert_array_equal(probes.regress(x[:150], y[:150].astype(float), x[150:], 2), plain.predict(x[150:]))
    assert probes.kendall(np.arange(5.0), np.ones(5)) == 0


def test_small_classes_are_counted() -> None:
    x, _ = _vectors(6, 30, 5, 2)
    labels = np.zeros((30, 4), bool)
    labels[:15, 0], labels[:2, 1], labels[:, 3] = True, True, True
    counts: Counter[str] = Counter()
    predicted = probes.classify(x, labels, x, True, 1, counts)
    assert counts == {"classes_below_folds": 1, "classes_without_contrast": 2}
    assert predicted[:, 3].all()
    assert not predicted[:, 2].any()
    counts.clear()
    probes.classify(x, np.eye(3, dtype=bool)[np.repeat([0, 1, 2], [14, 14, 2])], x, False, 1, counts)
    assert counts == {"classes_below_folds": 1}


@pytest.mark.parametrize("several", [False, True])
def test_few_shot_repetitions_are_seeded(several: bool) -> None:
    x, y = _vectors(7, 90, 8, 3)
    labels = np.eye(3, dtype=bool)[y]
    alone, shared = (
        [shot for shot, _ in probes.few_shot(x[:60], labels[:60], x[60:], several, (12, 5), "drsm", workers)]
        for workers in (1, 2)
    )
    np.testing.assert_array_equal(alone, shared)
    assert len({shot.tobytes() for shot in alone}) > 1
    if several:  # draws of NumPy's global generator, seeded by repetition
        for number, shot in enumerate(alone[:3]):
            np.random.seed(42 + number)  # noqa: NPY002
            drawn = set[int]()
            for label in range(3):
                holders = np.where(labels[:60, label])[0]
                drawn.update(np.random.choice(holders, 12, replace=False).tolist())  # noqa: NPY002
            rows = list(drawn)
            np.testing.assert_array_equal(shot, SEVERAL.fit(x[rows], labels[rows].astype(int)).predict(x[60:]))
    else:  # 60 papers are five parts, in order
        parts = [rows for _, rows in StratifiedKFold(5).split(x[:60], y[:60])]
        expected = [LinearSVC(random_state=42).fit(x[:60][rows], y[:60][rows]).predict(x[60:]) for rows in parts]
        np.testing.assert_array_equal([shot.argmax(axis=1) for shot in alone], expected)


def test_parts_of_one_class_are_left_out_and_counted() -> None:
    x, _ = _vectors(7, 60, 8, 2)
    labels = np.eye(2, dtype=bool)[np.isin(np.arange(60), [3, 40]).astype(int)]
    shots = list(probes.few_shot(x, labels, x, False, (10, 9), "drsm", 1))
    assert [counts for _, counts in shots] == [{"repetitions_of_one_class": 4}, {"repetitions_of_one_class": 0}]
    with pytest.raises(InputError, match="must have two classes, got one in each"):
        list(probes.few_shot(x, labels, x, False, (10, 4), "drsm", 1))


def test_a_label_rarer_than_the_shot_is_counted_and_too_few_papers_are_refused() -> None:
    x, y = _vectors(8, 30, 8, 3)
    labels = np.eye(3, dtype=bool)[y]
    (_, counts), *_ = probes.few_shot(x, labels, x, True, (20, 1), "fos", 1)
    assert counts["labels_below_shot"] == 3
    with pytest.raises(InputError, match="drsm must have more than 40 training papers"):
        list(probes.few_shot(x, labels, x, False, (40, 2), "drsm", 1))


def test_resampled_f1_is_that_of_the_resample() -> None:
    random = np.random.default_rng(9)
    truth, predicted = (np.eye(4, dtype=bool)[random.integers(0, 4, 12)] for _ in range(2))
    drawn = random.integers(0, 12, (20, 12))
    times = np.stack([np.bincount(row, minlength=12) for row in drawn]).astype(float)
    expected = [f1_score(truth[row].argmax(1), predicted[row].argmax(1), average="macro") for row in drawn]
    np.testing.assert_allclose(probes.f1(truth, predicted, times, "classes"), expected, atol=1e-12)


def test_an_interval_of_repetitions_holds_test_papers_too() -> None:
    """Ten equal repetitions vary over test papers alone, as one does; unequal ones vary more."""
    random, (entry, *_) = np.random.default_rng(4), entries().values()
    truth, other = (np.eye(2, dtype=bool)[random.integers(0, 2, 80)] for _ in range(2))
    mixed = np.where(random.random((80, 1)) < 0.3, other, truth)
    config = FiguresConfig(entry, 13, 2_000)

    def interval_of(shots: list[probes.Indicator]) -> scoring.TaskFigure:
        statistics = [lambda times, shot=shot: probes.f1(truth, shot, times, "classes") for shot in shots]
        return scoring._bootstrap(config, "f1@5", statistics, 80)

    _, value, items, same = interval_of([mixed] * 10)
    assert (items, value) == (80, pytest.approx(f1_score(truth[:, 1], mixed[:, 1], average="macro")))
    *_, whole = interval_of([mixed])
    np.testing.assert_allclose(same, whole)
    *_, unequal = interval_of([mixed] * 5 + [other] * 5)
    assert unequal.std() > 1.3 * same.std()
