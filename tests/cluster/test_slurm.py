from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cluster import slurm
from pipeline.cluster.script import job_script, log_of
from pipeline.cluster.settings import SlurmSettings
from pipeline.cluster.states import TaskState
from pipeline.core.errors import InputError
from tests.cluster.slurm_host import SlurmHost

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

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


def states(job: int) -> dict[int | None, str]:
    return {state.task: state.state for state in slurm.status([job])}


def wait(host: SlurmHost, job: int, seconds: float = 20) -> list[TaskState]:
    def ended() -> bool:
        found = slurm.status([job])
        return bool(found) and all(state.finished for state in found)

    host.until(ended, f"job {job} ends", seconds)
    return slurm.status([job])


def test_an_array_runs_every_slice_once(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    job = submit(f'echo "$@" >> {tmp_path}/out-$SLURM_ARRAY_TASK_ID', slices=5, at_once=3)
    ended = wait(slurm_host, job)
    assert [(s.job, s.task, s.state, s.exit_code, s.signal, s.restarts) for s in ended] == [
        (job, task, "COMPLETED", 0, 0, 0) for task in range(5)
    ]
    assert {s.node for s in ended} <= {"n1", "n2"}
    for task in range(5):
        assert "GPUs none" in log_of(tmp_path, job, task).read_text()
        assert (tmp_path / f"out-{task}").read_text() == f"--slice {task}/5\n"


def test_a_slice_gets_its_number_and_its_resources(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    settings = SlurmSettings(partition="gpu", gpus=1, cpus=2, time="00:05:00", memory="100M")
    job = submit(f'echo "$1 $2" > {tmp_path}/out', slices=1, settings=settings)
    (state,) = wait(slurm_host, job)
    assert (state.state, state.node) == ("COMPLETED", "n2")
    assert (tmp_path / "out").read_text() == "--slice 0/1\n"
    assert f"job {job + 1} task 0 start 1, 2 cores, GPUs 0" in log_of(tmp_path, job, 0).read_text().replace(
        f"job {job} ", f"job {job + 1} "
    )


def test_lost_slices_are_named(slurm_host: SlurmHost, submit: Submit) -> None:
    job = submit("sleep 30", slices=3)
    for task in range(3):
        slurm_host.until(lambda task=task: slurm_host.payload(job, task), f"slice {task} runs", 15)
    subprocess.run(["scancel", f"{job}_0"], check=True, env=slurm_host.env)
    for task, number in ((1, signal.SIGKILL), (2, signal.SIGUSR1)):
        process = slurm_host.payload(job, task)
        assert process
        os.kill(process, number)
    cancelled, killed, stopped = wait(slurm_host, job)
    assert cancelled.state == "CANCELLED"
    assert (killed.state, killed.signal) == ("FAILED", signal.SIGKILL)
    assert (stopped.state, stopped.signal) == ("FAILED", signal.SIGUSR1)


def test_a_dependent_job_runs_after_a_failed_array(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    job = submit("exit $((SLURM_ARRAY_TASK_ID + 2))", slices=2)
    then = submit(f"touch {tmp_path}/collected", after=[job])
    (state,) = wait(slurm_host, then)
    assert state.state == "COMPLETED"
    assert state.task is None
    assert (tmp_path / "collected").exists()
    assert [(s.state, s.exit_code) for s in slurm.status([job])] == [("FAILED", 2), ("FAILED", 3)]
    assert log_of(tmp_path, then, None).exists()


def test_a_requeued_slice_starts_again_and_its_log_goes_on(
    slurm_host: SlurmHost, submit: Submit, tmp_path: Path
) -> None:
    job = submit('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exec sleep 30', slices=1)
    log = log_of(tmp_path, job, 0)
    slurm_host.until(lambda: log.exists() and "start 1," in log.read_text(), "the slice runs", 10)
    subprocess.run(["scontrol", "requeue", f"{job}_0"], check=True, env=slurm_host.env)
    (state,) = wait(slurm_host, job, 30)
    assert (state.state, state.restarts) == ("COMPLETED", 1)
    assert "start 1," in log.read_text()
    assert "start 2," in log.read_text()


def test_slices_of_a_lost_node_run_again_elsewhere(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    job = submit('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || [ $SLURMD_NODENAME = n1 ] || sleep 60', slices=4)
    slurm_host.until(lambda: any(s.node == "n2" for s in slurm.status([job])), "a slice runs on n2", 10)
    on_n2 = [s.task for s in slurm.status([job]) if s.node == "n2"]
    slurm_host.lose_node("n2")
    try:
        ended = wait(slurm_host, job, 45)
    finally:
        slurm_host.start_node("n2")
    assert {s.state for s in ended} == {"COMPLETED"}
    assert {s.node for s in ended} == {"n1"}
    assert [s.task for s in ended if s.restarts] == on_n2
    slurm_host.until(lambda: slurm_host.nodes()["n2"] == "idle", "n2 is back", 20)


def test_a_job_submitted_by_a_job_knows_nothing_of_it(slurm_host: SlurmHost, submit: Submit, tmp_path: Path) -> None:
    script = tmp_path / "inner.sh"
    inner = ["bash", "-c", f'echo "${{SLURM_ARRAY_TASK_ID:-none}} ${{SLURM_CPUS_PER_TASK:-none}}" > {tmp_path}/out']
    script.write_text(job_script(SlurmSettings(), inner, name="inner", logs=tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_CPUS_PER_TASK", "9")):
            patch.setenv(name, value)
        job = slurm.submit(script)
    assert wait(slurm_host, job)[0].state == "COMPLETED"
    assert (tmp_path / "out").read_text() == "none none\n"


def test_odd_names_of_folders_and_arguments(slurm_host: SlurmHost, tmp_path: Path) -> None:
    logs = tmp_path / '100% of #1, "odd" logs (it\'s)'
    logs.mkdir()
    script = logs / "job.sh"
    word = "a 'b' \"c\" $HOME `d` \\ #e %A"
    script.write_text(job_script(SlurmSettings(), ["printf", "%s", word], name="odd: $(name)", logs=logs))
    job = slurm.submit(script)
    assert wait(slurm_host, job)[0].state == "COMPLETED"
    assert log_of(logs, job, None).read_text().endswith(word)


def test_tasks_that_wait_are_listed_one_by_one(slurm_host: SlurmHost, submit: Submit) -> None:
    first = submit("sleep 30")
    job = submit("true", slices=900, after=[first])
    assert states(job) == dict.fromkeys(range(900), "PENDING")
    slurm_host.until(lambda: {s.reason for s in slurm.status([job])} == {"Dependency"}, "Slurm says why", 10)
    slurm.cancel([job, first])
    assert set(states(job).values()) == {"CANCELLED"}


def test_what_can_never_start_is_stuck(slurm_host: SlurmHost, submit: Submit) -> None:
    job = submit("true", settings=SlurmSettings(time="100:00:00"))
    slurm_host.until(lambda: slurm.status([job])[0].stuck, "Slurm says why", 10)
    slurm.cancel([job])


def test_refusals_say_what_there_is(submit: Submit) -> None:
    with pytest.raises(InputError, match=r"no partition 'gpus'. Did you mean 'gpu' \(partitions: gpu, main\)"):
        submit("true", settings=SlurmSettings(partition="gpus"))
    with pytest.raises(InputError, match="Slurm refuses .*job.sh: .*not available"):
        submit("true", settings=SlurmSettings(gpus=1, gpu_type="h1"))
    with pytest.raises(InputError, match="Invalid feature specification"):
        submit("true", settings=SlurmSettings(constraint="fast"))


def test_unknown_jobs_are_left_out(slurm_host: SlurmHost) -> None:
    assert slurm.status([999_999]) == []
    assert slurm.status([]) == []
    slurm.cancel([999_999])
