"""A training by a real Slurm: one job with the GPU, which makes its own triplets and stops without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.cluster.jobs import Jobs, states
from tests.cli.run import flags
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import EMBED, World
from tests.encode.tiny import save_bert

SETTINGS = (
    "draw={until=2012, queries=8}", "validation={year=2014, size=50, queries=4}", "max_length=16", "micro_batch=8",
    "batch=8", "precision=float32",
)  # fmt: skip


@pytest.mark.slurm
@pytest.mark.slow
def test_a_job_trains_what_a_local_run_does(slurm_host: SlurmHost, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.env |= {"SLURM_CONF": str(slurm_host.config)}
    save_bert(tmp_path / "tiny", positions=64)
    changes = [word for value in (f"base={tmp_path / 'tiny'}", *SETTINGS) for word in ("--set", value)]
    chosen = ["--corpus", "tiny", *changes]
    submitted = world.start("submit", "train", "train_past", *chosen)
    assert submitted.wait() == 0, submitted.communicate()
    (jobs,) = Jobs.all(world.root)
    slurm_host.until(lambda: not jobs.alive(), "the job ends", 120)
    assert states(jobs.ids)[jobs.ids[0]] == "COMPLETED"
    log = jobs.log(jobs.ids[0]).read_text()
    assert "As an entry of SciRepEval's formats:\n[train_past]\nclassification = " in log
    (folder,) = [line for line in log.splitlines() if line.endswith("/train_past") and "=" not in line]
    assert (Path(folder) / "modules.json").is_file()
    again = world.run("train", "train_past", *chosen, "--json")
    assert json.loads(again.stdout)["model"] == folder


@pytest.mark.slurm
@pytest.mark.slow
def test_a_job_that_finds_no_gpu_stops_with_one_line(slurm_host: SlurmHost, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.env |= {"SLURM_CONF": str(slurm_host.config)}
    save_bert(tmp_path / "tiny", positions=64)
    gpu = flags("--gpus 1 --partition gpu")  # /dev/null is its device
    process = world.start("embed", *EMBED, "--model", str(tmp_path / "tiny"), "--on", "slurm", *gpu)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.splitlines()[-1] == "mdcr: device 'cuda' is not there: 0 CUDA devices. Choose cpu."
