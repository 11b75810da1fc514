"""Papers with several vectors: the ranking by the best pair, equal to brute force in every bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.core.csr import Groups
from pipeline.core.errors import InputError
from pipeline.retrieve.base import Exclusions, Metric, Ranking, VectorBlock
from tests.retrieve import cases
from tests.retrieve.cases import METRICS, exclusions, make_case, no_exclusions, same
from tests.retrieve.reference import brute_force

Several = list[np.ndarray]
VECTOR = np.ones((1, 3), np.float32)


def grouped(vectors: np.ndarray, rng: np.random.Generator, most: int) -> Several:
    cuts, total = [0], len(vectors)
    while cuts[-1] < total:
        cuts.append(min(total, cuts[-1] + int(rng.integers(1, most + 1))))
    return [vectors[a:b] for a, b in itertools.pairwise(cuts)]


def blocks(groups: Several, rows: np.ndarray, size: int) -> Iterator[VectorBlock]:
    for start in range(0, len(groups), size):
        part = groups[start : start + size]
        yield np.repeat(rows[start : start + size], [len(vectors) for vectors in part]), np.concatenate(part)


def together(queries: Several) -> Groups:
    return Groups(np.cumsum([0, *map(len, queries)]), np.concatenate(queries))


def best(
    queries: Several, rows: np.ndarray, groups: Several, metric: Metric, depth: int, excluded: Exclusions
) -> Ranking:
    """Return the ranking by brute force."""
    return brute_force(together(queries), *next(blocks(groups, rows, len(rows))), metric, depth, excluded)


def search(
    queries: Several, groups: Several, rows: np.ndarray, metric: Metric, depth: int, excluded: Exclusions, **how: Any
) -> Ranking:
    parts = blocks(groups, rows, how.pop("size", 10**9))
    return cases.search(together(queries), parts, metric, depth, excluded, **how)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["duplicates", "far from the origin", "zeros", "below the normal range"])
def test_equals_brute_force_in_every_bit(name: str, metric: Metric) -> None:
    rng = np.random.default_rng(2)
    case = make_case(name, candidates=600, queries=23, dimension=12)
    groups, queries = grouped(case.vectors, rng, 9), grouped(case.queries, rng, 5)
    rows = np.arange(len(groups), dtype=np.uint32) * 3 + 7
    excluded = exclusions([rng.choice(rows, 3, replace=False).tolist() if n % 2 else [] for n in range(len(queries))])
    expected = best(queries, rows, groups, metric, 40, excluded)
    for how in ({}, {"size": 37, "workers": 3}, {"memory": 1, "workers": 1}):
        assert same(search(queries, groups, rows, metric, 40, excluded, **how), expected)


def test_papers_with_very_many_vectors() -> None:
    rng = np.random.default_rng(3)
    groups = [rng.standard_normal((size, 6), np.float32) for size in (900, 1, 434, 436, 3)]
    queries = [rng.standard_normal((size, 6), np.float32) for size in (300, 1)]
    rows = np.arange(5, dtype=np.uint32)
    expected = best(queries, rows, groups, "l2", 3, no_exclusions(2))
    assert same(search(queries, groups, rows, "l2", 3, no_exclusions(2)), expected)


@pytest.mark.parametrize(
    ("query", "groups", "rows", "message"),
    [
        (VECTOR[:0], [VECTOR], [0], "query 0 has no vector"),
        (VECTOR, [VECTOR, VECTOR], [0, 0], "rows do not rise after row 0"),
        (VECTOR, [VECTOR[:, :2]], [0], "queries 3 dimensions"),
    ],
)
def test_bad_input_is_named(query: np.ndarray, groups: Several, rows: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search([query], groups, np.array(rows, np.uint32), "l2", 3, no_exclusions(1), size=1)
