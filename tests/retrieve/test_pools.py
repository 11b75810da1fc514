"""Several pools in one pass: the bytes of separate searches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.retrieve.base import Metric, Ranking, Subset, no_exclusions
from pipeline.retrieve.canonical import brute_force
from pipeline.retrieve.search import DenseEngine
from tests.retrieve.cases import ENGINES, METRICS, Case, exclusions, make_case, named, same, subset_of

CPU = Resources(memory=64 << 20, workers=2, device="cpu")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> DenseEngine:
    return named(request.param)


def subsets_of(case: Case, rng: np.random.Generator) -> list[Subset]:
    """Nested, overlapping, disjoint, sparse and empty pools, one of all; each with exclusions of its own."""
    rows = case.rows
    nested = rng.permutation(rows)
    chosen = [None, nested[:3_000], nested[:900], nested[2_000:4_000], rows[:500], rows[-500:], rows[::97], rows[:0]]
    subsets = []
    for number, each in enumerate(chosen):
        removed = exclusions([[*rng.choice(rows, 5).tolist(), number] for _ in case.queries])
        removed = case.excluded if number == 0 else (removed[0], removed[1])
        subsets.append(Subset(None if each is None else np.sort(each), removed))
    return subsets


@cache
def each_alone(name: str, metric: Metric) -> tuple[list[Subset], list[Ranking]]:
    """Return the pools of a case and their rankings by brute force."""
    subsets = subsets_of(make_case(name), np.random.default_rng(3))
    return subsets, [subset_of(make_case(name), subset, metric, 60) for subset in subsets]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["duplicates", "few values", "zeros"])
def test_each_pool_is_ranked_as_alone(name: str, metric: Metric, engine: DenseEngine) -> None:
    case, (subsets, expected) = make_case(name), each_alone(name, metric)
    found = engine.search_pools(case.queries, case.blocks(1_700), subsets, metric=metric, depth=60, resources=CPU)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))


def test_as_many_pools_as_there_may_be(engine: DenseEngine) -> None:
    case = make_case("few values", candidates=900, queries=9, dimension=9)
    rng = np.random.default_rng(4)
    subsets = [Subset(np.sort(rng.choice(case.rows, 1 + 14 * n, replace=False)), case.excluded) for n in range(64)]
    found = engine.search_pools(case.queries, case.blocks(200), subsets, metric="l2", depth=30, resources=CPU)
    for ranking, subset in zip(found, subsets, strict=True):
        assert same(ranking, subset_of(case, subset, "l2", 30))


def test_rows_of_a_pool_that_have_no_vector_here_are_no_matter(engine: DenseEngine) -> None:
    case = make_case("random", candidates=100)
    subset = Subset(np.arange(0, 5_000, dtype=np.uint32), no_exclusions(len(case.queries)))
    found = engine.search_pools(case.queries, case.blocks(33), [subset], metric="l2", depth=9, resources=CPU)
    assert same(found[0], brute_force(case.queries, case.rows, case.vectors, "l2", 9, subset.excluded))
