"""The chain by a Ray cluster of two nodes that loses one of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline.cluster.ray_engine import connected
from pipeline.core.errors import InputError
from tests.cli.run import flags
from tests.cluster.ray_host import start_ray
from tests.cluster.test_kills import tables
from tests.cluster.world import SELECTION, SHARDS, World

CORPUS = flags("corpus --source synthetic --papers 3000 --seed 7 --corpus made")

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_makes_the_same_bytes(tmp_path: Path) -> None:
    local = World(tmp_path / "local")
    local.run("eval", *SELECTION)
    world = World(tmp_path / "ray", pause=0.3)
    whole, read = World(tmp_path / "whole", empty=True), World(tmp_path / "read", empty=True)
    whole.run(*CORPUS)
    for host in start_ray(world.env):
        read.env |= {"RAY_ADDRESS": host.address}
        words = (*CORPUS, "--engine", "ray")
        assert "3 at a time, 1 of the cores each" in read.said(*words)  # the cluster is found; no GPU is asked for
        process = world.start("eval", "--engine", "ray", "--ray-address", host.address, *SELECTION)
        try:
            deadline = time.monotonic() + 60
            while world.units() < 3 and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            made = world.units()
            host.lose_node()
            _, errors = process.communicate(timeout=90)
        finally:
            process.kill()
        assert process.returncode == 0, errors
        assert "2 at a time, a GPU each" in errors
        assert 3 <= made < SHARDS
    assert tables(read.root) == tables(whole.root)
    assert world.artifacts() == local.artifacts()
    assert not world.leftovers()


@pytest.mark.slow
def test_without_a_cluster_ray_runs_here_alone(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mdcr-pipeline[ray]'")
    local, world = World(tmp_path / "local"), World(tmp_path / "ray")
    local.run("eval", *SELECTION)
    assert "starting one of this machine alone" in world.said("eval", "--engine", "ray", *SELECTION)
    assert world.artifacts() == local.artifacts()


def test_no_cluster_there() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mdcr-pipeline[ray]'")
    for address in ("127.0.0.1:9", "nonsense"):
        with (
            pytest.raises(InputError, match=f"no Ray cluster answers at {address}.*ray start --head"),
            connected(address),
        ):
            pass
