from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.run import COMMAND, flags, scores_of

CORPUS = flags("corpus --source synthetic --papers 12k --seed 7 --corpus tiny --workers 2")
EVALUATE = flags("eval --size 3k,4k --queries 20 --samples 1 --model bm25,lsa --measures map")


def start(root: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments, "--root", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish(root: Path, arguments: list[str]) -> None:
    assert start(root, arguments).wait(timeout=300) == 0


def files_in(root: Path) -> int:
    return sum(len(folders) + len(names) for _, folders, names in os.walk(root))


def kill_after(root: Path, arguments: list[str], new_files: int) -> bool:
    """Start a command and SIGKILL it once it has made so many files; False when it ended first."""
    target = files_in(root) + new_files
    process = start(root, arguments)
    while files_in(root) < target:
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.java
@pytest.mark.slow
def test_the_chain_killed_in_every_stage_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for arguments in (CORPUS, EVALUATE):
        finish(whole, list(arguments))
    kills = sum(kill_after(killed, list(CORPUS), new_files) for new_files in (3, 5, 6))
    finish(killed, list(CORPUS))
    for new_files in (2, 9, 12, 14, 20, 25):
        kills += kill_after(killed, list(EVALUATE), new_files)
    assert kills >= 6
    finish(killed, list(EVALUATE))
    assert scores_of(killed) == scores_of(whole)
    assert len(scores_of(whole)) == 8
    assert not [p for p in killed.rglob("*.partial") if p.is_dir()]


@pytest.mark.java
@pytest.mark.slow
def test_two_evaluations_at_once_share_the_work(tmp_path: Path) -> None:
    finish(tmp_path, list(CORPUS))
    both = [start(tmp_path, list(EVALUATE)) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert len(scores_of(tmp_path)) == 8
