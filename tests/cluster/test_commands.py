"""The words of ``mdcr submit``, the settings of jobs, and slices made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cluster.jobs import Jobs, finished
from pipeline.cluster.settings import SlurmSettings
from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.workspace import JOBS
from tests.cli.run import flags, mdcr, one_line_error
from tests.cluster.world import EMBED, World


def test_settings_of_worker_and_driver(tmp_path: Path) -> None:
    path = tmp_path / "slurm.toml"
    path.write_text(
        "[slurm]\nnodes = 8\ngpus_per_node = 1\naccount = 'lab'\ntime = 60\n[driver]\ntime = 600\nmem = '8G'\n"
    )
    settings = SlurmSettings.read(path, nodes=2, partition="gpu", time=None, gpus=None)
    assert (settings.nodes, settings.gpus) == (2, True)
    assert settings.worker == {"gpus_per_node": 1, "account": "lab", "time": 60, "partition": "gpu"}
    assert settings.driver == {"cpus_per_task": 1, "account": "lab", "partition": "gpu", "time": 600, "mem": "8G"}
    assert SlurmSettings.read() == SlurmSettings(1, {}, {"cpus_per_task": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[Slurm]\nnodes = 4\n", "has a table 'Slurm', which is unknown. Did you mean 'slurm'"),
        (b"[slurm]\nnodes = 0", "--nodes must be a whole number of at least 1"),
        (b"slurm = 3", "is not a table"),
        (b"[slurm", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_bad_settings(tmp_path: Path, text: bytes | None, message: str) -> None:
    path = tmp_path / "slurm.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match=message):
        SlurmSettings.read(path)


def test_jobs_that_wait_are_not_finished() -> None:
    assert not finished("PENDING (Resources)")
    assert finished("TIMEOUT (None)")


def test_where_slurm_cannot_be_asked_a_local_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert "must go with --on=slurm" in world.run("embed", *EMBED, "--nodes", "2", code=2).stderr
    world.run("embed", *EMBED)
    (made,) = (manifest.parent for manifest in (world.root / "indexes/vectors").glob("*/*/manifest.json"))
    (made / "manifest.json").unlink()
    made.rename(made.with_name(f".{made.name}.partial"))
    (work,) = (world.root / "indexes/vectors").glob("*/.*.partial")
    jobs = Jobs(world.root / JOBS / "embedding-0123abcd")
    jobs.folder.mkdir(parents=True)
    (jobs.folder / "999999_submitted.pkl").touch()
    files.write_text(jobs.folder / "record.json", f'{{"work": "{work}"}}')
    world.env |= {"PATH": str(tmp_path)}
    assert "unknown ([Errno 2] No such file or directory: 'squeue')" in world.run("jobs").stdout
    unknown = "jobs of embedding-0123abcd may still make the same units: look on a login node"
    assert unknown in world.run("embed", *EMBED).stderr
    assert unknown not in world.run("embed", *EMBED).stderr  # nothing is missing


def test_options_are_written_in_full_on_a_machine_with_slurm(tmp_path: Path) -> None:
    World(tmp_path)
    root = tmp_path / "workspace"
    refused = mdcr(root, "submit", "embed", "--measures", "map", *EMBED)
    assert "mdcr embed has no option --measures" in one_line_error(refused)
    result = mdcr(root, "submit", "embed", *flags("--corpus tiny --model lsa"), env={"PATH": str(tmp_path)})
    assert "srun is not on this machine. Run this on a login node" in result.stderr
