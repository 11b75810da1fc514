"""A training by a real Slurm: one job with the GPU that makes its own triplets, and one that publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.cluster.batch import Batch
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import World
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
    asked = ["--stage", "train", "--train", "train_past", *chosen, "--gpus", "1", "--partition", "gpu"]
    planned = world.run("submit", *asked, "--dry-run").stdout.splitlines()
    assert planned[-1].split()[:2] == ["make", "train"]
    made = world.start("submit", *asked)
    assert made.wait() == 0, made.communicate()
    (batch,) = Batch.all(world.root)
    (first,) = batch.rounds
    assert (list(first.arrays), list(first.whole_jobs)) == ([], ["train"])
    script = (batch.folder / "train-whole.sh").read_text()
    assert "#SBATCH --gres=gpu:1\n" in script
    assert "--slice" not in script
    assert "jobs of train-" in world.run("train", "train_past", *chosen, code=2).stderr

    def ended() -> bool:
        return not Batch.read(batch.root, batch.folder).alive()

    slurm_host.until(ended, "the jobs end", 120)
    assert Batch.read(batch.root, batch.folder).finished, [log.read_text() for log in batch.logs.iterdir()]
    log = (batch.logs / f"{first.whole_jobs['train']}.log").read_text()
    assert "As an entry of SciRepEval's formats:\n[train_past]\nclassification = " in log
    (folder,) = [line for line in log.splitlines() if line.endswith("/train_past") and "=" not in line]
    assert (Path(folder) / "modules.json").is_file()
    assert (Path(folder).parent / "job.sh").read_text() == script
    again = world.run("train", "train_past", *chosen, "--json")
    assert json.loads(again.stdout)["model"] == folder
