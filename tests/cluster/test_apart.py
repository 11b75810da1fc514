"""What has no slices beside what has: BM25 by jobs of its own, and local commands that keep away from either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.cluster.batch import Batch, Round
from pipeline.core.workspace import JOBS
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.test_batch import finish, jobs, latest
from tests.cluster.world import EMBED, World
from tests.encode.stub import stub

__all__ = ["stub"]

SELECTION = {"CORPUS": "tiny", "MODEL": "bm25,stub", "SIZE": "all", "QUERIES": "8", "MEASURES": "map"}
REPOSITORY = Path(__file__).parents[2]


def words(stage: str) -> list[str]:
    """Return the selection as options of ``mdcr``."""
    return [stage, *(word for name, value in SELECTION.items() for word in (f"--{name.lower()}", value))]


def make_submit(world: World, **variables: str) -> None:
    """Run ``make submit`` with the environment this test runs in."""
    installed = world.root.parent / "venv/.installed"
    installed.parent.mkdir(exist_ok=True)
    installed.touch()
    given = {**SELECTION, **variables, "ROOT": str(world.root)}
    settings = [f"VENV={installed.parent}", f"BIN={Path(sys.executable).parent}"]
    command = ["make", "-s", "submit", *settings, *(f"{name}={value}" for name, value in given.items())]
    done = subprocess.run(command, cwd=REPOSITORY, env=world.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.xdist_group("slurm")
def test_index_and_search_of_bm25_are_jobs_of_their_own(slurm_host: SlurmHost, tmp_path: Path) -> None:
    local, world = World(tmp_path / "local"), World(tmp_path / "slurm", pause=0.3)
    local.run(*words("eval"))
    world.env |= {"SLURM_CONF": str(slurm_host.config)}
    recipe = tmp_path / "recipe.toml"
    path = f"{Path(sys.executable).parent}{os.pathsep}$PATH"
    recipe.write_text(
        f"[slurm]\ncollect_partition = 'main'\nimage = '/images/mdcr.sif'\nlaunch = 'env IMAGE={{image}}'\n"
        f"setup = ['export PATH={path}', 'echo here: $SLURM_JOB_PARTITION']\n"
    )
    asked = {"STAGE": "eval", "NODES": "2", "GPUS": "1", "PARTITION": "gpu", "TIME": "00:05:00", "RECIPE": str(recipe)}
    make_submit(world, **asked)
    (batch,) = Batch.all(world.root)
    (first,) = batch.rounds
    assert (list(first.arrays), list(first.whole_jobs)) == (["embed"], ["index", "search"])
    shown = subprocess.run(
        ["scontrol", "show", "job", str(first.whole_jobs["search"])],
        env=slurm_host.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"Dependency=afterany:{first.whole_jobs['index']}" in shown.stdout
    subprocess.run(["scancel", str(first.whole_jobs["index"])], check=True, env=slurm_host.env)

    refused = world.run(*words("eval"), code=2)
    assert f"jobs of {batch.folder.name} are making" in refused
    assert "mdcr jobs" in refused
    assert "are making indexes/vectors" in world.run("submit", "--stage", "embed", *words("embed")[1:-2], code=2)
    assert list(jobs(world)["whole"].values()) == [False, False]

    ended = finish(slurm_host, batch, 90)
    assert ended.finished, [log.read_text() for log in ended.logs.iterdir()]
    assert [(list(each.arrays), list(each.whole_jobs), each.attempt) for each in ended.rounds] == [
        (["embed"], ["index", "search"], 1),
        (["search"], ["index", "search"], 1),
    ]
    assert "0 artifacts made" in (ended.logs / f"{first.whole_jobs['search']}.log").read_text()
    assert world.artifacts() == local.artifacts()
    assert any(name.startswith("indexes/terms") for name in world.artifacts())
    assert not world.leftovers()
    (terms,) = (world.root / "indexes/terms").glob("*/[!.]*/job.sh")
    assert "exec env IMAGE=/images/mdcr.sif mdcr index" in terms.read_text()
    assert "--gres" not in terms.read_text()
    assert "here: main" in (ended.logs / f"{ended.rounds[-1].whole_jobs['index']}.log").read_text()
    assert "here: gpu" in (ended.logs / f"{first.arrays['embed']}_0.log").read_text()
    world.run(*words("eval"))  # nothing is in the way of a local run any more
    assert len(latest(batch).rounds) == 2


def submitted(world: World, *, finished: bool = False, folder: str = "indexes/vectors/none/none") -> None:
    """Write the record of a batch that is making a folder by a job that no Slurm knows."""
    partial = Path(folder)
    work = {partial.with_name(f".{partial.name}.partial").as_posix(): {"vectors-00000.arrow": 1}}
    batch = Batch(world.root / JOBS / "embed-0123abcd", world.root, ["mdcr", "submit"], finished=finished)
    batch.rounds.append(Round(0.0, 1, 1, {"embed": 999_999}, 999_998, work, dict.fromkeys(work, "embed")))
    batch.write()


def test_where_slurm_cannot_be_asked_a_local_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stub: None
) -> None:
    world = World(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    run = ["embed", *EMBED, "--root", str(world.root)]
    submitted(world)
    assert main([*run, "--dry-run"]) == 0
    assert main(run) == 0
    assert "embed-0123abcd" not in capsys.readouterr().err  # it makes something else
    (made,) = (world.root / "indexes/vectors").glob("*/[!.]*")
    made.rename(tmp_path / "elsewhere")
    submitted(world, folder=made.relative_to(world.root).as_posix())
    assert main(run) == 0
    assert "whether its jobs have ended cannot be seen" in capsys.readouterr().err
    assert main(run) == 0
    assert "cannot be seen" not in capsys.readouterr().err  # nothing is missing
    made.rename(tmp_path / "again")
    submitted(world, folder=made.relative_to(world.root).as_posix(), finished=True)
    assert main(run) == 0
    assert "cannot be seen" not in capsys.readouterr().err
