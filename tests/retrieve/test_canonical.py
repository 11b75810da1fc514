"""Canonical scores, the error bound of the fast pass, and the running best."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import order
from pipeline.core.errors import InputError, StageError
from pipeline.retrieve.base import Metric, Ranking
from pipeline.retrieve.dense import kernels, products
from pipeline.retrieve.dense.frame import CODES, Frame
from pipeline.retrieve.dense.pairs import Visits
from pipeline.retrieve.dense.rounded import FLOAT, HALF, WHOLE
from pipeline.retrieve.reference import canonical_scores, fixed_sum
from pipeline.retrieve.toplists import TopLists, pack, unpack
from tests.retrieve.cases import METRICS, make_case

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

HARD = ["random", "far from the origin", "one giant", "tiny", "below the normal range", "zeros", "half precision"]
"""Cases that try the bound of an estimate."""


@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 128, 200, 768])
@pytest.mark.parametrize("metric", METRICS)
def test_kernel_equals_definition_in_every_bit(dimension: int, metric: Metric) -> None:
    rng = np.random.default_rng(dimension)
    x = (rng.standard_normal((50, dimension)) * 10.0 ** rng.integers(-6, 6, (50, 1))).astype(np.float32)
    q = x[:3] + np.float32(0.1)
    q_norms, x_norms = (np.sqrt(fixed_sum(matrix.astype(float) ** 2)) for matrix in (q, x))
    if metric == "cosine":
        moved = Frame(q, metric, x)
        assert moved.norms.tobytes() == q_norms.tobytes()
        assert moved.block((np.arange(50, dtype=np.uint32), x)).norms.tobytes() == x_norms.tobytes()
    pair_query, pair_position = np.divmod(np.arange(150), 50)
    canonical = np.empty(150)
    visits = Visits.of([(pair_query, pair_position)], 3, range(50))
    kernels.score(CODES[metric], q, q_norms, x, x_norms, visits, canonical)
    expected = np.concatenate([canonical_scores(query, x, metric) for query in q])
    assert (canonical.astype(np.float32) + np.float32(0)).tobytes() == expected.tobytes()


def test_fixed_sum_is_a_sum() -> None:
    terms = np.random.default_rng(0).standard_normal((20, 300)) * 1e6
    exact = [math.fsum(row) for row in terms.tolist()]
    np.testing.assert_allclose(fixed_sum(terms), exact, rtol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", HARD)
def test_estimates_are_within_the_bound(name: str, metric: Metric) -> None:
    case = make_case(name, dimension=100, candidates=400)
    frame = Frame(case.queries, metric, case.vectors[:100])
    block = frame.block((case.rows, case.vectors))
    found = frame.rounded[FLOAT].points @ block.points.T + block.bias
    estimates = frame.scale * found.astype(float) + frame.shift[:, None]
    exact = np.array([_exact(q, case.vectors, metric) for q in case.queries.astype(float)])
    bound = np.repeat(frame.bound(block.radius)[:, None], exact.shape[1], axis=1)
    assert (np.abs(estimates - exact) <= bound).all()
    frame.check(estimates.ravel(), exact.ravel(), bound.ravel())
    with pytest.raises(StageError, match="times as far from the exact scores as float32 arithmetic can be"):
        frame.check((exact + 1.01 * bound).ravel(), exact.ravel(), bound.ravel())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", HARD)
def test_low_precision_is_within_its_margin_which_is_no_guess(name: str, metric: Metric) -> None:
    case = make_case(name, dimension=100, candidates=400)
    frame = Frame(case.queries, metric, case.vectors[:100], low=True)
    block = frame.block((case.rows, case.vectors))
    found = (
        (products.product(frame.rounded[HALF].points, block.points).astype(np.uint32) << 16)
        .view(np.float32)
        .astype(float)
    )
    estimates = frame.scale * (found + block.bias) + frame.shift[:, None]
    exact = np.array([_exact(q, case.vectors, metric) for q in case.queries.astype(float)])
    margin = block.lengths[:, None].astype(float) * block.spread + products.ROUNDING * np.abs(found)
    bound = frame.bound(block.radius)[:, None]
    off = np.abs(estimates - exact)
    assert (off <= bound + frame.scale * margin).all()
    assert name in ("tiny", "below the normal range", "one giant") or off.max() > 0.05 * (frame.scale * margin).max()


@pytest.mark.parametrize("metric", METRICS)
def test_no_margin_where_nothing_is_lost(metric: Metric) -> None:
    """Not a tiny one either: some processors take many times as long for numbers below the normal range."""
    case = make_case("clusters", dimension=100, candidates=400)
    block = Frame(case.queries, metric, case.vectors[:100]).block((case.rows, case.vectors))
    assert (block.spread == 0).all()
    assert (block.spread.dtype, block.bias.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("dimension", [1, 65, 1_100])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", [*HARD, "outlying dimension"])
def test_whole_numbers_are_within_their_margin_which_is_no_guess(name: str, metric: Metric, dimension: int) -> None:
    case = make_case(name, dimension=dimension, candidates=400)
    frame = Frame(case.queries, metric, case.vectors[:100], whole=True)
    points = np.empty(case.vectors.shape, np.int8)
    block = frame.place(case.rows, case.vectors.astype(np.float32), points)
    queries = frame.rounded[WHOLE]
    found = products.product(queries.points, block.points)
    assert (found == queries.points.astype(int) @ points.T.astype(int)).all()
    units = queries.grains[:, None] * block.grains
    estimates = frame.scale * (found.astype(np.float32) * units + block.bias).astype(float) + frame.shift[:, None]
    exact = np.array([_exact(q, case.vectors, metric) for q in case.queries.astype(float)])
    margin = block.lengths[:, None].astype(float) * block.spread
    off = np.abs(estimates - exact)
    assert (off <= frame.bound(block.radius)[:, None] + frame.scale * margin).all()
    assert (
        name in ("tiny", "below the normal range", "one giant", "outlying dimension")
        or dimension == 1
        or off.max() > 0.05 * (frame.scale * margin).max()
    )


def test_a_query_that_loses_little_has_a_smaller_margin() -> None:
    rng = np.random.default_rng(4)
    vectors, queries = (rng.standard_normal((count, 300)).astype(np.float32) for count in (500, 3))
    queries[1] = rng.choice([-1.0, 1.0], 300)  # whole numbers already
    queries[2, 0] = 40  # the others are small beside it
    frame = Frame(queries, "inner_product", np.zeros((1, 300), np.float32), whole=True)
    block = frame.place(np.arange(500, dtype=np.uint32), vectors, np.empty(vectors.shape, np.int8))
    shares = block.lengths / frame.lengths
    assert shares[1] < shares[0] < shares[2] <= 1
    products = frame.rounded[WHOLE].points.astype(float) @ block.points.T.astype(float)
    found = products * frame.rounded[WHOLE].grains[:, None] * block.grains
    off = np.abs(found - queries.astype(float) @ vectors.T.astype(float))
    assert (off <= block.lengths[:, None] * block.spread.astype(float)).all()
    lost = np.linalg.norm(vectors - block.points * block.grains[:, None].astype(float), axis=1)
    assert (block.lengths[1] * block.spread < 1.2 * frame.lengths[1] * lost.max()).all()


def test_whole_numbers_use_their_range() -> None:
    vectors = np.array([[1, -2.0, 0.49 / 127], [0, 0, 0], [1e-35, 0, 0], [-1e15, 1e13, 0]], np.float32)
    frame = Frame(np.zeros((1, 3), np.float32), "inner_product", np.zeros((1, 3), np.float32), whole=True)
    block = frame.place(np.arange(4, dtype=np.uint32), vectors, np.empty((4, 3), np.int8))
    assert block.points.tolist() == [[64, -127, 0], [0, 0, 0], [0, 0, 0], [-127, 1, 0]]
    lost = vectors - block.points * block.grains[:, None].astype(float)
    np.testing.assert_allclose(block.spread, np.linalg.norm(lost, axis=1), rtol=1e-3, atol=2.0**-125)
    assert (block.spread >= np.linalg.norm(lost, axis=1)).all()


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_what_whole_numbers_lose_is_counted(metric: Metric, wild: bool) -> None:
    """Products with it are as close as they say: at random, of one large coordinate, halfway, zero and tiny ones."""
    rng, dimension = np.random.default_rng(2), 90
    vectors = rng.standard_normal((60, dimension)).astype(np.float32)
    if wild:
        vectors[0], vectors[1], vectors[2, 1:] = 0, 1e-35, 1e-4
        vectors[3], vectors[3, 0] = 1.5, 127
        vectors[4:20] *= 10.0 ** rng.integers(-15, 9, (16, 1))
    frame = Frame(vectors[:30], metric, vectors, whole=True)
    rows, rests = np.arange(60, dtype=np.uint32), np.empty(vectors.shape, np.int8)
    block = frame.place(rows, vectors, np.empty_like(rests), rests=rests)
    moved = frame.place(rows, vectors, vectors.copy()).points.astype(float)
    exact = frame.rounded[FLOAT].points.astype(float) @ moved.T
    whole, parts = frame.rounded[WHOLE], frame.parts
    counted = [whole.points.astype(float) + whole.rests / 254, block.points.astype(float) + rests / 254]
    closer = counted[0] @ counted[1].T - (whole.rests / 254) @ (rests.T / 254)
    off = np.abs(closer * whole.grains[:, None].astype(float) * block.grains.astype(float) - exact)
    assert (off <= parts.lengths[:, None].astype(float) * block.closer.spread).all()
    assert (off > 0).any()
    assert wild or (block.closer.spread < block.spread / 40).all()
    width = parts.points.shape[1] // 2
    assert (parts.points[:, :dimension] == whole.rests).all()
    assert (parts.points[:, width : width + dimension] == whole.points).all()
    assert (parts.totals == 128 * np.stack([parts.points.sum(axis=1), whole.points.sum(axis=1)], axis=1)).all()


@pytest.mark.parametrize("coordinate", [3.4, 100 + 0.49 / 254])
def test_what_is_not_counted_can_add_up(coordinate: float) -> None:
    """No part of the bound can be left out: a vector loses along itself, and is its own candidate."""
    vector = np.full((1, 900), coordinate, np.float32)
    vector[0, 0] = 127
    frame = Frame(vector, "inner_product", np.zeros((1, 900), np.float32), whole=True)
    rests = np.empty(vector.shape, np.int8)
    block = frame.place(np.zeros(1, np.uint32), vector, np.empty_like(rests), rests=rests)
    whole, lost = block.points.astype(float), rests / 254
    off = np.abs((whole**2 + 2 * whole * lost).sum() - (vector.astype(float) ** 2).sum())
    bound = float(frame.parts.lengths[0]) * float(block.closer.spread[0])
    assert 0.75 * bound < off <= bound


def test_points_are_rounded_to_the_nearest() -> None:
    import torch

    rng = np.random.default_rng(1)
    vectors = (rng.standard_normal((50, 30)) * 10.0 ** rng.integers(-37, 17, (50, 1))).astype(np.float32)
    vectors[0, :3] = 1.00390625, 1.01171875, -1.00390625  # halfway: to the even one
    frame = Frame(np.zeros((1, 30), np.float32), "inner_product", np.zeros((1, 30), np.float32), low=True)
    block = frame.block((np.arange(50, dtype=np.uint32), vectors))
    nearest = torch.from_numpy(vectors).bfloat16().float().numpy()
    nearest[np.abs(nearest) < 2.0**-126] = 0
    assert ((block.points.astype(np.uint32) << 16).view(np.float32) == nearest).all()
    lost = np.linalg.norm(vectors.astype(float) - nearest, axis=1)
    np.testing.assert_allclose(block.spread, lost, rtol=1e-5, atol=2.0**-125)


def _exact(query: np.ndarray, vectors: np.ndarray, metric: Metric) -> np.ndarray:
    vectors = vectors.astype(np.longdouble)
    if metric == "l2":
        return np.asarray(-((vectors - query) ** 2).sum(axis=1), float)
    products = vectors @ query.astype(np.longdouble)
    if metric == "inner_product":
        return np.asarray(products, float)
    norms = np.sqrt((vectors**2).sum(axis=1)) * np.sqrt((query**2).sum())
    return np.asarray(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0), float)


def test_a_product_in_too_few_bits_is_noticed() -> None:
    case = make_case("random", dimension=100, candidates=400)
    frame = Frame(case.queries, "inner_product", case.vectors)
    block = frame.block((case.rows, case.vectors))
    coarse = (block.points.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)  # TF32: ten bits of mantissa
    estimates = (frame.rounded[FLOAT].points @ coarse.T).astype(float) + frame.shift[:, None]
    exact = np.array([_exact(q, case.vectors, "inner_product") for q in case.queries.astype(float)])
    with pytest.raises(StageError, match="NVIDIA_TF32_OVERRIDE"):
        frame.check(estimates.ravel(), exact.ravel(), np.repeat(frame.bound(block.radius), exact.shape[1]))


def test_scores_beyond_float32_are_refused() -> None:
    frame = Frame(np.ones((1, 2), np.float32), "inner_product", np.ones((1, 2), np.float32))
    with pytest.raises(InputError, match="beyond float32"):
        frame.check(np.array([1e39]), np.array([1e39]), np.array([1.0]))


scores = st.floats(width=32, allow_nan=False).map(lambda value: value + 0.0)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(scores, st.integers(0, 2**32 - 1)), min_size=1, unique_by=lambda pair: pair[1]))
def test_keys_order_as_scores_and_rows_do(entries: list[tuple[float, int]]) -> None:
    values = np.array([score for score, _ in entries], np.float32)
    rows = np.array([row for _, row in entries], np.uint32)
    keys = pack(values, rows)
    assert np.argsort(keys)[::-1].tolist() == order.best(values, rows, len(rows)).tolist()
    back = unpack(keys)
    assert back[0].tobytes() == values.tobytes()
    assert back[1].tolist() == rows.tolist()


@settings(deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 9))
def test_lists_keep_the_best_however_they_are_fed(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    owner = np.sort(rng.integers(0, 4, 40))
    values, rows = rng.integers(-3, 3, 40).astype(np.float32), rng.permutation(40).astype(np.uint32)
    lists = TopLists(4, depth)
    for part in np.array_split(np.arange(40), rng.integers(1, 9)):
        lists.add(owner[part], pack(values[part], rows[part]))
    ranking = lists.ranking()
    for query in range(4):
        own = np.flatnonzero(owner == query)
        best = own[order.best(values[own], rows[own], depth)]
        mine = ranking.query == query
        assert ranking.row[mine].tolist() == rows[best].tolist()
        assert ranking.score[mine].tolist() == values[best].tolist()
        floor = lists.floors(np.array([query]))[0]
        assert floor == (np.nextafter(values[best[-1]], np.float32(-np.inf)) if len(best) == depth else -np.inf)


def test_a_ranking_numbers_its_entries() -> None:
    ranking = Ranking.from_counts(np.array([2, 0, 1]), np.array([5, 4, 9], np.uint32), np.array([3, 2, 1], np.float32))
    assert ranking.table().to_pylist() == [
        {"query": 0, "row": 5, "score": 3.0, "rank": 1},
        {"query": 0, "row": 4, "score": 2.0, "rank": 2},
        {"query": 2, "row": 9, "score": 1.0, "rank": 1},
    ]
