"""Digests of exact rankings and of fusions: a change of any bit is a change of results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.retrieve.base import Groups, Metric, Ranking, Subset
from pipeline.retrieve.engines import dense_engine
from pipeline.retrieve.fusion import Fusion, Method
from pipeline.retrieve.maxsim import MaxSimEngine
from tests.retrieve.cases import METRICS, Case, exclusions

EXPECTED = json.loads(Path(__file__).with_name("golden.json").read_text())
CPU = Resources(memory=256 << 20, workers=2, device="cpu")
DEPTHS = (1, 10, 500)


def make_case(kind: str) -> Case:
    """Return 40 queries and 3,000 candidates made of integers: with duplicates, zero vectors and large norms."""
    rng = np.random.Generator(np.random.PCG64(18))
    x = rng.integers(-2, 3, (3_000, 24)) if kind == "tied" else rng.integers(-2_000, 2_001, (3_000, 96))
    q = x[:40] + rng.integers(-1, 2, (40, x.shape[1]))
    x[1_000:1_400] = x[:400]
    x[2_990:], q[7] = 0, 0
    dtype = np.float16 if kind == "float16" else np.float32
    scale = 1e12 if kind == "large" else 1.0
    vectors = (x * scale).astype(dtype)
    rows = 3 * rng.integers(0, 3_000, (40, 6)) + 7
    return Case((q * scale).astype(dtype), vectors, exclusions([np.unique(each).tolist() for each in rows]))


def digest(rankings: list[Ranking]) -> str:
    found = hashlib.sha256()
    for ranking in rankings:
        for column in (ranking.query, ranking.row, ranking.score, ranking.rank):
            found.update(column.tobytes())
    return found.hexdigest()


def pools(case: Case) -> list[Subset]:
    """Return nested and overlapping pools, one of all candidates and one with none."""
    empty = exclusions([[]] * len(case.queries))
    parts = [None, case.rows[::2], case.rows[::6], case.rows[500:2_000], case.rows[:0]]
    return [Subset(part, case.excluded if number % 2 else empty) for number, part in enumerate(parts)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["tied", "float16", "float32", "large"])
def test_rankings(kind: str, metric: Metric) -> None:
    case, chosen = make_case(kind), dense_engine("exact")
    for depth in DEPTHS:
        ranking = case.search(chosen, metric, depth, size=1_100, workers=2)
        assert digest([ranking]) == EXPECTED[f"{kind} {metric} {depth}"]
    several = chosen.search_pools(case.queries, case.blocks(1_100), pools(case), metric=metric, depth=50, resources=CPU)
    assert digest(several) == EXPECTED[f"{kind} {metric} pools"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["tied", "float16", "float32"])
def test_best_pair(kind: str, metric: Metric) -> None:
    case = make_case(kind)
    counts = np.random.Generator(np.random.PCG64(7)).integers(1, 7, 2_000)
    ends = np.cumsum(counts)
    papers = int(np.searchsorted(ends, len(case.vectors)))
    rows, length = np.repeat(np.arange(papers, dtype=np.uint32) * 3 + 7, counts[:papers]), int(ends[papers - 1])
    queries = Groups(np.arange(0, 41, 4), case.queries)
    excluded = exclusions([[7 + 3 * n, 70] for n in range(10)])
    subsets = [Subset(None, excluded), Subset(np.unique(rows)[::3], exclusions([[]] * 10))]
    blocks = [(rows, case.vectors[:length])]
    for depth in DEPTHS:
        found = MaxSimEngine().search_pools(queries, blocks, subsets, metric=metric, depth=depth, resources=CPU)
        assert digest(found) == EXPECTED[f"{kind} {metric} best pair {depth}"]


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_fusion(method: Method) -> None:
    case, engine = make_case("tied"), dense_engine("exact")
    rankings = [case.search(engine, metric, 60 + 10 * n) for n, metric in enumerate(METRICS)]
    fusion = Fusion(rankings, len(case.queries), method)
    assert digest([fusion.ranking(100), fusion.ranking(20, (0.2, 0.3, 0.5))]) == EXPECTED[f"fusion {method}"]
