"""Exact search on a GPU: equal in every bit to the search that is right by reading it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.retrieve import ann, dense
from pipeline.retrieve.base import Metric
from pipeline.retrieve.dense import ExactEngine
from pipeline.retrieve.engines import dense_engine
from tests.retrieve.cases import METRICS, expected, make_case, same, subset_of, subsets_of

pytestmark = pytest.mark.gpu
GPU: dict[str, Any] = {"memory": 1 << 30, "workers": 2, "device": "cuda"}


@pytest.fixture(params=["faiss", "exact"])
def engine(request: pytest.FixtureRequest) -> ExactEngine:
    library = {"faiss": ann, "exact": dense}[request.param]
    if not library.gpus():
        pytest.skip(f"{request.param} sees no GPU")
    return dense_engine(request.param)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["random", "duplicates", "identical", "far from the origin"])
def test_equals_brute_force(name: str, metric: Metric, engine: ExactEngine) -> None:
    case = make_case(name, candidates=9_000)
    for depth in (100, ann.GPU_LIMIT):
        assert same(case.search(engine, metric, depth, size=4_000, **GPU), expected(case, metric, depth))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["random", "few values"])
def test_each_pool_is_ranked_as_alone(name: str, metric: Metric, engine: ExactEngine) -> None:
    case = make_case(name)
    subsets = subsets_of(case, np.random.default_rng(3))
    rankings = case.search_pools(engine, subsets, metric, 60, size=1_700, **GPU)
    for ranking, subset in zip(rankings, subsets, strict=True):
        assert same(ranking, subset_of(case, subset, metric, 60))


@pytest.mark.skipif(not ann.gpus(), reason="Faiss sees no GPU")
def test_faiss_finds_no_more_than_its_limit() -> None:
    with pytest.raises(InputError, match="depth 2049 is more than Faiss finds on a GPU"):
        make_case("random").search(dense_engine("faiss"), "l2", 2_049, **GPU)
