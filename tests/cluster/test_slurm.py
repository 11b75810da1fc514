"""Commands on a real Slurm: drivers and workers, what is lost, and the bytes of a run without it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cluster.jobs import Jobs, states
from pipeline.core.resources import Resources
from tests.cli.run import flags, mdcr
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.stale import stale_view
from tests.cluster.world import EMBED, SELECTION, SHARDS, World, whole
from tests.encode.tiny import save_bert

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ON = flags("--on slurm --nodes 4")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def world(slurm_host: SlurmHost, tmp_path: Path) -> World:
    return World(tmp_path / "slurm", pause=2)


def workers(world: World) -> list[str]:
    return [job for jobs in Jobs.all(world.root) if jobs.work for job in jobs.alive()]


def running(host: SlurmHost, world: World, units: int = 1) -> list[str]:
    host.until(lambda: world.units() >= units, f"{units} shards are finished", 90)
    return workers(world)


def ends(process: subprocess.Popen[str], code: int = 0, seconds: float = 240) -> str:
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == code, errors
    return output + errors


def settings(world: World, text: str) -> list[str]:
    path = world.root.parent / "slurm.toml"
    path.write_text(text)
    return ["--slurm", str(path)]


def check_finished(world: World, folder: Path) -> None:
    assert world.tables() == whole(folder)
    assert not world.leftovers()
    assert not workers(world)


LOSSES = """[slurm]
time = 1
mem = "900M"
setup = ['''
if mkdir {folder}/$SLURM_ARRAY_TASK_ID; then
    case $SLURM_ARRAY_TASK_ID in
        0) python3 -c "import time; taken = bytearray(1200 << 20); time.sleep(60)" ;;
        1) sleep 300 ;;
    esac
fi
''']
"""


def test_four_workers_make_the_bytes_of_one_process_though_all_are_lost(
    slurm_host: SlurmHost, world: World, tmp_path: Path
) -> None:
    world.env["STUB_PAUSE"] = "5"
    process = world.start("eval", *ON, *settings(world, LOSSES.format(folder=tmp_path)), *SELECTION)
    running(slurm_host, world)
    memory, limit, killed, cancelled = Jobs.all(world.root)[0].ids
    subprocess.run(["scancel", cancelled], check=True)
    slurm_host.end(killed)
    said = ends(process)
    for job, state in ((memory, "FAILED"), (limit, "TIMEOUT"), (killed, "FAILED"), (cancelled, "CANCELLED")):
        assert f"lost: job {job}: {state}" in said, said
    assert "exceeded memory limit" in next(world.root.glob(f"runs/jobs/*/{memory}_0_log.out")).read_text()
    check_finished(world, tmp_path / "whole")
    assert not Jobs.all(world.root)


def test_preempted_workers_and_those_of_a_lost_node_are_requeued(
    slurm_host: SlurmHost, world: World, tmp_path: Path
) -> None:
    process = world.start("embed", *ON, *EMBED)
    assert len(running(slurm_host, world)) == 4
    slurm_host.lose_node("n2")
    urgent = ["sbatch", "--partition=urgent", "--exclusive", f"--output={tmp_path}/urgent", "--wrap=sleep 2"]
    subprocess.run(urgent, check=True, capture_output=True)
    slurm_host.until((tmp_path / "urgent").exists, "it preempts", 30)
    slurm_host.start_node("n2")
    assert "lost:" not in ends(process)
    world.run("eval", *SELECTION)
    check_finished(world, tmp_path / "whole")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_ends_while_others_wait(
    slurm_host: SlurmHost, world: World, end: signal.Signals, tmp_path: Path
) -> None:
    first = world.start("embed", *ON, *EMBED)
    running(slurm_host, world)
    others = [world.start("embed", *words, *EMBED) for words in (ON, [])]  # one without Slurm
    time.sleep(3)
    first.send_signal(end)
    first.communicate(timeout=60)
    said = "".join(ends(process) for process in others)
    assert "another process is building" in said
    assert ("waiting for jobs that make the same units" in said) or end == signal.SIGTERM  # it cancels its workers
    assert ("jobs, " not in said) or end == signal.SIGTERM  # all units were being made
    world.run("eval", *SELECTION)
    check_finished(world, tmp_path / "whole")


def test_what_is_lost_every_time_is_named(slurm_host: SlurmHost, world: World) -> None:
    broken = """[slurm]\nsetup = ['case "$SLURM_ARRAY_TASK_ID" in 2|"") echo broken; exit 7; esac']\n"""
    said = ends(world.start("embed", *ON, *settings(world, broken), *EMBED), code=1)
    assert "mdcr: lost 3 times: 1 unit of " in said
    assert ", first vectors-" in said
    assert world.units() == SHARDS - 1
    shown = world.run("jobs").stdout
    assert f"{SHARDS - 1}/{SHARDS} units" in shown
    assert "FAILED (NonZeroExitCode): broken" in shown


def test_an_error_of_the_work_ends_the_driver_and_cancels_the_others(slurm_host: SlurmHost, world: World) -> None:
    world.env["STUB_LIMIT"] = "30"
    said = ends(world.start("embed", *ON, *EMBED), code=1)
    assert "the stub stops after 30 texts" in said
    slurm_host.until(lambda: not workers(world), "the others end", 30)
    assert world.units() < SHARDS


def test_files_that_are_seen_late_are_waited_for(slurm_host: SlurmHost, world: World, tmp_path: Path) -> None:
    world.env["STUB_PAUSE"] = "0"
    with stale_view(world.root / "indexes", attributes=5, listings=20) as hidden:
        said = world.run("embed", *ON, *EMBED).stderr
    assert hidden["stat"]
    assert said.count("jobs, ") == 1
    assert "lost" not in said
    world.run("eval", *SELECTION)
    check_finished(world, tmp_path / "whole")


SUBMITTED = f"""[slurm]
gpus_per_node = 1
partition = "gpu"
python = "unshare --mount --propagation private {sys.executable}"
setup = ["echo module loaded"]
[driver]
partition = "main"
"""


def test_submitted_by_make(slurm_host: SlurmHost, world: World) -> None:
    file = Path(settings(world, SUBMITTED)[1])
    dry = make_submit(world, file, DRY_RUN=1)
    assert "make embed" in dry.stdout
    assert "#SBATCH --gpus-per-node=1\n" in dry.stdout
    assert "#SBATCH --array=0-1%2\n" in dry.stdout
    assert "This node plans only" in dry.stderr
    assert not (world.root / "runs/jobs").exists()
    submitted = make_submit(world, file)
    assert submitted.returncode == 0, submitted.stderr
    assert "runs this command already" in make_submit(world, file).stderr
    running(slurm_host, world)
    slurm_host.until(lambda: shown(world)[1]["work"][0]["done"], "a finished shard is counted", 60)
    driver, embedding = shown(world)
    assert driver["states"][0]["state"] == "RUNNING"
    assert 0 < embedding["work"][0]["done"] <= SHARDS
    assert "module loaded" in Jobs(world.root / "runs/jobs" / embedding["jobs"]).log(workers(world)[0]).read_text()
    subprocess.run(["scancel", driver["states"][0]["job"]], check=True)
    slurm_host.until(lambda: not workers(world), "scancel of the driver cancels its workers", 30)
    cancelled = [job for group in shown(world) for job in group["states"]]
    assert not [job for job in cancelled if job["last"].startswith("submitit")]
    slurm_host.until(lambda: make_submit(world, file).returncode == 0, "no job is completing, and it is submitted", 60)
    slurm_host.until(lambda: workers(world), "it goes on", 60)
    (jobs,) = [jobs for jobs in Jobs.all(world.root) if not jobs.work]
    subprocess.run(["scontrol", "requeue", jobs.ids[-1]], check=True)
    completes(slurm_host, jobs)
    assert world.units() == 0
    assert not world.leftovers()


@pytest.mark.parametrize(
    ("words", "report"),
    [
        ("study pool_size --model lsa --set sizes=300 --set queries=8 --set samples=1", "pool_size"),
        ("benchmark --set fields=Medicine --set queries=6 --set size=200", "mdcr"),
    ],
)
def test_submitted_studies(slurm_host: SlurmHost, own: Path, words: str, report: str) -> None:
    result = mdcr(own, "submit", *words.split(), "--corpus", "tiny", "--nodes", "2")
    assert "is the driver" in result.stderr
    (jobs,) = Jobs.all(own)
    completes(slurm_host, jobs)
    assert list(own.glob(f"runs/reports/{report}/index.html"))


def shown(world: World) -> list[dict[str, Any]]:
    """Return the groups of jobs that ``mdcr jobs`` shows, the driver first."""
    return sorted(json.loads(world.run("jobs", "--json").stdout)["jobs"], key=lambda group: not group["command"])


def completes(host: SlurmHost, jobs: Jobs) -> None:
    host.until(lambda: not jobs.alive(), "the driver ends", 240)
    assert states(jobs.ids)[jobs.ids[-1]] == "COMPLETED", jobs.log(jobs.ids[-1]).read_text()


def make_submit(world: World, file: Path, **more: object) -> subprocess.CompletedProcess[str]:
    """Run ``make submit`` with the environment this test runs in."""
    installed = world.root.parent / "venv/.installed"
    installed.parent.mkdir(exist_ok=True)
    installed.touch()
    given = {
        "STAGE": "embed", "NODES": 2, "SLURM": file, "CORPUS": "tiny", "MODEL": "stub", "SIZE": "all", "QUERIES": 8,
        "MIN_ABSTRACT_CHARS": 1, "ROOT": world.root, "VENV": installed.parent, "BIN": Path(sys.executable).parent,
        **more,
    }  # fmt: skip
    command = ["make", "-s", "submit", *(f"{name}={value}" for name, value in given.items())]
    return subprocess.run(command, cwd=REPOSITORY, env=world.env, capture_output=True, text=True, check=False)


def test_a_job_plans_by_what_slurm_gives_it(slurm_host: SlurmHost, tmp_path: Path) -> None:
    (job,) = Jobs(tmp_path / "jobs").submit({"mem": "1000M", "cpus_per_task": 1}, {}, Resources.of, [None])
    slurm_host.until(job.paths.result_pickle.exists, "it ends", 60)
    assert job.result() == Resources(memory=500 * 2**20, workers=1, device="auto")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("partition = 'gpus'", "Slurm refuses the job: invalid partition specified: gpus"),
        ("partitions = 'gpu'", "Unavailable parameter(s): ['partitions'] Valid parameters are: - account"),
        ("setup = 'module load cuda'", "setup = 'module load cuda' must be a list"),
        ("gres = 'gpu:h1:1'", "Slurm refuses the job: "),
    ],
)
def test_refusals(world: World, table: str, said: str) -> None:
    refused = world.run("embed", *ON, *settings(world, f"[slurm]\n{table}\n"), *EMBED, code=2)
    assert said in refused.stderr


TRAINING = (
    "draw={until=2012, queries=8}", "validation={year=2014, size=50, queries=4}", "max_length=16", "micro_batch=8",
    "batch=8", "precision=float32",
)  # fmt: skip


def test_a_job_trains_what_a_local_run_does(slurm_host: SlurmHost, world: World, tmp_path: Path) -> None:
    save_bert(tmp_path / "tiny", positions=64)
    changes = [word for value in (f"base={tmp_path / 'tiny'}", *TRAINING) for word in ("--set", value)]
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


def test_a_job_that_finds_no_gpu_stops_with_one_line(slurm_host: SlurmHost, world: World, tmp_path: Path) -> None:
    save_bert(tmp_path / "tiny", positions=64)
    gpu = flags("--gpus 1 --partition gpu")  # /dev/null is its device
    said = ends(world.start("embed", *EMBED, "--model", str(tmp_path / "tiny"), "--on", "slurm", *gpu), code=2)
    assert said.splitlines()[-1].startswith("mdcr: torch cannot use cuda: it sees 0 GPUs. Choose --device=cpu")
