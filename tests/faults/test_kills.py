"""SIGKILL at random moments of a chain: the same command goes on, nothing is lost, made again or left over."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.run import flags
from tests.encode.tiny import save_bert
from tests.faults.host import Host
from tests.faults.tally import KILLS, Tally
from tests.faults.workspace import contents, leftovers, release, shards

pytestmark = [pytest.mark.slow, pytest.mark.kill]

ROUND = 10
"""Kills of one chain."""

EVALUATE = "eval --corpus tiny --size all --queries 20 --samples 1 --model bm25,lsa --measures map --workers 1"
TRAINING = """
    triplets=specter draw={until=2018,queries=16,seed=1} validation={year=2019,size=60,queries=4} batch=8 micro_batch=4
    max_length=16 warmup=4 learning_rate=1e-3 epochs=4 checkpoints=4 precision=float32
"""
SHARES = {"corpus": 0.2, "eval": 0.3, "train": 0.2, "report": 0.1, "leaderboard": 0.1, "export": 0.1}
"""How many of the kills are for each command."""


class Undisturbed(NamedTuple):
    """What the chain makes and how long its commands take without kills."""

    host: Host
    commands: list[list[str]]
    runs: dict[str, dict[str, Any]]
    contents: dict[str, object]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("undisturbed")
    input_folder = release(folder / "release")
    corpus = ["corpus", "--source", "s2orc2020", "--input", str(input_folder), *flags("--corpus tiny --workers 1")]
    export = ["export", "run", *flags("--corpus tiny --size all --queries 20 --samples 1 --model bm25,lsa --workers 1")]
    base = save_bert(folder / "base", positions=64)
    settings = [f"--set={setting}" for setting in (f"base={base}", *TRAINING.split())]
    train = ["train", "train_past", *settings, *flags("--corpus tiny --workers 1 --device cpu")]
    commands = [corpus, list(flags(EVALUATE)), train, ["report"], ["leaderboard"], export]
    host = Host(folder / "log")
    for command in commands[:2]:  # they compile, so that times are of the chain alone
        host.run(folder / "first", command)
    root = folder / "root"
    runs = {command[0]: host.run(root, command) for command in commands}
    for run in runs.values():
        assert run["code"] == 0, run["errors"]
    assert not leftovers(root)
    yield Undisturbed(host, commands, runs, contents(root))
    host.close()


@pytest.mark.parametrize("seed", range(-(-KILLS // ROUND)))
def test_a_chain_killed_at_random_moments_ends_with_the_same_bytes(
    seed: int, undisturbed: Undisturbed, tmp_path: Path, tally: Tally
) -> None:
    chance = random.Random(seed)
    root = tmp_path / "root"
    tried = 0
    for command in undisturbed.commands:
        kills = round(SHARES[command[0]] * min(ROUND, KILLS - seed * ROUND))
        tried += kills
        tally.count("tried", kills)
        kill(undisturbed, command, root, kills, chance)
        ended = undisturbed.host.run(root, command)
        assert ended["code"] == 0, ended["errors"]
    assert not leftovers(root)
    assert contents(root) == undisturbed.contents
    tally.count("resumed", tried)


def kill(undisturbed: Undisturbed, command: list[str], root: Path, kills: int, chance: random.Random) -> None:
    """Kill a command some times in a row. Where it ends before its moment, it begins anew."""
    whole = undisturbed.runs[command[0]]
    before = root.with_name("before")
    root.mkdir(exist_ok=True)
    shutil.copytree(root, before)
    made: dict[str, int] = {}
    while kills:
        moment: dict[str, float] = {"event": chance.randint(1, whole["events"])}
        if chance.random() < 0.5:
            moment = {"seconds": chance.uniform(0, whole["seconds"])}
        run = undisturbed.host.run(root, command, **moment)
        if run["killed"]:
            kills -= 1
            now = shards(root)
            assert {name: now.get(name) for name in made} == made, "a finished shard was lost or made again"
            made = now
        else:
            assert run["code"] == 0, run["errors"]
            shutil.rmtree(root)
            shutil.copytree(before, root)
            made = {}
    shutil.rmtree(before)
