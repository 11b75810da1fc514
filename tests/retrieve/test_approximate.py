"""Approximate search: what it finds has the exact scores and order; looking everywhere, it finds everything."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.retrieve.approximate import ApproximateEngine, Kind, Settings, recall
from pipeline.retrieve.base import Metric, Ranking
from pipeline.retrieve.reference import brute_force, canonical_scores
from tests.retrieve.cases import METRICS, Case, make_case, same

CPU = Resources(memory=1 << 30, workers=2, device="cpu")


def search(case: Case, settings: Settings, metric: Metric, depth: int, *, memory: int = 1 << 30) -> Ranking:
    return ApproximateEngine(settings).search(
        case.queries,
        case.blocks(611),
        count=len(case.vectors),
        metric=metric,
        depth=depth,
        excluded=case.excluded,
        resources=Resources(memory=memory, workers=2, device="cpu"),
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_scores_and_order_are_exact_and_nothing_excluded_is_there(kind: Kind, metric: Metric) -> None:
    case = make_case("random", candidates=3_000)
    found = search(case, Settings(kind), metric, 50)
    exact = brute_force(case.queries, case.rows, case.vectors, metric, 50, case.excluded)
    assert 0.2 < recall(found, exact) <= 1
    offsets, removed = case.excluded
    for query in range(len(case.queries)):
        mine = found.query == query
        rows = found.row[mine]
        assert not np.isin(rows, removed[offsets[query] : offsets[query + 1]]).any()
        scores = canonical_scores(case.queries[query], case.vectors[(rows - 7) // 3], metric)
        assert scores.tobytes() == found.score[mine].tobytes()
        assert np.lexsort((rows, scores))[::-1].tolist() == list(range(len(rows)))
    assert same(found, search(case, Settings(kind), metric, 50))


@pytest.mark.parametrize("metric", METRICS)
def test_looking_into_every_cell_finds_everything(metric: Metric) -> None:
    case = make_case("random", candidates=2_000)
    exact = brute_force(case.queries, case.rows, case.vectors, metric, 70, case.excluded)
    assert same(search(case, Settings("ivf", probes=1.0), metric, 70), exact)


def test_fewer_probes_find_less() -> None:
    case = make_case("random", candidates=4_000)
    exact = brute_force(case.queries, case.rows, case.vectors, "l2", 100, case.excluded)
    shares = [recall(search(case, Settings("ivf", probes=p), "l2", 100), exact) for p in (0.02, 0.2, 1.0)]
    assert shares == sorted(set(shares))
    assert shares[-1] == 1.0


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_more_asked_for_than_there_is(kind: Kind) -> None:
    case = make_case("random", candidates=30)
    found = search(case, Settings(kind, probes=1.0), "l2", 500)
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "l2", 500, case.excluded))


def test_vectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="holds 5,000 vectors twice, 1 MiB. Raise --memory, or use --engine exact"):
        search(make_case("random"), Settings("ivf"), "l2", 5, memory=1 << 20)


def test_recall_counts_entries_of_the_exact_ranking() -> None:
    one = Ranking.from_counts(np.array([2, 1]), np.array([5, 4, 9], np.uint32), np.array([3, 2, 1], np.float32))
    other = Ranking.from_counts(np.array([1, 2]), np.array([4, 8, 9], np.uint32), np.array([3, 2, 1], np.float32))
    assert recall(one, one) == 1
    assert recall(other, one) == pytest.approx(2 / 3)
