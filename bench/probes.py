"""Linear probes of SciRepEval against scikit-learn's grid search, called plainly on the same vectors.

    python bench/probes.py [--quick] [--papers N] [--part classification|regression]

Vectors of 250k papers (or N) with 768 components around two centres, float32. Ours and the peer search the same grid
with the same processes. Times are wall time, medians of interleaved rounds; predictions must be equal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC, LinearSVR

from pipeline.core.resources import Resources
from pipeline.studies.scirepeval import probes

TEST = 1_000
C = {"classification": np.logspace(-2, 2, 5), "regression": np.logspace(-4, 2, 7)}


def vectors(papers: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(13)
    labels = random.random(papers + TEST) < 0.3
    noise = random.standard_normal((papers + TEST, dimension), np.float32)
    return noise + 0.1 * random.standard_normal(dimension, np.float32) * labels[:, None], labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20k papers (2k for regression), 64 components")
    parser.add_argument("--papers", type=int, default=250_000, metavar="N")
    parser.add_argument("--part", choices=tuple(C), default="classification")
    options = parser.parse_args()
    quick = 20_000 if options.part == "classification" else 2_000  # LinearSVR takes its 1,000 iterations at large C
    papers, dimension = (quick, 64) if options.quick else (options.papers, 768)
    rounds = 1 if papers > 50_000 else 3
    x, held = vectors(papers, dimension)
    train, test, workers = x[:papers], x[papers:], Resources().workers
    target = held[:papers].astype(np.int64)
    classes = np.stack([~held[:papers], held[:papers]], axis=1)
    plain = LinearSVC(random_state=42) if options.part == "classification" else LinearSVR(random_state=42)

    def peer() -> Any:
        return GridSearchCV(plain, {"C": C[options.part]}, cv=3, n_jobs=workers).fit(train, target).predict(test)

    def ours() -> Any:
        if options.part == "classification":
            return probes.classify(train, classes, test, False, workers, Counter()).argmax(axis=1)
        return probes.regress(train, target.astype(np.float64), test, workers)

    runs: dict[str, Callable[[], np.ndarray]] = {"scikit-learn": peer, "ours": ours}
    times: dict[str, list[float]] = {name: [] for name in runs}
    found = {}
    warnings.simplefilter("ignore")
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            found[name] = run()
            times[name].append(time.perf_counter() - started)
    seconds = {name: statistics.median(each) for name, each in times.items()}
    for name, each in seconds.items():
        print(f"{name:14}{each:8.1f} s  {each / seconds['scikit-learn']:.2f}")
    print(f"equal predictions: {np.array_equal(found['ours'], found['scikit-learn'])}")
    ratio = seconds["ours"] / seconds["scikit-learn"]
    print(
        json.dumps(
            {"part": options.part, "papers": papers, "dimension": dimension, "ratio": round(ratio, 3), **seconds}
        )
    )


if __name__ == "__main__":
    main()
