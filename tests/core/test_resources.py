"""Memory and processors of a process, in made-up trees of control groups and jobs of Slurm, and in a real group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.resources import available_cores, available_memory

HERE = available_memory(Path("/nowhere"), {})
CORES = available_cores(Path("/nowhere"), {})
GIB = 2**30


def tree(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Write ``/proc/self/cgroup`` and the files of control groups."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"memory.max": "1073741824\n"}, GIB, id="a container"),
        pytest.param(
            "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
            {
                "system.slice/slurmstepd.scope/job_7/memory.max": "2147483648",
                "system.slice/slurmstepd.scope/job_7/step_0/memory.max": "max",
                "memory.max": "max",
            },
            2 * GIB,
            id="a job of Slurm",
        ),
        pytest.param(
            "0::/a/b\n", {"a/memory.max": "1073741824", "a/b/memory.max": "3221225472"}, GIB, id="the least of two"
        ),
        pytest.param("0::/../..\n", {"memory.max": "1073741824"}, GIB, id="a group outside of the container"),
        pytest.param("0::/\n", {"memory.max": "max"}, HERE, id="no limit"),
    ],
)
def test_memory_of_control_groups(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    assert available_memory(tree(tmp_path, groups, files), {}) == min(expected, HERE)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "512"}, 512 * 2**20),
        ({"SLURM_MEM_PER_NODE": "0"}, HERE),
        ({"SLURM_MEM_PER_CPU": "256", "SLURM_CPUS_PER_TASK": "3"}, 768 * 2**20),
        ({"SLURM_MEM_PER_CPU": "256", "SLURM_CPUS_ON_NODE": "2"}, 512 * 2**20),
        ({}, HERE),
    ],
)
def test_memory_of_jobs(env: dict[str, str], expected: int) -> None:
    assert available_memory(Path("/nowhere"), {"SLURM_JOB_ID": "7", **env}) == expected
    assert available_memory(Path("/nowhere"), env) == HERE  # left from a job, such as by salloc


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/a/b\n", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, 1, id="a quota"),
        pytest.param("0::/\n", {"cpu.max": "max 100000"}, CORES, id="no quota"),
    ],
)
def test_processors(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    assert available_cores(tree(tmp_path, groups, files), {}) == expected


def test_processors_of_jobs_and_affinity() -> None:
    assert available_cores(Path("/nowhere"), {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1"}) == 1
    assert available_cores(Path("/nowhere"), {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "999"}) == CORES
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    code += "from pipeline.core.resources import available_cores; print(available_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
