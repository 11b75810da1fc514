"""The chain by a real Slurm: arrays, jobs of what has no slices, lost jobs, and the bytes of a local run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cluster.batch import Batch, Round
from pipeline.core.workspace import JOBS
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import EMBED, SHARDS, World

REPOSITORY = Path(__file__).parents[2]


def latest(batch: Batch) -> Batch:
    return Batch.read(batch.root, batch.folder)


def jobs(world: World) -> dict[str, Any]:
    (batch,) = json.loads(world.run("jobs", "--json").stdout)["batches"]
    assert isinstance(batch, dict)
    return batch


def finish(host: SlurmHost, batch: Batch, seconds: float = 240) -> Batch:
    def given_up() -> bool:
        time.sleep(0.3)
        return not latest(batch).alive() and not latest(batch).finished

    host.until(lambda: latest(batch).finished or given_up(), "the batch ends", seconds)
    return latest(batch)


def make_submit(world: World, recipe: Path) -> subprocess.CompletedProcess[str]:
    """Run ``make submit`` with the environment this test runs in."""
    installed = world.root.parent / "venv/.installed"
    installed.parent.mkdir(exist_ok=True)
    installed.touch()
    given = {
        "STAGE": "eval", "NODES": 3, "GPUS": 1, "PARTITION": "gpu", "TIME": "00:05:00", "RECIPE": recipe,
        "CORPUS": "tiny", "MODEL": "bm25,stub", "SIZE": "all", "QUERIES": 8, "MEASURES": "map", "ROOT": world.root,
        "VENV": installed.parent, "BIN": Path(sys.executable).parent,
    }  # fmt: skip
    command = ["make", "-s", "submit", *(f"{name}={value}" for name, value in given.items())]
    return subprocess.run(command, cwd=REPOSITORY, env=world.env, capture_output=True, text=True, check=False)


@pytest.mark.java
@pytest.mark.slurm
@pytest.mark.slow
def test_lost_jobs_are_submitted_again_and_the_bytes_are_those_of_a_local_run(
    slurm_host: SlurmHost, tmp_path: Path
) -> None:
    """Encoders by arrays of slices on the GPU partition, BM25 by jobs of its own; one slice of three is not lost."""
    chosen = ["--corpus", "tiny", "--model", "bm25,stub", "--size", "all", "--queries", "8", "--measures", "map"]
    local, world = World(tmp_path / "local"), World(tmp_path / "slurm", pause=0.2)
    local.run("eval", *chosen)
    world.env |= {"SLURM_CONF": str(slurm_host.config)}
    recipe = tmp_path / "recipe.toml"
    waiting = tmp_path / "held"
    waiting.touch()
    hold = f"case $SLURM_JOB_NAME in index*) while [ -e {waiting} ]; do sleep 0.1; done;; esac"
    recipe.write_text(
        "[slurm]\npartition = 'nowhere'\ncollect_partition = 'main'\nimage = '/images/mdcr.sif'\n"
        "launch = 'env IMAGE={image}'\n"
        f"setup = ['export PATH={Path(sys.executable).parent}:$PATH', 'echo here: $SLURM_JOB_PARTITION', '{hold}']\n"
    )
    submitted = make_submit(world, recipe)
    assert submitted.returncode == 0, submitted.stderr
    (batch,) = Batch.all(world.root)
    (first,) = batch.rounds
    assert (list(first.arrays), list(first.whole_jobs)) == (["embed"], ["index", "search"])
    show = ["scontrol", "show", "job", str(first.whole_jobs["search"])]
    shown = subprocess.run(show, env=slurm_host.env, capture_output=True, text=True, check=True).stdout
    assert f"Dependency=afterany:{first.whole_jobs['index']}" in shown

    array = first.arrays["embed"]
    slurm_host.until(lambda: world.units() >= 1, "a shard is finished", 90)
    subprocess.run(["scancel", f"{array}_0", str(first.whole_jobs["index"])], check=True, env=slurm_host.env)
    waiting.unlink()
    slurm_host.until(lambda: slurm_host.payload(array, 1), "slice 1 runs", 60)
    os.kill(slurm_host.payload(array, 1) or 0, signal.SIGKILL)
    running = jobs(world)
    (embedding,) = [work for work in running["work"] if work["units"] == SHARDS]
    assert 0 < embedding["done"] < SHARDS
    assert embedding["papers_per_second"] > 0
    assert any(f"{array}_1 FAILED (signal 9)" in failure for failure in running["failures"])
    assert list(running["whole"].values()) == [False, False]
    assert "jobs of eval-" in make_submit(world, recipe).stderr
    refused = world.run("eval", *chosen, code=2).stderr
    assert f"jobs of {batch.folder.name} are making" in refused
    assert "mdcr jobs" in refused
    stage = ["submit", "--stage", "embed", *chosen[:-2]]
    assert "are making indexes/vectors" in world.run(*stage, code=2).stderr

    ended = finish(slurm_host, batch)
    assert ended.finished, [log.read_text() for log in ended.logs.iterdir()]
    assert [(list(turn.arrays), list(turn.whole_jobs), turn.attempt) for turn in ended.rounds] == [
        (["embed"], ["index", "search"], 1),
        (["embed"], ["index", "search"], 2),
        (["search"], [], 1),
    ]
    assert world.tables() == local.tables()
    assert any(name.startswith("indexes/terms") for name in world.tables())
    assert not world.leftovers()
    assert "0 artifacts made" in (ended.logs / f"{first.whole_jobs['search']}.log").read_text()
    assert "here: gpu" in (ended.logs / f"{array}_2.log").read_text()
    assert "here: main" in (ended.logs / f"{ended.rounds[1].whole_jobs['index']}.log").read_text()
    table = ended.logs / f"{ended.rounds[-1].collect}.log"
    slurm_host.until(lambda: "MAP" in table.read_text(), "the last job prints the table", 60)
    (segment,) = (world.root / "indexes/vectors").glob("*/[!.]*/job.sh")
    directives = ("--requeue", "--partition=gpu", "--gres=gpu:1", "--time=00:05:00")
    assert all(f"#SBATCH {directive}\n" in segment.read_text() for directive in directives)
    assert '--slice "${SLURM_ARRAY_TASK_ID}/3"' in segment.read_text()
    (terms,) = (world.root / "indexes/terms").glob("*/[!.]*/job.sh")
    assert "exec env IMAGE=/images/mdcr.sif mdcr index" in terms.read_text()
    assert "--gres" not in terms.read_text()
    assert f"all published, in 3 round(s); the last log: {table}" in world.run("jobs").stdout
    world.run("eval", *chosen)  # nothing is in the way of a local run any more
    assert make_submit(world, recipe).returncode == 0  # nothing is missing: nothing is submitted
    assert len(latest(batch).rounds) == 3


@pytest.mark.slurm
@pytest.mark.slow
def test_what_fails_every_time_is_given_up_and_shown(slurm_host: SlurmHost, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.env |= {"SLURM_CONF": str(slurm_host.config)}
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[slurm]\npartition = "main"\nattempts = 2\n'
        'setup = ["""[ "${SLURM_ARRAY_TASK_ID:-0}" != 2 ] || { echo the GPU is broken >&2; exit 7; }"""]\n'
    )
    words = ("--stage", "embed", "--nodes", "3", "--recipe", str(recipe), *EMBED)
    world.run("submit", *words)
    (batch,) = Batch.all(world.root)
    ended = finish(slurm_host, batch)
    assert not ended.finished
    assert [turn.attempt for turn in ended.rounds] == [1, 2]
    shown = world.run("jobs").stdout
    assert f"{SHARDS * 2 // 3}/{SHARDS} units" in shown
    assert f"{ended.rounds[-1].arrays['embed']}_2 FAILED (exit code 7)" in shown
    assert "the GPU is broken" in shown
    assert "units are missing after 2 attempts" in shown
    log = (ended.logs / f"{ended.rounds[-1].collect}.log").read_text()
    assert "    the GPU is broken\n" in log
    assert "\\n" not in log

    recipe.write_text('[slurm]\npartition = "main"\n')  # mended: the rest alone is submitted
    world.run("submit", *words)
    ended = finish(slurm_host, batch)
    assert ended.finished
    assert len(ended.rounds) == 3
    assert not (ended.logs / f"{ended.rounds[-1].arrays['embed']}_0.log").exists()
    assert (ended.logs / f"{ended.rounds[-1].arrays['embed']}_2.log").exists()


def record(world: World, folder: str = "indexes/vectors/none/none", *, finished: bool = False) -> None:
    """Write the record of a batch that is making a folder by a job that no Slurm knows."""
    partial = Path(folder)
    work = {partial.with_name(f".{partial.name}.partial").as_posix(): {"vectors-00000.arrow": 1}}
    batch = Batch(world.root / JOBS / "embed-0123abcd", world.root, ["mdcr", "submit"], finished=finished)
    batch.rounds.append(Round(0.0, 1, 1, {"embed": 999_999}, 999_998, work, dict.fromkeys(work, "embed")))
    batch.write()


def test_where_slurm_cannot_be_asked_a_local_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.env |= {"PATH": str(tmp_path)}
    record(world)
    world.run("embed", *EMBED, "--dry-run")
    assert "embed-0123abcd" not in world.run("embed", *EMBED).stderr  # it makes something else
    (made,) = (world.root / "indexes/vectors").glob("*/[!.]*")
    made.rename(tmp_path / "elsewhere")
    folder = made.relative_to(world.root).as_posix()
    record(world, folder)
    warning = "its jobs may still be running"
    assert warning in world.run("embed", *EMBED).stderr
    assert warning not in world.run("embed", *EMBED).stderr  # nothing is missing
    made.rename(tmp_path / "again")
    record(world, folder, finished=True)
    assert warning not in world.run("embed", *EMBED).stderr
