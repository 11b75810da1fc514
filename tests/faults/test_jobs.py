"""SIGKILL of workers and drivers on a real Slurm at random moments: the same command goes on to the same bytes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from pipeline.cluster.jobs import Jobs
from tests.cli.run import flags
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import EMBED, World, whole
from tests.faults.tally import KILLS, Tally

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.slurm]

ROUND = 3
"""Kills of one chain."""


@pytest.mark.parametrize("seed", range(max(1, KILLS // 40)))
def test_jobs_killed_at_random_moments(seed: int, slurm_host: SlurmHost, tmp_path: Path, tally: Tally) -> None:
    chance = random.Random(seed)
    world = World(tmp_path / "slurm", pause=1)
    for number in range(ROUND):
        driver = world.start("embed", *flags("--on slurm --nodes 4"), *EMBED)
        slurm_host.until(lambda driver=driver: alive(world) or driver.poll() is not None, "workers are submitted", 120)
        time.sleep(chance.uniform(0, 4))
        tally.count("tried")
        workers = alive(world) if number else []
        slurm_host.end(chance.choice(workers)) if workers else driver.kill()
        _, errors = driver.communicate(timeout=240)
        assert driver.returncode in (0, -9), errors
        tally.count("resumed")
    world.run("embed", *EMBED)  # it waits for workers of a killed driver
    assert world.tables().items() <= whole(tmp_path / "whole").items()
    assert not world.leftovers()


def alive(world: World) -> list[str]:
    return [job for jobs in Jobs.all(world.root) for job in jobs.alive()]
