"""The simulation of workers against what can be computed by hand."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("simpy", reason="simpy is not installed: pip install 'mdcr-pipeline[bench]'")

from bench import scaling, simulation

RUNS = (simulation.static, simulation.dynamic)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("units", "workers"), [(64, 64), (256, 64), (10, 4), (1, 3)])
def test_where_nothing_goes_wrong_only_the_remainder_is_lost(run, units: int, workers: int) -> None:  # type: ignore[no-untyped-def]
    found = run([100] * units, workers, simulation.calm(10.0), seed=1)
    rounds = -(-units // workers)
    assert found.makespan == pytest.approx(rounds * 10.0)
    assert found.efficiency == pytest.approx(units / (rounds * workers))
    assert (found.units, found.failures) == (units, 0)


@pytest.mark.parametrize("run", RUNS)
def test_failures_lose_no_unit_and_cost_time(run) -> None:  # type: ignore[no-untyped-def]
    world = simulation.World(rate=100.0, mtbf=0.5)
    sizes = simulation.shards_of(2_000_000, 50_000)
    found = run(sizes, 8, world, seed=3)
    calm = run(sizes, 8, dataclasses.replace(world, mtbf=float("inf")), seed=3)
    assert found.failures >= 5
    assert found.units == calm.units == len(sizes) == 40
    assert found.makespan > calm.makespan
    assert 0 < found.efficiency < calm.efficiency <= 1


def test_stragglers_hurt_fixed_slices_more() -> None:
    world = dataclasses.replace(simulation.calm(10.0), slow_share=0.1, slow_factor=3.0)
    sizes = [100] * 2_000
    fixed = simulation.mean(simulation.static(sizes, 20, world, seed) for seed in range(5))
    free = simulation.mean(simulation.dynamic(sizes, 20, world, seed, turns=50) for seed in range(5))
    assert free["efficiency"] > fixed["efficiency"] + 0.1


def test_a_run_is_its_seed() -> None:
    world = simulation.World(50.0, mtbf=1.0)
    one, two, other = (simulation.static([9_000] * 50, 5, world, seed) for seed in (1, 1, 2))
    assert one == two != other


def test_costs_follow_papers_and_workers() -> None:
    gpu, rates = scaling.bert_base(scaling.GPUS["A100"]), scaling.Rates()
    small, large = (scaling.cost(papers, 4, gpu, rates) for papers in (16_000_000, 160_000_000))
    assert large.disk_gb == pytest.approx(10 * small.disk_gb)
    assert large.gpu_hours == pytest.approx(10 * small.gpu_hours, rel=0.1)
    few, many = (scaling.cost(200_000_000, count, gpu, rates) for count in (1, 64))
    assert few.hours["embed"] / many.hours["embed"] == pytest.approx(64, rel=0.1)
    assert scaling.cost(2_000_000, 64, gpu, rates).hours == scaling.cost(2_000_000, 31, gpu, rates).hours


def test_the_check_of_the_model_finds_its_own_figures() -> None:
    """Runs that cost exactly so much a paper, and so much a command, are expected to the last digit."""

    def run(papers: int) -> scaling.Measured:
        seconds = {"corpus": 1 / 500, "terms": 1 / 400, "embed": 1 / 50, "search": 1 / 1_000}
        stored = {"corpus": 1_000.0, "terms": 300.0, "embed": 1_028.0, "search": 0.0}
        return {
            stage: {"seconds": 2.5 + each * papers, "bytes": stored[stage] * papers, "items": papers, "queries": 500.0}
            for stage, each in seconds.items()
        }

    low, high = run(20_000), run(80_000)
    assert scaling._rates(low, high).search == pytest.approx(1_000 * 500 * 256)
    for papers in (40_000, 160_000):
        time, disk = scaling._check(run(papers), low, high)
        assert time.endswith(("s (+0%)", "s (-0%)"))
        assert disk.endswith(("MB (+0%)", "MB (-0%)"))
    twice = {stage: {**found, "seconds": 2 * found["seconds"]} for stage, found in run(40_000).items()}
    assert scaling._check(twice, low, high)[0].endswith("(-50%)")
