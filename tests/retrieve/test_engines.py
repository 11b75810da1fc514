"""Every dense engine against the search that is right by reading it: equal in every bit, whatever the settings.

Several pools in one pass have the bytes of separate searches.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.retrieve.base import Metric, Ranking, Subset, VectorBlock, no_exclusions
from pipeline.retrieve.dense import ExactEngine
from pipeline.retrieve.engines import dense_engine
from tests.retrieve.cases import (
    ENGINES,
    METRICS,
    Case,
    exclusions,
    expected,
    make_case,
    named,
    same,
    search,
    subset_of,
    subsets_of,
)

NAMES = (
    "random",
    "duplicates",
    "identical",
    "few values",
    "half precision",
    "far from the origin",
    "close together and far away",
    "one giant",
    "tiny",
    "below the normal range",
    "zeros",
    "outlying dimension",
    "clusters",
    "crowded cuts",
    "queries are candidates",
)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> ExactEngine:
    return named(request.param)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_brute_force_in_every_bit(name: str, metric: Metric, engine: ExactEngine) -> None:
    case = make_case(name)
    best = expected(case, metric, 100)
    assert same(case.search(engine, metric, 100), best)
    assert same(case.search(engine, metric, 100, size=611, workers=3), best)


@pytest.mark.parametrize(
    ("name", "shape", "depth", "how"),
    [
        *(("duplicates", (3 * size, 8), 50, {"size": size}) for size in (1, 7)),
        *(("duplicates", (5_000, 8), 50, {"size": size, "workers": 1}) for size in (100, 2048, 2049, 4999)),
        *(("random", (300, 5), depth, {"size": 77}) for depth in (1, 299, 300, 301, 5_000)),
        *(("crowded cuts", (6_000, 16), 50, {"size": size, "memory": 1 << 20}) for size in (700, 10**9)),
        *(
            (name, (20_000, 40), 100, {"size": 3_000, "workers": 2, "memory": memory << 20})
            for name in ("one giant", "few values")
            for memory in (1, 64)
        ),
    ],
)
def test_blocks_depth_workers_and_memory_change_nothing(
    engine: ExactEngine, name: str, shape: tuple[int, int], depth: int, how: dict[str, int]
) -> None:
    case = make_case(name, candidates=shape[0], dimension=shape[1])
    assert same(case.search(engine, "l2", depth, **how), expected(case, "l2", depth))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", [1, 65])
def test_any_dimension(dimension: int, metric: Metric, engine: ExactEngine) -> None:
    case = make_case("random", dimension=dimension, candidates=300)
    assert same(case.search(engine, metric, 10, size=99), expected(case, metric, 10))


def test_many_queries_and_deep_lists(engine: ExactEngine) -> None:
    case = make_case("few values", dimension=6, candidates=2_000, queries=150)
    best = expected(case, "inner_product", 1_500)
    assert same(case.search(engine, "inner_product", 1_500, size=700, workers=2), best)


@settings(max_examples=25)
@given(data=st.data())
def test_small_whole_numbers_tie_everywhere(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    count, queries, dimension = (data.draw(st.integers(1, n)) for n in (60, 5, 4))
    case = Case(
        rng.integers(-1, 2, (queries, dimension)).astype(np.float32),
        rng.integers(-1, 2, (count, dimension)).astype(np.float32),
        exclusions([rng.choice(200, rng.integers(0, 20), replace=False).tolist() for _ in range(queries)]),
    )
    metric, depth = data.draw(st.sampled_from(METRICS)), data.draw(st.integers(1, 70))
    size = data.draw(st.integers(1, 61))
    best = expected(case, metric, depth)
    for name in ENGINES:
        assert same(case.search(named(name), metric, depth, size=size), best)


def test_scores_are_the_metric(engine: ExactEngine) -> None:
    vectors = np.array([[3, 4], [0, 0], [6, 8], [-3, -4]], np.float32)
    case = Case(np.array([[3, 4]], np.float32), vectors, no_exclusions(1))
    for metric, scores, rows in (
        ("l2", [0, -25, -25, -100], [7, 13, 10, 16]),
        ("inner_product", [50, 25, 0, -25], [13, 7, 10, 16]),
        ("cosine", [1, 1, 0, -1], [13, 7, 10, 16]),
    ):
        ranking = case.search(engine, metric, 4)
        assert ranking.score.tolist() == scores
        assert ranking.row.tolist() == rows
        assert ranking.rank.tolist() == [1, 2, 3, 4]
        assert not np.signbit(ranking.score[ranking.score == 0]).any()


def test_nothing_to_search(engine: ExactEngine) -> None:
    vectors = np.ones((4, 3), np.float32)
    assert len(Case(vectors[:0], vectors, no_exclusions(0)).search(engine, "l2", 5)) == 0
    assert len(Case(vectors[:2], vectors[:0], no_exclusions(2)).search(engine, "l2", 5)) == 0
    assert len(Case(vectors[:1], vectors, exclusions([[7, 10, 13, 16]])).search(engine, "l2", 5)) == 0
    case, nothing = make_case("random", candidates=90), (np.empty(0, np.uint32), np.empty((0, 40), np.float32))
    best = expected(case, "l2", 5)
    for blocks in ([nothing], [nothing, *case.blocks(50)], [*case.blocks(50), nothing]):
        ranking = search(engine, case.queries, blocks, "l2", 5, case.excluded)
        assert len(ranking) == 0 if len(blocks) == 1 else same(ranking, best)


@cache
def each_alone(name: str, metric: Metric) -> tuple[list[Subset], list[Ranking]]:
    """Return the pools of a case and their rankings by brute force."""
    subsets = subsets_of(make_case(name), np.random.default_rng(3))
    return subsets, [subset_of(make_case(name), subset, metric, 60) for subset in subsets]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["duplicates", "few values", "zeros"])
def test_each_pool_of_a_pass_is_ranked_as_alone(name: str, metric: Metric, engine: ExactEngine) -> None:
    subsets, alone = each_alone(name, metric)
    rankings = make_case(name).search_pools(engine, subsets, metric, 60, size=1_700)
    assert all(same(ranking, other) for ranking, other in zip(rankings, alone, strict=True))


def test_as_many_pools_as_there_may_be(engine: ExactEngine) -> None:
    case = make_case("few values", candidates=900, queries=9, dimension=9)
    rng = np.random.default_rng(4)
    subsets = [Subset(np.sort(rng.choice(case.rows, 1 + 14 * n, replace=False)), case.excluded) for n in range(64)]
    for ranking, subset in zip(case.search_pools(engine, subsets, "l2", 30, size=200), subsets, strict=True):
        assert same(ranking, subset_of(case, subset, "l2", 30))


def test_rows_of_a_pool_that_have_no_vector_here_are_no_matter(engine: ExactEngine) -> None:
    case = make_case("random", candidates=100)
    subset = Subset(np.arange(0, 5_000, dtype=np.uint32), case.excluded)
    (ranking,) = case.search_pools(engine, [subset], "l2", 9, size=33)
    assert same(ranking, expected(case, "l2", 9))


def test_memory_is_bounded_by_the_setting() -> None:
    dimension, candidates, memory = 64, 150_000, 6 << 20
    engine = dense_engine("exact")

    def blocks() -> Iterator[VectorBlock]:
        rng = np.random.default_rng(0)
        for start in range(0, candidates, 5_000):
            yield np.arange(start, start + 5_000, dtype=np.uint32), rng.standard_normal((5_000, dimension), np.float32)

    queries = np.random.default_rng(1).standard_normal((16, dimension), np.float32)
    search(engine, queries, [next(blocks())], "l2", 20, no_exclusions(16))  # compiled code counts once
    tracemalloc.start()
    search(engine, queries, blocks(), "l2", 20, no_exclusions(16), memory=memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    own_block = 2 * 5_000 * dimension * 4
    assert peak < memory + own_block + (2 << 20) < candidates * dimension * 4 / 2


def block(rows: Sequence[int], vectors: int, dimension: int = 5) -> VectorBlock:
    return np.array(rows, np.uint32), np.ones((vectors, dimension), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "depth 0 is out of range. Choose 1 to 65535"),
        ({"depth": 70_000}, "depth 70000"),
        ({"metric": "manhattan"}, "no metric 'manhattan'"),
        ({"excluded": no_exclusions(2)}, "exclusions must have 3 queries, got 2"),
        ({"blocks": [block(range(4), 4, 6)]}, "queries 5 dimensions"),
        ({"blocks": [block([0, 0, 0, 0], 4)]}, "rows do not rise after row -1"),
        ({"blocks": [block(range(9, 13), 4)] * 2}, "after row 12"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str, engine: ExactEngine) -> None:
    good = {"blocks": [block(range(4), 4)], "metric": "l2", "depth": 2, "excluded": no_exclusions(3)}
    with pytest.raises(InputError, match=message):
        search(engine, np.ones((3, 5), np.float32), **{**good, **change})


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e19])
def test_vectors_that_are_no_numbers_are_named(value: float, engine: ExactEngine) -> None:
    vectors = np.ones((50, 5), np.float32)
    vectors[33, 2] = value
    case = Case(np.ones((2, 5), np.float32), vectors, no_exclusions(2))
    with pytest.raises(InputError, match=r"1 candidate vectors are not finite .* the first is candidate at row 106"):
        case.search(engine, "cosine", 3, size=20)
    with pytest.raises(InputError, match="the first is query 33"):
        Case(vectors, vectors[:20], no_exclusions(50)).search(engine, "l2", 3)


def test_engines_by_name() -> None:
    assert type(dense_engine("auto")).__name__ == "ExactEngine"
    with pytest.raises(InputError, match="no search engine 'fais'. Did you mean 'faiss'"):
        dense_engine("fais")
