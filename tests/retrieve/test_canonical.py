"""Canonical scores, what float32 tells apart, and the top-k merge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import order
from pipeline.retrieve.base import Metric
from pipeline.retrieve.canonical import Side, alike, best_pair_score, lengths, score_pairs, tensor_scores
from pipeline.retrieve.topk import EMPTY, TopK, from_keys, merge, to_keys
from tests.retrieve.cases import METRICS, make_case, same, search
from tests.retrieve.reference import canonical_scores, fixed_sum


@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 200, 768])
@pytest.mark.parametrize("metric", METRICS)
def test_kernel_equals_definition_in_every_bit(dimension: int, metric: Metric) -> None:
    rng = np.random.default_rng(dimension)
    x = (rng.standard_normal((50, dimension)) * 10.0 ** rng.integers(-6, 6, (50, 1))).astype(np.float32)
    q = x[:3] + np.float32(0.1)
    norms = lengths(torch.from_numpy(q))
    assert norms.numpy().tobytes() == np.sqrt(fixed_sum(q.astype(float) ** 2)).tobytes()
    owners, positions = map(torch.from_numpy, np.divmod(np.arange(150), 50))
    expected = np.concatenate([canonical_scores(query, x, metric) for query in q])
    for scores in (score_pairs, tensor_scores):
        found = scores(metric, Side(torch.from_numpy(q)), norms, Side(torch.from_numpy(x)), owners, positions)
        assert (found.float() + 0.0).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("metric", METRICS)
def test_best_pairs_are_the_same_by_kernel_and_by_tensors(metric: Metric) -> None:
    rng = np.random.default_rng(7)
    x, q = (torch.from_numpy(rng.standard_normal((n, 70), np.float32)) for n in (40, 9))
    papers, queries = Side(x, torch.tensor([0, 1, 4, 5, 20, 40])), Side(q, torch.tensor([0, 2, 3, 9]))
    owners, positions = map(torch.from_numpy, np.divmod(np.arange(15), 5))
    one, other = (form(metric, queries, lengths(q), papers, owners, positions) for form in (score_pairs, tensor_scores))
    assert one.numpy().tobytes() == other.numpy().tobytes()
    for query, paper, score in zip(owners.tolist(), positions.tolist(), (one.float() + 0.0).tolist(), strict=True):
        pair = (side.vectors[slice(*side.offsets[n : n + 2])] for side, n in ((queries, query), (papers, paper)))
        assert best_pair_score(*(vectors.numpy() for vectors in pair), metric) == score


def test_fixed_sum_is_a_sum() -> None:
    terms = np.random.default_rng(0).standard_normal((20, 300)) * 1e6
    np.testing.assert_allclose(fixed_sum(terms), [math.fsum(row) for row in terms.tolist()], rtol=1e-12)


def test_vectors_that_float32_does_not_tell_apart() -> None:
    rng = np.random.default_rng(4)
    x, q = (rng.standard_normal((n, 50)) for n in (300, 8))
    for metric in METRICS:
        assert alike(q, x, metric) < 0.01
    assert alike(q + 1e5, x + 1e5, "cosine") > 0.9
    assert alike(q * 1e-23, x * 1e-23, "l2") > 0.9
    assert alike(q, 1e5 + 1e-4 * x, "l2") > 0.9  # equal as stored
    assert alike(q * 1e-20, x * 1e-20, "cosine") < 0.01
    assert alike(q[:0], x, "l2") == alike(q, x[:0], "l2") == 0


finite = st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)


@given(st.lists(st.tuples(finite, st.integers(0, 2**32 - 1)), min_size=1, unique_by=lambda pair: pair[1]))
def test_keys_order_as_scores_and_rows_do(entries: list[tuple[float, int]]) -> None:
    values = np.array([score for score, _ in entries], np.float32) + np.float32(0)
    rows = np.array([row for _, row in entries], np.uint32)
    keys = to_keys(values, rows)
    assert np.argsort(keys)[::-1].tolist() == order.best(values, rows, len(rows)).tolist()
    assert keys.min() > EMPTY
    scores, numbers = from_keys(keys)
    assert scores.tobytes() == values.tobytes()
    assert numbers.tolist() == rows.tolist()


@given(st.integers(0, 1_000), st.integers(1, 9))
def test_lists_keep_the_best_however_they_are_fed(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, 4, 40)
    values, rows = rng.integers(-3, 3, 40).astype(np.float32), rng.permutation(40).astype(np.uint32)
    lists = TopK(4, depth)
    for part in np.array_split(np.arange(40), rng.integers(1, 9)):
        lists.add(owner[part], to_keys(values[part], rows[part]))
    ranking = lists.ranking()
    for query in range(4):
        entries = np.flatnonzero(owner == query)
        best = entries[order.best(values[entries], rows[entries], depth)]
        assert ranking.row[ranking.query == query].tolist() == rows[best].tolist()
        assert ranking.score[ranking.query == query].tolist() == values[best].tolist()
        last = to_keys(values[best[-1:]], rows[best[-1:]])[0] if len(best) == depth else EMPTY
        assert lists.least[query] == last


def test_merged_rankings_are_the_ranking_of_all() -> None:
    case = make_case("duplicates", candidates=900)
    parts = [search(case.queries, [block], "l2", 40, case.excluded) for block in case.blocks(300)]
    assert same(merge(parts, len(case.queries), 40), case.search("l2", 40))
