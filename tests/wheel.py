"""The wheel in an environment of its own, and the workspace of ``make demo`` by it: made once for all processes."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.cli.test_make import make

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return the folder of the programs of an environment that has the wheel, and the packages it needs from here.

    The workspace of the demo lies in the folder ``demo`` beside that environment.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "wheel"
    programs = folder / "venv/bin"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
            (folder / "demo").mkdir(parents=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
            (wheel,) = folder.glob("*.whl")
            assert wheel.stat().st_size < 5e6
            venv.create(folder / "venv")
            subprocess.run(
                [*pip, "--python", programs / "python", "install", "-q", "--no-deps", "--ignore-installed", wheel],
                check=True,
            )
            (packages,) = (folder / "venv/lib").glob("python*/site-packages")
            (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
            printed = by_wheel(programs, folder / "demo", "demo")
            systems = {line.split()[0] for line in printed.splitlines() if line.strip()}
            assert {"bm25", "bm25:tuned", "lsa", "minilm", "rrf(bm25:tuned,minilm)"} <= systems
            (folder / "done").touch()
    return programs


def by_wheel(programs: Path, workspace: Path, *words: str) -> str:
    """Run a goal of ``make`` that must succeed with the wheel, and return what it printed."""
    program = f'#!/bin/sh\nunset PYTHONPATH\nexec "{programs}/mdcr" "$@"\n'
    result = make(workspace, *words, program=program, timeout=900)
    assert result.returncode == 0, result.stderr
    return result.stdout
