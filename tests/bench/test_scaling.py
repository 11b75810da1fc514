"""The cost model follows papers and workers."""

from __future__ import annotations

import pytest

from bench import scaling


def test_costs_follow_papers_and_workers() -> None:
    gpu, rates = scaling.GPUS["A100"], scaling.Rates()
    small, large = (scaling.cost(papers, 4, gpu, rates) for papers in (16_000_000, 160_000_000))
    assert large.disk_gb == pytest.approx(10 * small.disk_gb)
    assert large.gpu_hours == pytest.approx(10 * small.gpu_hours, rel=0.1)
    few, many = (scaling.cost(200_000_000, count, gpu, rates) for count in (1, 64))
    assert few.hours["embed"] / many.hours["embed"] == pytest.approx(64, rel=0.1)
    assert scaling.cost(2_000_000, 64, gpu, rates).hours == scaling.cost(2_000_000, 31, gpu, rates).hours
