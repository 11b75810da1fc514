"""SIGKILL at random moments of slices that work side by side: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.world import EMBED, SELECTION, World, whole
from tests.faults.workspace import shards

pytestmark = [pytest.mark.slow, pytest.mark.kill]

SECONDS = 120.0


def test_slices_killed_side_by_side(tmp_path: Path) -> None:
    chance = random.Random(5)
    killed = World(tmp_path / "killed", pause=0.15)
    killed.run("embed", *EMBED, "--slice", "plan")
    kept: dict[str, int] = {}
    for _ in range(2):
        processes = [killed.start("embed", *EMBED, "--slice", f"{index}/2") for index in range(2)]
        before = len(kept)
        wait_for(lambda before=before: len(shards(killed.root)) > before, processes[0])  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.4))
        assert [kill(process) for process in processes] == [True, True]
        now = shards(killed.root)
        assert {name: now.get(name) for name in kept} == kept
        kept = now
    killed.run("eval", *SELECTION)
    assert killed.tables() == whole(tmp_path / "whole")
    final = shards(killed.root)
    assert {name: final.get(name) for name in kept} == kept
    assert not killed.leftovers()


def wait_for(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is true, or a process has ended."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill(process: subprocess.Popen[str]) -> bool:
    """End a process and what it started by SIGKILL; False when it had ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL
