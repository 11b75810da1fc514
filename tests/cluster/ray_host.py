"""A Ray cluster of two nodes on this host, in a process of its own that can be ended whatever Ray does.

``python -m tests.cluster.ray_host FOLDER`` starts a head with one core and a node with two, each with a GPU in name;
it prints the address, then answers each line ``lose`` on standard input, by SIGKILL of the second node, with ``lost``.
It ends with its input.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_STORE = 80 << 20
"""Bytes of shared memory a node takes: the least Ray accepts is 75 MiB."""

_NOTICE_LOSS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
_START_SECONDS = 150.0


class RayHost:
    """The cluster's process, with a time limit on every word of it.

    Attributes:
        address: what a driver connects to, as ``--ray-address``.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.ray_host", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env | {"RAY_USAGE_STATS_ENABLED": "0"},
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.address = self._line("address", _START_SECONDS)

    def lose_node(self) -> None:
        """End the second node by SIGKILL, with all it runs."""
        assert self._process.stdin is not None
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        self._line("lost", 20.0)

    def stop(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # Ray's reapers end what is left
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def _line(self, word: str, seconds: float) -> str:
        try:
            while not (line := self._lines.get(timeout=seconds)).startswith(f"{word}="):
                continue
        except queue.Empty:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise TimeoutError(f"Ray said no {word} within {seconds:.0f} s") from None
        return line.partition("=")[2]


def start_ray(env: dict[str, str]) -> Iterator[RayHost]:
    """Start the two nodes; to be used by a fixture."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    with tempfile.TemporaryDirectory(prefix="mdcr-ray-", dir="/tmp") as folder:  # sockets need short names
        try:
            host = RayHost(Path(folder), env)
        except TimeoutError as error:
            pytest.skip(f"Ray cannot be started here: {error}")
        try:
            yield host
        finally:
            host.stop()


def _serve(folder: str) -> None:
    from ray.cluster_utils import Cluster

    node = {"num_gpus": 1, "object_store_memory": _STORE}
    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": folder, "_system_config": _NOTICE_LOSS}
    cluster = Cluster(initialize_head=True, head_node_args=node | head)
    second = cluster.add_node(num_cpus=2, **node)
    sys.stdout.write(f"address={cluster.address}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if line.strip() == "lose":
            cluster.remove_node(second, allow_graceful=False)
            sys.stdout.write("lost=1\n")
            sys.stdout.flush()
    cluster.shutdown()


if __name__ == "__main__":
    _serve(sys.argv[1])
