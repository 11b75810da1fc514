"""Rankings against pytrec_eval and scikit-learn; B-cubed against its definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances

from pipeline.studies.scirepeval import authors
from pipeline.studies.scirepeval.data import Judged
from pipeline.studies.scirepeval.layout import Doc, Keys
from pipeline.studies.scirepeval.scoring import match, rank

TABLE = np.random.default_rng(2).normal(size=(60, 6)).astype(np.float32)
IDS = [f"p{number}" for number in range(60)]


def _keys() -> Keys:
    keys = Keys("task")
    for name in IDS:
        keys.add(Doc(name, name, ""))
    return keys


def _vectors(keys: Sequence[str], _role: str) -> np.ndarray:
    return TABLE[[int(key.partition("~")[0][1:]) for key in keys]]


def _grades(least: int) -> dict[str, dict[str, int]]:
    random = np.random.default_rng(1)
    return {f"p{q}": {f"p{c}": int(random.integers(least, 4)) for c in range(10 + q, 30 + q)} for q in range(6)}


def test_queries_rank_their_candidates_by_euclidean_distance() -> None:
    grades = {**_grades(0), "p50": {"p51": 0}}
    counts: Counter[str] = Counter()
    found = rank("task", Judged(grades, _keys(), {}), _vectors, ("map", "ndcg"), counts)
    assert counts == {"queries_without_positive": 1}
    run = {}
    for query, candidates in grades.items():
        rows = [int(each[1:]) for each in candidates]
        distances = euclidean_distances(TABLE[rows], TABLE[[int(query[1:])]]).ravel()
        run[query] = dict(zip(candidates, (-distances).tolist(), strict=True))
    theirs = pytrec_eval.RelevanceEvaluator(grades, {"map", "ndcg"}).evaluate(run)
    expected = [[theirs[query][name] for query in grades if query != "p50"] for name in ("map", "ndcg")]
    np.testing.assert_allclose(found[:, :-1], expected, atol=1e-9)
    assert np.isnan(found[:, -1]).all()


def test_equal_distances_go_by_key_descending() -> None:
    keys = Keys("task")
    for name in ("q", "a", "b"):
        keys.add(Doc(name, name, ""))
    judged = Judged({"q": {"a": 1, "b": 0}}, keys, {})
    found = rank("task", judged, lambda keys, _: np.ones((len(keys), 2), np.float32), ("map",), Counter())
    assert found.tolist() == [[0.5]]


def test_reviewers_score_by_their_three_nearest_papers() -> None:
    groups = {f"r{r}": [f"p{10 + r + 6 * step}" for step in range(r % 5 + 1)] for r in range(8)}
    random = np.random.default_rng(3)
    grades = {f"p{q}": {f"r{r}": int(random.integers(0, 4)) for r in range(9)} for q in range(5)}  # r8 has no papers
    for each in grades.values():
        each["r0"] = 3
    grades["p5"] = {"r0": 2, "r1": 0}
    hard, soft = ({q: {r: int(g >= least) for r, g in each.items()} for q, each in grades.items()} for least in (3, 2))
    counts: Counter[str] = Counter()
    found = match(Judged(hard, _keys(), {}, groups, soft), _vectors, ("precision@5", "precision@10"), counts)
    run: dict[str, dict[str, float]] = {}
    for query, each in grades.items():
        run[query] = {}
        for reviewer in each:
            rows = [int(p[1:]) for p in groups.get(reviewer, [])]
            if rows:
                cosines = cosine_similarity(TABLE[rows], TABLE[[int(query[1:])]]).ravel()
                run[query][reviewer] = float(np.sort(cosines)[::-1][:3].mean())
    expected = []
    for qrels in (hard, soft):
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {"P_5", "P_10"}).evaluate(run)
        expected += [[theirs[query][name] for query in grades] for name in ("P_5", "P_10")]
    assert +counts == {"reviewers_without_papers": 5, "queries_without_hard_positive": 1}
    assert np.isnan(found[:2, 5]).all()
    np.testing.assert_allclose(found[:, :5], np.array(expected)[:, :5], atol=1e-12)
    np.testing.assert_allclose(found[2:, 5], np.array(expected)[2:, 5], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_b_cubed_is_its_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [1, 7, 4]
    truth = [random.integers(0, 3, size) for size in sizes]
    found = [random.integers(0, 3, size) for size in sizes]
    items = [(b, c, a) for b in range(3) for c, a in zip(found[b], truth[b], strict=True)]
    precisions, recalls = [], []
    for b, c, a in items:
        cluster = [each for each in items if each[:2] == (b, c)]
        author = [each for each in items if each[2] == a]
        both = [each for each in cluster if each[2] == a]
        precisions.append(len(both) / len(cluster))
        recalls.append(len(both) / len(author))
    precision, recall, counts = authors.b_cubed(truth, found)
    assert counts.tolist() == sizes
    assert precision.sum() == pytest.approx(sum(precisions))
    assert recall.sum() == pytest.approx(sum(recalls))
    p, r = np.mean(precisions), np.mean(recalls)
    assert authors.f1(precision, recall, counts, np.ones((1, 3)))[0] == pytest.approx(2 * p * r / (p + r))


def test_separate_authors_are_found() -> None:
    directions = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    blocks = tuple((tuple(f"p{n}" for n in range(6)), np.repeat(np.arange(3) + 3 * b, 2)) for b in range(10))
    truth, found = authors.cluster(authors.DataSet("tiny", blocks), lambda _keys, _role: directions)
    assert len(truth) == 8  # a fifth of the blocks sets the cut
    assert authors.f1(*authors.b_cubed(truth, found), np.ones((1, 8)))[0] == 1
