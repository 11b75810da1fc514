"""Canonical scores, the error bound of estimates, and the top-k merge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import order
from pipeline.core.errors import StageError
from pipeline.retrieve.base import Metric
from pipeline.retrieve.canonical import CODES, canonical_scores, fixed_sum, pair_scores
from pipeline.retrieve.estimates import ScoreBounds
from pipeline.retrieve.search import NONE, pair_norms
from pipeline.retrieve.topk import TopK, pack, unpack
from tests.retrieve.cases import METRICS, make_case, named

HARD = ("random", "far from the origin", "one giant", "tiny", "below the normal range", "zeros", "half precision")
"""Cases that try the bound of an estimate."""


@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 200, 768])
@pytest.mark.parametrize("metric", METRICS)
def test_kernel_equals_definition_in_every_bit(dimension: int, metric: Metric) -> None:
    rng = np.random.default_rng(dimension)
    x = (rng.standard_normal((50, dimension)) * 10.0 ** rng.integers(-6, 6, (50, 1))).astype(np.float32)
    q = x[:3] + np.float32(0.1)
    norms = pair_norms(q)
    assert norms.tobytes() == np.sqrt(fixed_sum(q.astype(float) ** 2)).tobytes()
    owners, positions = np.divmod(np.arange(150), 50)
    scores = pair_scores(CODES[metric], q, norms, x, owners, positions, NONE, NONE)
    expected = np.concatenate([canonical_scores(query, x, metric) for query in q])
    assert (scores.astype(np.float32) + np.float32(0)).tobytes() == expected.tobytes()


def test_fixed_sum_is_a_sum() -> None:
    terms = np.random.default_rng(0).standard_normal((20, 300)) * 1e6
    np.testing.assert_allclose(fixed_sum(terms), [math.fsum(row) for row in terms.tolist()], rtol=1e-12)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", HARD)
def test_estimates_are_within_a_bound_that_is_not_far_too_wide(name: str, metric: Metric, low: bool) -> None:
    case = make_case(name, dimension=100, candidates=400)
    queries, vectors = (matrix.astype(np.float32) for matrix in (case.queries, case.vectors))
    bounds = ScoreBounds(queries, pair_norms(queries), metric, vectors[:100], case.rows, low=low)
    points = bounds.place(torch.from_numpy(vectors), case.rows)
    products = (bounds.points @ points.points.T).float().numpy()
    estimates = (products + points.bias.numpy()).astype(float)
    bound = bounds.length[:, None] * points.spread.numpy() + points.extra.numpy() + bounds.loss * np.abs(products)
    exact = np.array([_exact(q, vectors.astype(float), metric) for q in queries.astype(float)])
    off = np.abs(estimates - (exact - bounds.shift[:, None]) / bounds.scale)
    assert (off <= bound).all()
    if low and name in ("random", "zeros", "half precision"):
        assert off.max() > 0.05 * bound.max()


def _exact(query: np.ndarray, matrix: np.ndarray, metric: Metric) -> np.ndarray:
    if metric == "l2":
        return -((query - matrix) ** 2).sum(axis=1)
    products = matrix @ query
    if metric == "inner_product":
        return products
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


def test_products_in_less_than_float32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU makes them where TF32 is allowed: 10 bits of mantissa."""
    place = ScoreBounds.place

    def rounded(self: ScoreBounds, vectors: torch.Tensor, rows: np.ndarray):
        points = place(self, vectors, rows)
        return points._replace(points=(points.points.view(torch.int32) & -8192).view(torch.float32))

    monkeypatch.setattr(ScoreBounds, "place", rounded)
    for name in ("float32", "device"):
        with pytest.raises(StageError, match="further from the exact scores .* Unset NVIDIA_TF32_OVERRIDE"):
            make_case("random").search(named(name), "l2", 9)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)


@settings(deadline=None)
@given(st.lists(st.tuples(finite, st.integers(0, 2**32 - 1)), min_size=1, unique_by=lambda pair: pair[1]))
def test_keys_order_as_scores_and_rows_do(entries: list[tuple[float, int]]) -> None:
    values = np.array([score for score, _ in entries], np.float32) + np.float32(0)
    rows = np.array([row for _, row in entries], np.uint32)
    keys = pack(values, rows)
    assert np.argsort(keys)[::-1].tolist() == order.best(values, rows, len(rows)).tolist()
    unpacked = unpack(keys)
    assert unpacked[0].tobytes() == values.tobytes()
    assert unpacked[1].tolist() == rows.tolist()


@settings(deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 9))
def test_lists_keep_the_best_however_they_are_fed(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    owner, pools = np.sort(rng.integers(0, 4, 40)), rng.integers(0, 4, 40).astype(np.uint64)
    values, rows = rng.integers(-3, 3, 40).astype(np.float32), rng.permutation(40).astype(np.uint32)
    lists = TopK(4, depth, 2)
    for part in np.array_split(np.arange(40), rng.integers(1, 9)):
        lists.add(owner[part], pack(values[part], rows[part]), pools[part])
    for pool in range(2):
        ranking, floors = lists.ranking(pool), lists.floors()[pool]
        for query in range(4):
            entries = np.flatnonzero((owner == query) & (pools >> np.uint64(pool) & np.uint64(1) > 0))
            best = entries[order.best(values[entries], rows[entries], depth)]
            assert ranking.row[ranking.query == query].tolist() == rows[best].tolist()
            assert ranking.score[ranking.query == query].tolist() == values[best].tolist()
            full = len(best) == depth
            assert floors[query] == (np.nextafter(values[best[-1]], np.float32(-np.inf)) if full else -np.inf)
