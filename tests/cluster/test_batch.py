"""The chain by a real Slurm: arrays, lost slices, the dependent job, and the bytes of a local run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cluster.batch import Batch
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import EMBED, SELECTION, SHARDS, World

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return what one process on one machine makes of the chain."""
    world = World(tmp_path_factory.mktemp("local"))
    world.run("eval", *SELECTION)
    found = world.artifacts()
    assert len(found) == SHARDS + 3  # the vectors and their rows, a ranking, scores
    return found


def submit(host: SlurmHost, world: World, *words: str) -> Batch:
    world.env |= {"SLURM_CONF": str(host.config)}
    world.run("submit", *words)
    (batch,) = Batch.all(world.root)
    return batch


def latest(batch: Batch) -> Batch:
    return Batch.read(batch.root, batch.folder)


def jobs(world: World) -> dict[str, Any]:
    (found,) = json.loads(world.run("jobs", "--json"))["batches"]
    assert isinstance(found, dict)
    return found


def finish(host: SlurmHost, batch: Batch, seconds: float = 60) -> Batch:
    host.until(lambda: latest(batch).finished or _given_up(host, batch), "the batch ends", seconds)
    return latest(batch)


def _given_up(host: SlurmHost, batch: Batch) -> bool:
    time.sleep(0.3)
    return not latest(batch).alive() and not latest(batch).finished


def test_lost_slices_are_submitted_again_and_the_bytes_are_the_same(
    slurm_host: SlurmHost, local: dict[str, bytes], tmp_path: Path
) -> None:
    world = World(tmp_path, pause=0.5)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[slurm]\npartition = "gpu"\ncollect_partition = "main"\nsetup = ["export FROM_RECIPE=1"]\n')
    words = ("--stage", "eval", "--nodes", "4", "--partition", "main", "--recipe", str(recipe), *SELECTION)
    batch = submit(slurm_host, world, *words)
    array = batch.rounds[0].arrays["embed"]
    slurm_host.until(lambda: world.units() >= 1, "a shard is finished", 30)
    for task in (0, 1):
        slurm_host.until(lambda task=task: slurm_host.payload(array, task), f"slice {task} runs", 20)
    subprocess.run(["scancel", f"{array}_0"], check=True, env=slurm_host.env)
    process = slurm_host.payload(array, 1)
    assert process
    os.kill(process, signal.SIGKILL)
    running = jobs(world)
    assert running["work"][0]["units"] == SHARDS
    assert 0 < running["work"][0]["done"] < SHARDS
    assert running["work"][0]["papers_per_second"] > 0
    assert any(f"{array}_1 FAILED (signal 9)" in failure for failure in running["failures"])
    assert "jobs of eval-" in world.run("submit", *words, code=2)

    ended = finish(slurm_host, batch)
    assert ended.finished, [log.read_text() for log in ended.logs.iterdir()]
    assert [(list(each.arrays), each.attempt) for each in ended.rounds] == [
        (["embed"], 1),
        (["embed"], 2),
        (["search"], 1),
    ]
    assert world.artifacts() == local
    assert not world.leftovers()
    assert "all published, in 3 round(s)" in world.run("jobs")
    (segment,) = (world.root / "indexes/vectors").glob("*/[!.]*")
    script = (segment / "job.sh").read_text()
    assert "#SBATCH --requeue" in script
    assert "#SBATCH --partition=main" in script
    assert "export FROM_RECIPE=1" in script
    assert '--slice "${SLURM_ARRAY_TASK_ID}/4"' in script
    assert "MAP" in (ended.logs / f"{ended.rounds[-1].collect}.log").read_text()
    world.run("submit", *words)  # nothing is missing: nothing is submitted
    assert len(latest(batch).rounds) == 3


def test_what_fails_every_time_is_given_up_and_shown(slurm_host: SlurmHost, tmp_path: Path) -> None:
    world = World(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[slurm]\npartition = "main"\nattempts = 2\n'
        'setup = ["""[ "${SLURM_ARRAY_TASK_ID:-0}" != 2 ] || { echo the GPU is broken >&2; exit 7; }"""]\n'
    )
    words = ("--stage", "embed", "--nodes", "3", "--recipe", str(recipe), *EMBED)
    batch = submit(slurm_host, world, *words)
    ended = finish(slurm_host, batch)
    assert not ended.finished
    assert [each.attempt for each in ended.rounds] == [1, 2]
    shown = world.run("jobs")
    assert f"{SHARDS * 2 // 3}/{SHARDS} units" in shown
    assert f"{ended.rounds[-1].arrays['embed']}_2 FAILED (exit code 7)" in shown
    assert "the GPU is broken" in shown
    assert "units are missing after 2 attempts" in shown

    recipe.write_text('[slurm]\npartition = "main"\n')  # mended: the rest alone is submitted
    world.run("submit", *words)
    ended = finish(slurm_host, batch)
    assert ended.finished
    assert len(ended.rounds) == 3
    assert not (ended.logs / f"{ended.rounds[-1].arrays['embed']}_0.log").exists()
    assert (ended.logs / f"{ended.rounds[-1].arrays['embed']}_2.log").exists()
    assert len(world.artifacts()) == SHARDS + 1
