"""A Ray cluster of two nodes on this host, for tests: a small head, and a node that can be lost in the middle."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

_STORE = 80 << 20
"""Bytes of shared memory a node takes: the least Ray accepts is 75 MiB."""

_NOTICE_LOSS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
}


class RayHost:
    """A cluster of a head with one core, and nodes that come and go.

    Attributes:
        address: what a driver connects to, as ``ray.init(address=...)`` or ``--ray-address``.
    """

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster

        head = {"include_dashboard": False, "temp_dir": folder, "_system_config": _NOTICE_LOSS}
        self._cluster = Cluster(initialize_head=True, head_node_args=_node(1) | head)
        self._spare: Any = None
        self.address: str = self._cluster.address

    def add_node(self, cores: int = 2) -> None:
        """Start the second node, which has the resource ``spare`` beside its cores."""
        self._spare = self._cluster.add_node(**_node(cores), resources={"spare": cores})

    def lose_node(self) -> None:
        """End the second node by SIGKILL, with all it runs; return once the cluster knows."""
        self._cluster.remove_node(self._spare, allow_graceful=False)
        self._spare = None

    def restore(self) -> None:
        """Start the second node again if it was lost."""
        if self._spare is None:
            self.add_node()

    def stop(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayHost]:
    """Start the two nodes for the session."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mdcr-pipeline[cluster]'")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="mdcr-ray-") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_DEDUP_LOGS", "0")
        host = RayHost(folder)
        try:
            host.add_node()
            yield host
        finally:
            host.stop()


@pytest.fixture
def ray_host(ray_cluster: RayHost) -> RayHost:
    """Give the cluster with both nodes alive."""
    ray_cluster.restore()
    return ray_cluster


def _node(cores: int) -> dict[str, Any]:
    return {"num_cpus": cores, "object_store_memory": _STORE, "node_ip_address": "127.0.0.1"}


def wait_for(path: os.PathLike[str], count: int, seconds: float) -> list[str]:
    """Wait until a folder holds ``count`` files; return their names."""
    deadline = time.monotonic() + seconds
    while len(names := sorted(os.listdir(path))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(names)} of {count} files in {path} after {seconds:.0f} s")
        time.sleep(0.05)
    return names
