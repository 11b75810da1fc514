"""Exact search on a GPU: equal in every bit to the search that is right by reading it."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.retrieve import ann, dense
from pipeline.retrieve.base import no_exclusions
from pipeline.retrieve.canonical import brute_force
from pipeline.retrieve.engines import dense_engine
from pipeline.retrieve.search import DenseEngine
from tests.retrieve.cases import METRICS, make_case, same, subset_of
from tests.retrieve.test_pools import subsets_of

pytestmark = pytest.mark.gpu
GPU = Resources(memory=1 << 30, workers=2, device="cuda")


@pytest.fixture(params=["faiss", "exact"])
def engine(request: pytest.FixtureRequest) -> DenseEngine:
    library = {"faiss": ann, "exact": dense}[request.param]
    if not library.gpus():
        pytest.skip(f"{request.param} sees no GPU")
    return dense_engine(request.param)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["random", "duplicates", "identical", "far from the origin"])
def test_equals_brute_force(name: str, metric: str, engine: DenseEngine) -> None:
    case = make_case(name, candidates=9_000)
    for depth in (100, ann.GPU_LIMIT):
        found = engine.search(
            case.queries, case.blocks(4_000), metric=metric, depth=depth, excluded=case.excluded, resources=GPU
        )
        assert same(found, brute_force(case.queries, case.rows, case.vectors, metric, depth, case.excluded))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["random", "few values"])
def test_each_pool_is_ranked_as_alone(name: str, metric: str, engine: DenseEngine) -> None:
    case = make_case(name)
    subsets = subsets_of(case, np.random.default_rng(3))
    found = engine.search_pools(case.queries, case.blocks(1_700), subsets, metric=metric, depth=60, resources=GPU)
    for ranking, subset in zip(found, subsets, strict=True):
        assert same(ranking, subset_of(case, subset, metric, 60))


@pytest.mark.skipif(not ann.gpus(), reason="Faiss sees no GPU")
def test_faiss_finds_no_more_than_its_limit() -> None:
    with pytest.raises(InputError, match="depth 2049 is more than Faiss finds on a GPU"):
        dense_engine("faiss").search(
            np.ones((1, 2)), [], metric="l2", depth=2_049, excluded=no_exclusions(1), resources=GPU
        )
