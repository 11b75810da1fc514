"""Rankings against pytrec_eval and scikit-learn; B-cubed against its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
import pytrec_eval
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances

from pipeline.studies.scirepeval import probes
from pipeline.studies.scirepeval.data import DataSet, Judged
from pipeline.studies.scirepeval.scoring import match, rank
from pipeline.studies.scirepeval.tasks import Doc, Keys
from pipeline.studies.sentences import SCORES, Pairing

Grades = Mapping[str, Mapping[str, int]]

TABLE = np.random.default_rng(2).normal(size=(60, 6)).astype(np.float32)


def _judged(grades: Grades, soft: Grades | None = None, groups: Mapping[str, Sequence[str]] | None = None) -> Judged:
    """Return judgements among papers p0 to p59, whose rows of ``TABLE`` are their vectors."""
    keys = Keys([Doc(f"p{number}", f"p{number}", "") for number in range(len(TABLE))])
    rows = [
        {"query": query, "candidate": candidate, "grade": grade, "soft": soft[query][candidate] if soft else 0}
        for query, candidates in grades.items()
        for candidate, grade in candidates.items()
    ]
    return Judged(pl.DataFrame(rows), keys, groups=groups or {})


def _vectors(keys: Sequence[str], _role: str) -> np.ndarray:
    return TABLE[[int(key.partition("~")[0][1:]) for key in keys]]


def _rows(papers: Sequence[str]) -> np.ndarray:
    return TABLE[[int(paper[1:]) for paper in papers]]


def _trec(grades: Grades, run: Mapping[str, Mapping[str, float]], measures: Sequence[str]) -> np.ndarray:
    theirs = pytrec_eval.RelevanceEvaluator(grades, set(measures)).evaluate(run)
    return np.array([[theirs[query][name] for query in grades] for name in measures])


def test_queries_rank_their_candidates_by_euclidean_distance() -> None:
    random = np.random.default_rng(1)
    grades = {f"p{q}": {f"p{c}": int(random.integers(0, 4)) for c in range(10 + q, 30 + q)} for q in range(6)}
    grades["p50"] = {"p51": 0}
    judged = _judged(grades)
    values = rank("task", judged, _vectors, ("map", "ndcg"))
    assert judged.keys.counts["queries_without_positive"] == 1
    run = {
        query: dict(
            zip(papers, (-euclidean_distances(_rows(list(papers)), _rows([query])).ravel()).tolist(), strict=True)
        )
        for query, papers in grades.items()
    }
    np.testing.assert_allclose(values[:, :-1], _trec(grades, run, ("map", "ndcg"))[:, :-1], atol=1e-9)
    assert np.isnan(values[:, -1]).all()


def test_equal_distances_go_by_key_descending() -> None:
    judged = _judged({"p0": {"p1": 1, "p2": 0}})
    assert rank("task", judged, lambda keys, _: np.ones((len(keys), 2), np.float32), ("map",)).tolist() == [[0.5]]


@pytest.mark.parametrize("pairing", SCORES)
def test_papers_with_several_vectors_are_compared_sentence_by_sentence(pairing: Pairing) -> None:
    """Papers have one to three rows of ``TABLE``, queries one, whose transport is the weighted mean of distances."""
    sentences = [TABLE[number : number + 1 + number % 3] for number in range(30)]

    def vectors(keys: Sequence[str], _role: str) -> np.ndarray:
        return np.fromiter((sentences[int(key.partition("~")[0][1:])] for key in keys), object, len(keys))

    def score(query: str, paper: str) -> float:
        (distances,) = euclidean_distances(*(sentences[int(name[1:])].astype(np.float64) for name in (query, paper)))
        weights = np.exp(-distances) / np.exp(-distances).sum()
        return -float(distances.min() if pairing == "best pair" else weights @ distances)

    random = np.random.default_rng(5)
    grades = {f"p{q}": {f"p{c}": int(random.integers(0, 2)) for c in range(10, 20)} for q in (0, 3, 6)}
    run = {query: {paper: score(query, paper) for paper in row} for query, row in grades.items()}
    values = rank("task", _judged(grades), vectors, ("map", "ndcg"), pairing)
    np.testing.assert_allclose(values, _trec(grades, run, ("map", "ndcg")), atol=1e-9)
    groups = {f"r{r}": [f"p{10 + 4 * r + step}" for step in range(4)] for r in range(3)}
    labels = {query: {f"r{r}": int(r == place) for r in range(3)} for place, query in enumerate(grades)}
    for query in labels:
        nearest = {r: np.sort([score(query, paper) for paper in papers])[-3:] for r, papers in groups.items()}
        run[query] = {reviewer: float(scores.mean()) for reviewer, scores in nearest.items()}
    values = match(_judged(labels, labels, groups), vectors, ("map",), pairing)
    np.testing.assert_allclose(values[0], _trec(labels, run, ("map",))[0], atol=1e-9)


def test_reviewers_score_by_their_three_nearest_papers() -> None:
    groups = {f"r{r}": [f"p{10 + r + 6 * step}" for step in range(r % 5 + 1)] for r in range(8)}
    random = np.random.default_rng(3)
    grades = {f"p{q}": {f"r{r}": int(random.integers(0, 4)) for r in range(9)} for q in range(5)}  # r8 has no papers
    for reviewers in grades.values():
        reviewers["r0"] = 3
    grades["p5"] = {"r0": 2, "r1": 0}
    hard, soft = ({q: {r: int(g >= least) for r, g in row.items()} for q, row in grades.items()} for least in (3, 2))
    judged = _judged(hard, soft, groups)
    values = match(judged, _vectors, ("precision@5", "precision@10"))
    run: dict[str, dict[str, float]] = {query: {} for query in grades}
    for query, reviewers in grades.items():
        for reviewer in reviewers.keys() & groups.keys():
            cosines = cosine_similarity(_rows(groups[reviewer]), _rows([query])).ravel()
            run[query][reviewer] = float(np.sort(cosines)[::-1][:3].mean())
    expected = np.concatenate([_trec(qrels, run, ("P_5", "P_10")) for qrels in (hard, soft)])
    expected[:2, 5] = np.nan
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert judged.keys.counts["reviewers_without_papers"] == 5
    assert judged.keys.counts["queries_without_hard_positive"] == 1
    assert judged.keys.counts["queries_without_soft_positive"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_b_cubed_is_its_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [1, 7, 4]
    truth, clusters = ([random.integers(0, 3, size) for size in sizes] for _ in range(2))
    items = [(b, c, a) for b in range(3) for c, a in zip(clusters[b], truth[b], strict=True)]
    precisions, recalls = [], []
    for block, cluster, author in items:
        same_cluster = [item for item in items if item[:2] == (block, cluster)]
        both = sum(item[2] == author for item in same_cluster)
        precisions.append(both / len(same_cluster))
        recalls.append(both / sum(item[2] == author for item in items))
    precision, recall, counts = probes.b_cubed(truth, clusters)
    assert counts.tolist() == sizes
    assert (precision.sum(), recall.sum()) == pytest.approx((sum(precisions), sum(recalls)))
    p, r = np.mean(precisions), np.mean(recalls)
    assert probes.b_cubed_f1(precision, recall, counts, np.ones((1, 3)))[0] == pytest.approx(2 * p * r / (p + r))


@pytest.mark.parametrize("spread", [1.0, 1e-4])
def test_a_cut_is_found_however_near_the_cosines_are(spread: float) -> None:
    """Two authors a block in two directions; the smaller the spread, the nearer all cosines are to 1."""
    random = np.random.default_rng(3)
    keys = tuple("abcdefgh")
    blocks = tuple((keys, np.repeat([0, 1], 4) + 2 * block) for block in range(10))

    def vectors(_keys: object, _role: object) -> np.ndarray:
        apart = np.repeat([[0.0, spread], [0.0, -spread]], 4, axis=0)
        return np.array([1.0, 0.0]) + apart + random.normal(0, spread / 20, (8, 2))

    truth, clusters = probes.cluster(DataSet("near", blocks), vectors)
    assert len(truth) == 8
    assert float(probes.b_cubed_f1(*probes.b_cubed(truth, clusters), np.ones((1, 8)))[0]) > 0.95
