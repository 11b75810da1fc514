"""Job scripts and Slurm's commands against a real Slurm; nothing of the pipeline runs in these jobs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cluster import slurm
from pipeline.cluster.script import SlurmSettings, job_script, log_of
from pipeline.cluster.slurm import TaskState
from pipeline.core.errors import InputError
from tests.cluster.slurm_host import SlurmHost

pytestmark = [pytest.mark.slurm]

Submit = Callable[..., int]


@pytest.fixture
def submit(slurm_host: SlurmHost, tmp_path: Path) -> Submit:
    """Submit a line of shell as a job script of ours and return the job's id."""

    def submit(shell: str, *, slices: int = 0, settings: SlurmSettings | None = None, **options: object) -> int:
        script = tmp_path / "job.sh"
        command = ["bash", "-c", shell, "payload"]
        text = job_script(settings or SlurmSettings(), command, name="tiny job", logs=tmp_path, slices=slices or None)
        script.write_text(text)
        return slurm.submit(script, array=range(slices), **options)  # type: ignore[arg-type]

    return submit


def wait(host: SlurmHost, job: int, seconds: float = 60) -> list[TaskState]:
    def ended() -> bool:
        states = slurm.status([job])
        return bool(states) and all(state.finished for state in states)

    host.until(ended, f"job {job} ends", seconds)
    return slurm.status([job])


def test_jobs_get_their_slices_resources_words_and_place_in_line(
    slurm_host: SlurmHost, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = submit(f'echo "$@" >> {tmp_path}/out-$SLURM_ARRAY_TASK_ID', slices=3, at_once=2)
    failing = submit("exit $((SLURM_ARRAY_TASK_ID + 2))", slices=2)
    after = submit(f"touch {tmp_path}/collected", after=[failing])
    asked = SlurmSettings(partition="gpu", gpus=1, cpus=2, time="00:05:00", memory="100M")
    accelerated = submit("true", settings=asked)
    odd = tmp_path / '100% of #1, "odd" logs (it\'s)'
    odd.mkdir()
    word = "a 'b' \"c\" $HOME `d` \\ #e %A"
    (odd / "job.sh").write_text(job_script(SlurmSettings(), ["printf", "%s", word], name="odd: $(name)", logs=odd))
    oddly = slurm.submit(odd / "job.sh")
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_CPUS_PER_TASK", "9")):
        monkeypatch.setenv(name, value)  # as if a job submitted the next one
    inner = submit(f'echo "${{SLURM_ARRAY_TASK_ID:-none}} ${{SLURM_CPUS_PER_TASK:-none}}" > {tmp_path}/inner')

    ended = wait(slurm_host, array)
    assert [(s.job, s.task, s.state, s.exit_code, s.signal, s.restarts) for s in ended] == [
        (array, task, "COMPLETED", 0, 0, 0) for task in range(3)
    ]
    assert {s.node for s in ended} <= {"n1", "n2"}
    for task in range(3):
        assert "GPUs none" in log_of(tmp_path, array, task).read_text()
        assert (tmp_path / f"out-{task}").read_text() == f"--slice {task}/3\n"
    (state,) = wait(slurm_host, after)
    assert (state.state, state.task) == ("COMPLETED", None)
    assert (tmp_path / "collected").exists()
    assert log_of(tmp_path, after, None).exists()
    assert [(s.state, s.exit_code) for s in slurm.status([failing])] == [("FAILED", 2), ("FAILED", 3)]
    (state,) = wait(slurm_host, accelerated)
    assert (state.state, state.node) == ("COMPLETED", "n2")
    assert "task none start 1, 2 cores, GPUs 0" in log_of(tmp_path, accelerated, None).read_text()
    assert wait(slurm_host, oddly)[0].state == "COMPLETED"
    assert log_of(odd, oddly, None).read_text().endswith(word)
    assert wait(slurm_host, inner)[0].state == "COMPLETED"
    assert (tmp_path / "inner").read_text() == "none none\n"


def test_lost_slices_are_named_and_requeued_ones_go_on(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    job = submit('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exec sleep 300', slices=4)
    for task in range(4):
        slurm_host.until(lambda task=task: slurm_host.payload(job, task), f"slice {task} runs", 60)
    log = log_of(tmp_path, job, 3)
    slurm_host.until(lambda: "start 1," in log.read_text(), "slice 3 has begun its log", 30)
    subprocess.run(["scancel", f"{job}_0"], check=True, env=slurm_host.env)
    for task, number in ((1, signal.SIGKILL), (2, signal.SIGUSR1)):
        process = slurm_host.payload(job, task)
        assert process
        os.kill(process, number)
    subprocess.run(["scontrol", "requeue", f"{job}_3"], check=True, env=slurm_host.env)
    cancelled, killed, stopped, requeued = wait(slurm_host, job)
    assert cancelled.state == "CANCELLED"
    assert (killed.state, killed.signal) == ("FAILED", signal.SIGKILL)
    assert (stopped.state, stopped.signal) == ("FAILED", signal.SIGUSR1)
    assert (requeued.state, requeued.restarts) == ("COMPLETED", 1)
    assert "start 1," in log.read_text()
    assert "start 2," in log.read_text()


def test_slices_of_a_lost_node_run_again_elsewhere(slurm_host: SlurmHost, submit: Submit) -> None:
    job = submit('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || [ $SLURMD_NODENAME = n1 ] || sleep 60', slices=4)
    slurm_host.until(lambda: any(s.node == "n2" for s in slurm.status([job])), "a slice runs on n2", 30)
    on_n2 = [s.task for s in slurm.status([job]) if s.node == "n2"]
    slurm_host.lose_node("n2")
    try:
        ended = wait(slurm_host, job, 90)
    finally:
        slurm_host.start_node("n2")
    assert {s.state for s in ended} == {"COMPLETED"}
    assert {s.node for s in ended} == {"n1"}
    assert [s.task for s in ended if s.restarts] == on_n2
    slurm_host.until(lambda: slurm_host.nodes()["n2"] == "idle", "n2 is back", 60)


def test_waiting_stuck_cancelled_and_unknown_jobs(slurm_host: SlurmHost, submit: Submit) -> None:
    first = submit("sleep 30")
    job = submit("true", slices=900, after=[first])
    stuck = submit("true", settings=SlurmSettings(time="100:00:00"))
    assert [(s.task, s.state) for s in slurm.status([job])] == [(task, "PENDING") for task in range(900)]
    slurm_host.until(lambda: {s.reason for s in slurm.status([job])} == {"Dependency"}, "Slurm says why", 30)
    slurm_host.until(lambda: slurm.status([stuck])[0].stuck, "Slurm says why", 30)
    subprocess.run(["scancel", *map(str, (job, first, stuck))], check=True, env=slurm_host.env)
    assert {s.state for s in slurm.status([job])} == {"CANCELLED"}
    assert slurm.status([999_999]) == []
    assert slurm.status([]) == []


def test_refusals_say_what_there_is(submit: Submit) -> None:
    with pytest.raises(InputError, match=r"no partition 'gpus'. Did you mean 'gpu'\? \(partitions: gpu, main\)"):
        submit("true", settings=SlurmSettings(partition="gpus"))
    with pytest.raises(InputError, match="Slurm refuses .*job.sh: .*not available"):
        submit("true", settings=SlurmSettings(gpus=1, gpu_type="h1"))
    with pytest.raises(InputError, match="Invalid feature specification"):
        submit("true", settings=SlurmSettings(constraint="fast"))
