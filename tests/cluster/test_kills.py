"""SIGKILL at random moments of every stage of the chain, and of slices: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.manifest import MANIFEST
from tests.cli.run import flags
from tests.cluster.world import EMBED, SELECTION, World, whole

pytestmark = [pytest.mark.slow, pytest.mark.kill]

DISK = 0.04
CONDITIONS = {"STUB_PAUSE": "0.05", "STUB_DISK": str(DISK), "STUB_SHARD_ROWS": "150"}
CORPUS = flags("corpus --source synthetic --papers 1200 --seed 7 --corpus tiny --workers 1")
EVALUATE = flags("eval --corpus tiny --size all --queries 12 --model bm25,stub --measures map --workers 1")
ROOMS = ("corpora", "corpora/pools", "indexes/vectors/*", "indexes/terms/*", "runs/rankings", "runs/scores")
SECONDS = 120.0


@pytest.mark.java
def test_a_chain_killed_in_every_stage_ends_with_the_same_bytes(tmp_path: Path) -> None:
    chance = random.Random(11)
    uninterrupted, killed = World(tmp_path / "whole", empty=True), World(tmp_path / "killed", empty=True)
    for world in (uninterrupted, killed):
        world.env |= CONDITIONS
    for command in (CORPUS, EVALUATE):
        succeed(uninterrupted.start(*command))
    kept: dict[str, int] = {}
    for artifact in one_of_each_stage(uninterrupted, chance):
        command = EVALUATE if (killed.root / "corpora/tiny.name").exists() else CORPUS
        process = killed.start(*command)
        partial = killed.root / artifact.parent / f".{artifact.name}.partial"
        files = chance.randrange(len(visible(uninterrupted.root / artifact)) - 1)  # one is missing, and the manifest
        wait_for(lambda: partial.is_dir() and len(visible(partial)) >= files, process)  # noqa: B023
        time.sleep(chance.uniform(0, DISK / 2))
        assert kill(process), f"the chain ended before {artifact}"
        assert partial.is_dir()
        now = finished(killed)
        assert {name: now.get(name) for name in kept} == kept  # what was finished is neither lost nor made again
        kept = now
        if command == CORPUS:
            succeed(killed.start(*CORPUS))
    killed.run(*EVALUATE)
    final = finished(killed)
    assert {name: final.get(name) for name in kept} == kept
    assert killed.tables() == uninterrupted.tables()
    assert not killed.leftovers()


def test_slices_killed_side_by_side(tmp_path: Path) -> None:
    chance = random.Random(5)
    killed = World(tmp_path / "killed", pause=0.15)
    killed.run("embed", *EMBED, "--slice", "plan")
    kept: dict[str, int] = {}
    for _ in range(2):
        processes = [killed.start("embed", *EMBED, "--slice", f"{index}/2") for index in range(2)]
        before = len(kept)
        wait_for(lambda before=before: len(finished(killed)) > before, processes[0])  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.4))
        assert [kill(process) for process in processes] == [True, True]
        now = finished(killed)
        assert {name: now.get(name) for name in kept} == kept
        kept = now
    killed.run("eval", *SELECTION)
    assert killed.tables() == whole(tmp_path / "whole")
    final = finished(killed)
    assert {name: final.get(name) for name in kept} == kept
    assert not killed.leftovers()


def one_of_each_stage(world: World, chance: random.Random) -> list[Path]:
    """Return an artifact of each room, by path below the workspace, in the order in which they were made."""
    made = [sorted(found.parent for found in world.root.glob(f"{room}/[!.]*/{MANIFEST}")) for room in ROOMS]
    chosen = [chance.choice(artifacts) for artifacts in made]
    chosen.sort(key=lambda artifact: (artifact / MANIFEST).stat().st_mtime_ns)
    return [artifact.relative_to(world.root) for artifact in chosen]


def visible(folder: Path) -> list[str]:
    """Return the names of a folder's finished files, without records of progress; none where it is gone."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".") and not name.endswith(".tmp")]
    except FileNotFoundError:
        return []


def succeed(process: subprocess.Popen[str]) -> None:
    """Let a command end well."""
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors


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


def finished(world: World) -> dict[str, int]:
    """Return the inode of every finished shard of papers and vectors, published or not: one made again has another."""
    found: dict[str, int] = {}
    for pattern in ("corpora/*/papers-*.arrow", "indexes/vectors/*/*/vectors-*.arrow"):
        for path in world.root.glob(pattern):
            partial = path.parent.name.endswith(".partial")
            if not partial or (path.parent / f".{path.name}.done").is_file():
                found[path.name] = path.stat().st_ino
    return found
