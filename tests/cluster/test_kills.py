"""Ten kills at random moments of the whole chain, whole runs and slices in turn: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.world import EMBED, SELECTION, SHARDS, World

SECONDS = 40
KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11])
def test_ten_kills_of_the_whole_chain(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole, killed = World(tmp_path / "whole"), World(tmp_path / "killed", pause=0.15)
    whole.run("eval", *SELECTION)
    kept: dict[str, int] = {}
    kills = tries = 0
    deadline = time.monotonic() + SECONDS
    while (kills < KILLS or len(kept) < 3) and time.monotonic() < deadline:
        tries += 1
        if tries % 3:
            processes = [killed.start("eval", *SELECTION)]
        else:  # two slices at once, of a folder that an earlier run planned
            processes = [killed.start("embed", *EMBED, "--slice", f"{index}/2") for index in range(2)]
        time.sleep(chance.uniform(0.9, 2.6))
        kills += sum(kill(process) for process in processes)
        now = finished(killed)
        assert {name: now.get(name) for name in kept} == kept  # what was finished is neither lost nor made again
        kept = now
    assert kills >= KILLS // 2
    assert kept
    killed.env["STUB_PAUSE"] = "0"
    killed.run("eval", *SELECTION)
    assert killed.artifacts() == whole.artifacts()
    assert len(killed.artifacts()) == SHARDS + 3
    final = finished(killed)
    assert {name: final.get(name) for name in kept} == kept
    assert not killed.leftovers()


def kill(process: subprocess.Popen[str]) -> bool:
    """End a process and what it started by SIGKILL; False when it had ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def finished(world: World) -> dict[str, int]:
    """Return the inode of every finished shard of vectors, published or not: a file made again has another."""
    found: dict[str, int] = {}
    for path in world.root.glob("indexes/vectors/*/*/vectors-*.arrow"):
        partial = path.parent.name.endswith(".partial")
        if not partial or (path.parent / f".{path.name}.done").is_file():
            found[path.name] = path.stat().st_ino
    return found
