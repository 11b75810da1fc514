"""The chain by a Ray cluster of two nodes that loses one of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline.cluster.ray_engine import connected
from pipeline.core.errors import InputError
from tests.cluster.ray_host import start_ray
from tests.cluster.world import SELECTION, SHARDS, World

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_makes_the_same_bytes(tmp_path: Path) -> None:
    local = World(tmp_path / "local")
    local.run("eval", *SELECTION)
    world = World(tmp_path / "ray", pause=0.3)
    for host in start_ray(world.env):
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
        assert 3 <= made < SHARDS
    assert world.artifacts() == local.artifacts()
    assert not world.leftovers()


def test_no_cluster_there() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mdcr-pipeline[ray]'")
    for address in ("127.0.0.1:9", "nonsense"):
        with (
            pytest.raises(InputError, match=f"no Ray cluster answers at {address}.*ray start --head"),
            connected(address),
        ):
            pass
