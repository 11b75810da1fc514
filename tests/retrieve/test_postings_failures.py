"""An error in a thread of the postings engine reaches the caller, and no other thread waits for what never comes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_kernel_may_fail_in_a_thread() -> None:
    """More batches of queries than threads fail: each has to leave what the next one needs."""
    command = [sys.executable, "-m", "tests.retrieve.failing"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all ended\n")
