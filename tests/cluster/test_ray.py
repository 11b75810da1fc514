"""The chain by a Ray cluster of two nodes that loses one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, one_line_error
from tests.cluster.ray_host import RayHost, start_ray
from tests.cluster.world import SELECTION, SHARDS, World, whole

CORPUS = flags("corpus --source synthetic --papers 3000 --seed 7 --corpus made")

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ray", pause=0.3)


@pytest.fixture
def ray_host(world: World) -> Iterator[RayHost]:
    yield from start_ray(world.env)


def test_a_cluster_that_loses_a_node_makes_the_same_bytes(world: World, ray_host: RayHost, tmp_path: Path) -> None:
    world.env |= {"RAY_ADDRESS": ray_host.address}  # the cluster is found
    process = world.start("eval", "--engine", "ray", *SELECTION)
    try:
        deadline = time.monotonic() + 120
        while world.units() < 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        made = world.units()
        ray_host.lose_node()
        _, errors = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "2 at a time, a GPU each" in errors
    assert 3 <= made < SHARDS
    assert world.tables() == whole(tmp_path / "whole")
    assert not world.leftovers()


def test_no_cluster_there(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    for address in ("127.0.0.1:9", "nonsense"):
        line = one_line_error(mdcr(tmp_path, *CORPUS, "--engine", "ray", "--ray-address", address))
        assert f"no Ray cluster answers at {address}" in line
        assert "ray start --head" in line
