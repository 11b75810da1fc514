"""SIGKILL at random moments of every stage of the chain, and of slices: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.run import flags
from tests.cluster.world import EMBED, SELECTION, World, whole

CONDITIONS = {"STUB_PAUSE": "0.05", "STUB_DISK": "0.04", "STUB_SHARD_ROWS": "150"}
CORPUS = flags("corpus --source synthetic --papers 1200 --seed 7 --corpus tiny --workers 1")
EVALUATE = flags("eval --corpus tiny --size all --queries 12 --model bm25,stub --measures map --workers 1")
COMMANDS = (CORPUS, EVALUATE)
NAME = "corpora/tiny.name"
STAGES = {
    "corpora/pools": "pool",
    "corpora": "corpus",
    "indexes/vectors": "embed",
    "indexes/terms": "terms",
    "runs/rankings": "search",
    "runs/scores": "score",
}
SECONDS = 60.0


class Event(NamedTuple):
    """The first sight of a file of an unfinished artifact, or of a published one: what a moment is told by.

    Attributes:
        at: seconds since the first command began.
        command: which was running.
        work: folder of the artifact under construction, below the workspace; empty: a command began.
        name: of the file in it.
    """

    at: float
    command: int
    work: str
    name: str


class Moment(NamedTuple):
    """A moment of the chain: so many seconds after an event, and before the next (runs are not equally fast)."""

    event: Event
    later: float
    following: Event


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.xdist_group("kills")
def test_a_chain_killed_in_every_stage_ends_with_the_same_bytes(tmp_path: Path) -> None:
    timed, killed = World(tmp_path / "timed", empty=True), World(tmp_path / "killed", empty=True)
    for world in (timed, killed):
        world.env |= CONDITIONS
    moments = draw(watch(timed), random.Random(11))
    stages: list[set[str]] = []
    kept: dict[str, int] = {}
    for moment in moments:
        assert kill_at(killed, moment), f"the chain ended before {moment}"
        stages.append({stage_of(path.relative_to(killed.root).as_posix()) for path in partials(killed.root)})
        now = finished(killed)
        assert {name: now.get(name) for name in kept} == kept  # what was finished is neither lost nor made again
        kept = now
    assert set().union(*stages) == set(STAGES.values()), stages
    killed.run(*EVALUATE)
    final = finished(killed)
    assert {name: final.get(name) for name in kept} == kept
    assert killed.tables() == timed.tables()
    assert {stage_of(name) for name in timed.tables()} == set(STAGES.values())
    assert not killed.leftovers()


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.xdist_group("kills")
def test_slices_killed_side_by_side(tmp_path: Path) -> None:
    chance = random.Random(5)
    killed = World(tmp_path / "killed", pause=0.15)
    killed.run("embed", *EMBED, "--slice", "plan")
    kept: dict[str, int] = {}
    for _ in range(2):
        processes = [killed.start("embed", *EMBED, "--slice", f"{index}/2") for index in range(2)]
        before = len(kept)
        wait_for(lambda before=before: len(finished(killed)) > before, processes[0])
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


def watch(world: World) -> list[Event]:
    """Run the chain to its end; return its events."""
    began = time.monotonic()
    events: list[Event] = []
    seen: set[tuple[str, str]] = set()
    for number, words in enumerate(COMMANDS):
        events.append(Event(time.monotonic() - began, number, "", ""))
        process = world.start(*words)
        running = True
        while running:
            running = process.poll() is None
            for path in partials(world.root):
                work = path.relative_to(world.root).as_posix()
                for name in sorted(child.name for child in children(path)):
                    if (work, name) not in seen and not name.endswith(".tmp"):
                        seen.add((work, name))
                        events.append(Event(time.monotonic() - began, number, work, name))
            time.sleep(0.003)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return events


def draw(events: list[Event], chance: random.Random) -> list[Moment]:
    """Draw a moment in the making of an artifact of each stage, in order of time."""
    works: dict[str, list[list[float]]] = {}
    for work in dict.fromkeys(event.work for event in events if event.work):
        works.setdefault(stage_of(work), []).append([event.at for event in events if event.work == work])
    chosen = [chance.choice(times) for times in works.values()]
    moments = []
    for at in sorted(chance.uniform(times[0], times[-1]) for times in chosen):
        number = sum(event.at <= at for event in events)
        last = events[number - 1]
        moments.append(Moment(last, at - last.at, events[number]))
    return moments


def kill_at(world: World, moment: Moment) -> bool:
    """Start the chain where it stopped and kill it at a moment; False where it ended before."""
    if moment.event.command and not (world.root / NAME).exists():
        _, errors = (process := world.start(*CORPUS)).communicate()
        assert process.returncode == 0, errors
    process = world.start(*COMMANDS[moment.event.command])
    wait_for(lambda: passed(world, moment.event), process)
    until = time.monotonic() + moment.later
    wait_for(lambda: time.monotonic() > until or passed(world, moment.following), process)
    return kill(process)


def passed(world: World, event: Event) -> bool:
    """Whether an event has come about."""
    if not event.work:  # the first command begins with its process, the second where the first has published
        return event.command == 0 or (world.root / NAME).exists()
    work = world.root / event.work
    artifact = work.with_name(work.name.removeprefix(".").removesuffix(".partial"))
    return (work / event.name).exists() or artifact.is_dir()


def wait_for(true: object, process: subprocess.Popen[str]) -> None:
    """Wait until something is true, or a process has ended."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.003)


def kill(process: subprocess.Popen[str]) -> bool:
    """End a process and what it started by SIGKILL; False when it had ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def partials(root: Path) -> Iterator[Path]:
    """Return the folders of artifacts under construction."""
    for room in ("corpora", "corpora/pools", "indexes/vectors/*", "indexes/terms/*", "runs/rankings", "runs/scores"):
        yield from root.glob(f"{room}/.*.partial")


def children(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing where it is gone."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def stage_of(path: str) -> str:
    """Return the stage that makes a path below the workspace."""
    return next(stage for room, stage in STAGES.items() if path.startswith(f"{room}/"))


def finished(world: World) -> dict[str, int]:
    """Return the inode of every finished shard of papers and vectors, published or not: one made again has another."""
    found: dict[str, int] = {}
    for pattern in ("corpora/*/papers-*.arrow", "indexes/vectors/*/*/vectors-*.arrow"):
        for path in world.root.glob(pattern):
            partial = path.parent.name.endswith(".partial")
            if not partial or (path.parent / f".{path.name}.done").is_file():
                found[path.name] = path.stat().st_ino
    return found
