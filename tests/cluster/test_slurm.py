"""Commands on a real Slurm: drivers and workers, what is lost, and the bytes of a run without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cluster.jobs import Jobs, State, cancel, states
from tests.cli.run import flags
from tests.cluster.slurm_host import SlurmHost
from tests.cluster.world import EMBED, SELECTION, SHARDS, World, whole

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ON = flags("--on slurm --nodes 4")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def world(slurm_host: SlurmHost, tmp_path: Path) -> World:
    made = World(tmp_path / "slurm", pause=2)
    made.env |= {"SLURM_CONF": str(slurm_host.config)}
    return made


def workers(world: World) -> list[str]:
    return [job for jobs in Jobs.all(world.root) if jobs.works for job in jobs.alive()]


def ends(process: subprocess.Popen[str], code: int = 0, seconds: float = 240) -> str:
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == code, errors
    return output + errors


def running(host: SlurmHost, world: World, units: int = 1) -> list[str]:
    host.until(lambda: world.units() >= units, f"{units} shards are finished", 90)
    return workers(world)


def test_four_workers_make_the_bytes_of_one_process_though_some_are_lost(
    slurm_host: SlurmHost, world: World, tmp_path: Path
) -> None:
    process = world.start("eval", *ON, *SELECTION)
    first = running(slurm_host, world)
    assert len(first) == 4
    subprocess.run(["scancel", first[0]], check=True)
    array, task = map(int, first[1].split("_"))
    os.kill(slurm_host.payload(array, task) or 0, signal.SIGKILL)
    said = ends(process)
    assert f"lost: job {first[0]}: CANCELLED" in said
    assert f"lost: job {first[1]}: FAILED" in said
    assert world.tables() == whole(tmp_path / "whole")
    assert not world.leftovers()
    assert not Jobs.all(world.root)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_ends(slurm_host: SlurmHost, world: World, end: signal.Signals, tmp_path: Path) -> None:
    process = world.start("embed", *ON, *EMBED)
    running(slurm_host, world)
    process.send_signal(end)
    process.communicate(timeout=60)
    if end == signal.SIGTERM:  # it cancels its workers
        slurm_host.until(lambda: not workers(world), "the workers end", 30)
    else:
        refused = world.run("embed", *EMBED, code=2).stderr
        assert "are making one of these artifacts" in refused
        assert "scancel" in refused
    again = [world.start("embed", *ON, *EMBED) for _ in range(2)]  # two drivers
    said = [ends(process) for process in again]
    if end == signal.SIGKILL:
        assert any("waiting for jobs of another driver" in text for text in said)
        assert not any("jobs, " in text for text in said)  # all units were being made
    world.run("eval", *SELECTION)
    assert world.tables() == whole(tmp_path / "whole")


def test_what_is_lost_every_time_is_named(slurm_host: SlurmHost, world: World, tmp_path: Path) -> None:
    settings = tmp_path / "slurm.toml"
    settings.write_text("""[slurm]\nsetup = ['case "$SLURM_ARRAY_TASK_ID" in 2|"") echo broken; exit 7; esac']\n""")
    said = ends(world.start("embed", *ON, "--slurm", str(settings), *EMBED), code=1)
    assert "mdcr: 1 units of" in said
    assert "were lost 3 times, first vectors-" in said
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


def test_stuck_jobs_are_given_up(slurm_host: SlurmHost, world: World) -> None:
    settings = world.root.parent / "slurm.toml"
    settings.write_text("[slurm]\ntime = '100:00:00'\n")
    said = ends(world.start("embed", *ON, "--slurm", str(settings), *EMBED), code=1)
    assert "PENDING (PartitionTimeLimit)" in said


def test_submitted_by_make(slurm_host: SlurmHost, world: World, tmp_path: Path) -> None:
    settings = tmp_path / "slurm.toml"
    settings.write_text("[slurm]\ngpus_per_node = 1\npartition = 'gpu'\n[driver]\npartition = 'main'\n")
    dry = make_submit(world, settings, DRY_RUN=1)
    assert "make embed" in dry.stdout
    assert "#SBATCH --gpus-per-node=1\n" in dry.stdout
    assert "#SBATCH --array=0-1%2\n" in dry.stdout
    assert "This node plans only" in dry.stderr
    assert not (world.root / "runs/jobs").exists()
    submitted = make_submit(world, settings)
    assert submitted.returncode == 0, submitted.stderr
    assert "runs this command already" in make_submit(world, settings).stderr
    running(slurm_host, world)
    driver, embedding = sorted(
        json.loads(world.run("jobs", "--json").stdout)["jobs"], key=lambda group: not group["command"]
    )
    assert driver["states"][0]["state"] == "RUNNING"
    assert 0 < embedding["work"][0]["done"] <= SHARDS
    job = driver["states"][0]["job"]
    subprocess.run(["scancel", job], check=True)
    slurm_host.until(lambda: not workers(world), "scancel of the driver cancels its workers", 30)
    assert make_submit(world, settings).returncode == 0
    (jobs,) = [jobs for jobs in Jobs.all(world.root) if not jobs.works]
    slurm_host.until(lambda: not jobs.alive(), "the driver ends", 240)
    log = jobs.log(jobs.ids[-1]).read_text()
    assert states(jobs.ids)[jobs.ids[-1]] == State("COMPLETED", ""), log
    assert world.units() == 0
    assert not world.leftovers()


def make_submit(world: World, settings: Path, **more: object) -> subprocess.CompletedProcess[str]:
    """Run ``make submit`` with the environment this test runs in."""
    installed = world.root.parent / "venv/.installed"
    installed.parent.mkdir(exist_ok=True)
    installed.touch()
    given = {
        "STAGE": "embed", "NODES": 2, "SLURM": settings, "CORPUS": "tiny", "MODEL": "stub", "SIZE": "all", "QUERIES": 8,
        "MIN_ABSTRACT_CHARS": 1, "ROOT": world.root, "VENV": installed.parent, "BIN": Path(sys.executable).parent,
        **more,
    }  # fmt: skip
    command = ["make", "-s", "submit", *(f"{name}={value}" for name, value in given.items())]
    return subprocess.run(command, cwd=REPOSITORY, env=world.env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("partition = 'gpus'", "Slurm refuses the job: invalid partition specified: gpus"),
        ("partitions = 'gpu'", "Unavailable parameter(s): ['partitions']. Those of submitit's SlurmExecutor: account,"),
        ("setup = 'module load cuda'", "setup = 'module load cuda' must be a list"),
        ("gres = 'gpu:h1:1'", "Slurm refuses the job: "),
    ],
)
def test_refusals(world: World, table: str, said: str) -> None:
    settings = world.root.parent / "slurm.toml"
    settings.write_text(f"[slurm]\n{table}\n")
    assert said in world.run("embed", *ON, "--slurm", str(settings), *EMBED, code=2).stderr


def test_states_of_jobs(slurm_host: SlurmHost, tmp_path: Path) -> None:
    def submit(*words: str) -> str:
        command = ["sbatch", "--parsable", f"--output={tmp_path}/%j", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    first, failing = submit("--wrap=sleep 60"), submit("--wrap=exit 3")
    held, stuck = submit("--hold", "--wrap=true"), submit("--time=100:00:00", "--wrap=true")
    slurm_host.until(lambda: states([failing])[failing].finished, "it fails", 30)
    slurm_host.until(lambda: states([stuck])[stuck].stuck, "Slurm says why", 30)
    found = states([failing, held, stuck, "999999"])
    assert [str(state) for state in found.values()] == [
        "FAILED (NonZeroExitCode)",
        "PENDING (JobHeldUser)",
        "PENDING (PartitionTimeLimit)",
        "ENDED",
    ]
    assert [state.stuck for state in found.values()] == [False, False, True, False]
    cancel([first, held, stuck])
    slurm_host.until(lambda: all(state.finished for state in states([first, held, stuck]).values()), "they end", 30)
