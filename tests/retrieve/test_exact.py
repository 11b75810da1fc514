"""Exact search against the search that is right by reading it: equal in every bit, whatever the settings."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError, StageError
from pipeline.core.resources import Resources
from pipeline.retrieve.base import Metric, Ranking, VectorBlock
from pipeline.retrieve.exact import Search, unit
from tests.retrieve.cases import METRICS, Case, exclusions, expected, make_case, no_exclusions, resources, same, search
from tests.retrieve.reference import brute_force

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


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_brute_force_in_every_bit(name: str, metric: Metric) -> None:
    case = make_case(name)
    best = expected(case, metric, 100)
    assert same(case.search(metric, 100), best)
    assert same(case.search(metric, 100, size=611, workers=3), best)


@pytest.mark.parametrize(
    ("name", "shape", "depth", "how"),
    [
        *(("duplicates", (3 * size, 8), 50, {"size": size}) for size in (1, 7)),
        *(("duplicates", (5_000, 8), 50, {"size": size, "workers": 1}) for size in (100, 4999)),
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
    name: str, shape: tuple[int, int], depth: int, how: dict[str, int]
) -> None:
    case = make_case(name, candidates=shape[0], dimension=shape[1])
    assert same(case.search("l2", depth, **how), expected(case, "l2", depth))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", [1, 65])
def test_any_dimension(dimension: int, metric: Metric) -> None:
    case = make_case("random", dimension=dimension, candidates=300)
    assert same(case.search(metric, 10, size=99), expected(case, metric, 10))


def test_many_queries_deep_lists_and_long_exclusions() -> None:
    case = make_case("few values", dimension=6, candidates=2_000, queries=150)
    rng = np.random.default_rng(1)
    lists = [rng.choice(case.rows, n % 3 * 900, replace=False).tolist() for n in range(150)]
    case = Case(case.queries, case.vectors, exclusions(lists))
    for depth in (20, 1_500):
        best = expected(case, "inner_product", depth)
        assert same(case.search("inner_product", depth, size=700, workers=2), best)


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
    assert same(case.search(metric, depth, size=data.draw(st.integers(1, 61))), expected(case, metric, depth))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["duplicates", "few values", "zeros"])
def test_a_search_goes_on_from_a_part(name: str, metric: Metric) -> None:
    """The rankings of nested pools, each from the candidates that the one before lacks."""
    case = make_case(name)
    drawn = np.random.default_rng(3).permutation(case.rows)
    ranking: Ranking | None = None
    for first, last in ((0, 0), (0, 30), (30, 900), (900, 3_000), (3_000, 5_000)):
        blocks = case.part(drawn[first:last], 700)
        ranking = search(case.queries, blocks, metric, 60, case.excluded, ranking)
        alone = brute_force(case.queries, *_whole(case, drawn[:last]), metric, 60, case.excluded)
        assert same(ranking, alone)


def _whole(case: Case, rows: np.ndarray) -> VectorBlock:
    inside = np.isin(case.rows, rows)
    return case.rows[inside], case.vectors[inside]


def test_scores_are_the_metric() -> None:
    vectors = np.array([[3, 4], [0, 0], [6, 8], [-3, -4]], np.float32)
    case = Case(np.array([[3, 4]], np.float32), vectors, no_exclusions(1))
    for metric, scores, rows in (
        ("l2", [0, -25, -25, -100], [7, 13, 10, 16]),
        ("inner_product", [50, 25, 0, -25], [13, 7, 10, 16]),
        ("cosine", [1, 1, 0, -1], [13, 7, 10, 16]),
    ):
        ranking = case.search(metric, 4)
        assert ranking.score.tolist() == scores
        assert ranking.row.tolist() == rows
        assert ranking.rank.tolist() == [1, 2, 3, 4]
        assert not np.signbit(ranking.score[ranking.score == 0]).any()


def test_nothing_to_search() -> None:
    vectors = np.ones((4, 3), np.float32)
    assert len(Case(vectors[:0], vectors, no_exclusions(0)).search("l2", 5)) == 0
    assert len(Case(vectors[:2], vectors[:0], no_exclusions(2)).search("l2", 5)) == 0
    assert len(Case(vectors[:1], vectors, exclusions([[7, 10, 13, 16]])).search("l2", 5)) == 0
    case, nothing = make_case("random", candidates=90), (np.empty(0, np.uint32), np.empty((0, 40), np.float32))
    blocks = [nothing, *case.blocks(40), nothing]
    assert same(search(case.queries, blocks, "l2", 5, case.excluded), expected(case, "l2", 5))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "name", ["random", "far from the origin", "one giant", "tiny", "below the normal range", "zeros"]
)
def test_upper_bounds_are_above_by_little(name: str, metric: Metric) -> None:
    case = make_case(name, dimension=100, candidates=400)
    state = Search(case.queries, metric, 5, no_exclusions(17), resources(), torch.device("cpu"))
    x = torch.from_numpy(case.vectors)
    state._start(x[:100].double(), case.rows)
    points = state._points(x, case.rows).double()
    q = torch.from_numpy(case.queries).double()
    size, distance = points[:, 100], points[:, :100].norm(dim=1)
    exact = {
        "l2": -((q[:, None] - x[None].double()) ** 2).sum(2),
        "inner_product": q @ x.double().T,
        "cosine": unit(q) @ unit(x.double()).T,
    }[metric] - torch.from_numpy(state._shift)[:, None]
    length = torch.from_numpy(state._length)[:, None]
    over = (state._components @ points.float().T).double() + torch.from_numpy(state._fixed)[:, None] + 1e-30 - exact
    assert (over >= 0).all()
    squares = 2 * size**2 if metric == "l2" else 0 * size
    assert (
        over <= 4 * (state._bound * (length * size + squares) + torch.from_numpy(state._fixed)[:, None]) + 1e-29
    ).all()
    assert (size >= distance * (1 - 1e-6)).all()


def test_products_in_less_than_float32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU makes them where TF32 is allowed: 10 bits of mantissa."""
    points = Search._points

    def rounded(self: Search, vectors: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        found = points(self, vectors, rows)
        found[:, :-2] = (found[:, :-2].contiguous().view(torch.int32) & -8192).view(torch.float32)
        return found

    monkeypatch.setattr(Search, "_points", rounded)
    with pytest.raises(StageError, match="further from the exact scores .* Unset NVIDIA_TF32_OVERRIDE"):
        make_case("random").search("l2", 9)


def test_memory_is_bounded_by_the_setting() -> None:
    dimension, candidates, memory = 64, 150_000, 6 << 20

    def blocks() -> Iterator[VectorBlock]:
        rng = np.random.default_rng(0)
        for start in range(0, candidates, 5_000):
            yield np.arange(start, start + 5_000, dtype=np.uint32), rng.standard_normal((5_000, dimension), np.float32)

    queries = np.random.default_rng(1).standard_normal((16, dimension), np.float32)
    search(queries, [next(blocks())], "l2", 20, no_exclusions(16))  # compiled code counts once
    tracemalloc.start()
    search(queries, blocks(), "l2", 20, no_exclusions(16), memory=memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    own_block = 2 * 5_000 * dimension * 4
    assert peak < memory + own_block + (2 << 20) < candidates * dimension * 4 / 2


def block(rows: Sequence[int], vectors: int, dimension: int = 5) -> VectorBlock:
    return np.array(rows, np.uint32), np.ones((vectors, dimension), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.ones((3, 0), np.float32)}, "one component or more, got 0"),
        ({"blocks": [block(range(4), 4, 6)]}, "queries 5 dimensions"),
        ({"blocks": [block([0, 0, 0, 0], 4)]}, "rows do not rise after row -1"),
        ({"blocks": [block(range(9, 13), 4)] * 2}, "after row 12"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    good = {"blocks": [block(range(4), 4)], "metric": "l2", "depth": 2, "excluded": no_exclusions(3)}
    with pytest.raises(InputError, match=message):
        search(**{"queries": np.ones((3, 5), np.float32), **good, **change})


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e19])
def test_vectors_that_are_no_numbers_are_named(value: float) -> None:
    vectors = np.ones((50, 5), np.float32)
    vectors[33, 2] = value
    case = Case(np.ones((2, 5), np.float32), vectors, no_exclusions(2))
    with pytest.raises(InputError, match=r"1 candidate vectors are not finite .* the first is candidate at row 106"):
        case.search("cosine", 3, size=20)
    with pytest.raises(InputError, match="the first is query 33"):
        Case(vectors, vectors[:20], no_exclusions(50)).search("l2", 3)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="torch cannot use cuda:9"):
        make_case("random", candidates=50).search("l2", 3, device="cuda:9")
    assert Resources().device == "auto"
