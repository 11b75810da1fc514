"""Exact search on a GPU: equal in every bit to the search that is right by reading it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.retrieve import exact
from pipeline.retrieve.base import Metric
from tests.retrieve.cases import METRICS, expected, make_case, same, search
from tests.retrieve.reference import brute_force

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not exact.gpus(), reason="torch sees no GPU")]
GPU: dict[str, Any] = {"memory": 1 << 30, "workers": 2, "device": "cuda"}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["random", "duplicates", "identical", "far from the origin", "few values"])
def test_equals_brute_force(name: str, metric: Metric) -> None:
    case = make_case(name, candidates=9_000)
    for depth in (100, 2_048):
        assert same(case.search(metric, depth, size=4_000, **GPU), expected(case, metric, depth))


@pytest.mark.parametrize("metric", METRICS)
def test_a_search_goes_on_from_a_part(metric: Metric) -> None:
    case = make_case("few values")
    drawn = np.random.default_rng(3).permutation(case.rows)
    part = search(case.queries, case.part(drawn[:900], 700), metric, 60, case.excluded, **GPU)
    whole = search(case.queries, case.part(drawn[900:], 1_700), metric, 60, case.excluded, part, **GPU)
    assert same(whole, brute_force(case.queries, case.rows, case.vectors, metric, 60, case.excluded))
