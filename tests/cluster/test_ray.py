from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.ray_host import RayHost, wait_for

pytestmark = pytest.mark.ray


def work(folder: str, number: int) -> tuple[int, str]:
    """Leave a mark of this try, work for a while, and return where it ran."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"{number}-{node}-{os.getpid()}").touch()
    time.sleep(0.5)
    return number, node


def test_tasks_of_a_lost_node_run_again_elsewhere(ray_host: RayHost, tmp_path: Path) -> None:
    import ray

    ray.init(address=ray_host.address, log_to_driver=False)
    try:
        task: Any = ray.remote(max_retries=3)(work)
        spare = {n["NodeID"] for n in ray.nodes() if n["Alive"] and "spare" in n["Resources"]}
        assert len(spare) == 1
        results = [task.remote(str(tmp_path), number) for number in range(12)]
        while not any(name.split("-")[1] in spare for name in wait_for(tmp_path, 1, 40)):
            time.sleep(0.05)
        ray_host.lose_node()
        done = dict(ray.get(results, timeout=60))
        assert sorted(done) == list(range(12))
        tries = [name.split("-")[:2] for name in os.listdir(tmp_path)]
        lost = {int(number) for number, node in tries if node in spare}
        assert any(done[number] not in spare for number in lost)
        assert len(tries) > 12
    finally:
        ray.shutdown()


def test_the_node_comes_back(ray_host: RayHost) -> None:
    import ray

    ray.init(address=ray_host.address, log_to_driver=False)
    try:
        task: Any = ray.remote(resources={"spare": 1})(lambda: "ran")
        assert ray.get(task.remote(), timeout=60) == "ran"
    finally:
        ray.shutdown()
