"""A stage in a process of its own, which a test can kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.core.artifact import Artifact


def starter(script: str, *arguments: object) -> Callable[[], subprocess.Popen[bytes]]:
    """Return what starts a process that runs a script, whose last line of output is an artifact's path."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return lambda: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)


def finish(process: subprocess.Popen[bytes]) -> Artifact:
    """Wait for a process and return what it made."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return Artifact.open(Path(output.decode().strip()))
