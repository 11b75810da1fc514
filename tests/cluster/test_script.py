from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.cluster import slurm
from pipeline.cluster.script import SlurmSettings, job_script
from pipeline.core.errors import InputError

FULL = """\
[slurm]
partition = "gpu"
collect_partition = "cpu"
time = "04:00:00"
nodes = 8
gpus = 2
gpu_type = "a100"
cpus = 16
memory = "64G"
account = "my lab"
qos = "long"
constraint = "a100&nvme"
modules = ["cuda/12.4"]
setup = ["source /opt/env/bin/activate"]
image = "/images/mdcr 1.sif"
extra = ["--exclude=node7"]
"""

GOLDEN = """\
#!/bin/bash
#SBATCH --job-name=embed-scincl
#SBATCH --output="/scratch/my runs/50%%/%A_%a.log"
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --partition=gpu
#SBATCH --time=04:00:00
#SBATCH --gres=gpu:a100:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --account="my lab"
#SBATCH --qos=long
#SBATCH --constraint="a100&nvme"
#SBATCH --exclude=node7

set -euo pipefail
echo "$(date -u +%FT%TZ) $(hostname): job ${SLURM_JOB_ID} task ${SLURM_ARRAY_TASK_ID:-none}\
 start $((${SLURM_RESTART_COUNT:-0} + 1)), ${SLURM_CPUS_ON_NODE:-?} cores, GPUs ${CUDA_VISIBLE_DEVICES:-none}"
set +u
module load cuda/12.4
source /opt/env/bin/activate
set -u

exec apptainer exec --nv '/images/mdcr 1.sif' mdcr embed \\
  --corpus s2orc \\
  --model bm25:k1=1.2,b=0.75 'it'"'"'s' \\
  --slice "${SLURM_ARRAY_TASK_ID}/8"
"""


@pytest.fixture
def settings(tmp_path: Path) -> SlurmSettings:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(FULL)
    return SlurmSettings.read(recipe)


def test_the_script_is_this_text(settings: SlurmSettings) -> None:
    command = ["mdcr", "embed", "--corpus", "s2orc", "--model", "bm25:k1=1.2,b=0.75", "it's"]
    assert job_script(settings, command, name="embed scincl", logs=Path("/scratch/my runs/50%"), slices=8) == GOLDEN


def test_a_single_job_asks_for_nothing_it_was_not_told() -> None:
    text = job_script(SlurmSettings(requeue=False), ["mdcr", "collect"], name="collect", logs=Path("/logs"))
    asked = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked == ["job-name=collect", "output=/logs/%j.log", "open-mode=append", "nodes=1", "ntasks=1", "no-requeue"]
    assert text.endswith("\nexec mdcr collect\n")


def test_the_collector_needs_no_gpu(settings: SlurmSettings) -> None:
    collector = settings.collector()
    assert (collector.partition, collector.gpus, collector.nodes, collector.account) == ("cpu", 0, 1, "my lab")


def test_the_shell_takes_the_words_as_they_were_given(tmp_path: Path) -> None:
    words = ["a b", "--c=$HOME", "it's", '"', "`d`", "\\", "*", "", "é", "--slice"]
    settings = SlurmSettings(setup=("export UNSET_IS_FINE=$NO_SUCH_VARIABLE",))
    script = tmp_path / "job.sh"
    script.write_text(job_script(settings, ["printf", "%s\\n", *words], name="x", logs=tmp_path, slices=3))
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "2"}
    output = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[1:] == [*words, "--slice", "2/3"]


def test_a_failing_setup_line_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(job_script(SlurmSettings(setup=("false",)), ["touch", "made"], name="x", logs=tmp_path))
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    assert subprocess.run(["bash", str(script)], env=env, cwd=tmp_path, check=False).returncode == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b'[slurm]\npartitions = "gpu"', "no setting 'partitions'. Did you mean 'partition'"),
        (b'[slurm]\ngpus = "2"', "gpus = '2' is no whole number"),
        (b"[slurm]\nnodes = 0", "at least 1"),
        (b"[slurm]\ncpus = -1", "cpus = -1 is negative"),
        (b'[slurm]\nmodules = "cuda"', "modules = 'cuda' is no list of strings"),
        (b'[slurm]\ntime = "4h"', "time = '4h' is not understood"),
        (b'[slurm]\nmemory = "64 GB"', "memory = '64 GB' is not understood"),
        (b'[slurm]\naccount = "a\\nrm -r"', "more than one line"),
        (b'[slurm]\nimage = "x.sif"\nlaunch = "docker run"', "does not use the image"),
        (b"[Slurm]\nnodes = 4\n", "has a table 'Slurm', which is unknown. Did you mean 'slurm'"),
        (b"slurm = 3", "is not a table"),
        (b"[slurm", "is not TOML"),
        (b"[slurm]\npartition = '\xff'\n", "is not TOML"),
        pytest.param(b"[slurm]\nnodes = " + b"9" * 5_000, "is not TOML", id="5,000 digits"),
    ],
)
def test_bad_settings(tmp_path: Path, table: bytes, message: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes(table)
    with pytest.raises(InputError, match=message):
        SlurmSettings.read(recipe)


def test_a_recipe_may_have_no_table_but_must_be_a_file(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("# the defaults\n")
    assert SlurmSettings.read(recipe) == SlurmSettings()
    for path, message in ((tmp_path / "none.toml", "there is no recipe"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=message):
            SlurmSettings.read(path)
    for value in ("04:00:00", "2-12:00:00", "90", "30:00", "1-0"):  # Slurm's notations of time
        assert SlurmSettings(time=value).time == value


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not slurm.available()
    with pytest.raises(InputError, match="sbatch is not on this machine. Run this on a login node"):
        slurm.submit(tmp_path / "job.sh")
