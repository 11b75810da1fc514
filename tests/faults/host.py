"""A process that has loaded every library, and runs each command in a fork of itself, which it may kill.

It reads one request a line and answers with one line, both JSON. A request has ``words`` (of the command line) and at
most one moment for SIGKILL: ``event`` (the number of the file operation below ``root`` before which it comes) or
``seconds``. The answer has ``killed``, ``code``, ``events``, ``seconds`` and ``errors``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.listdir")
SHARD_ROWS = 150


class Host:
    """Starts the process, whose commands write what they say to ``log``, and talks to it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork does not inherit threads
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.host", str(log)],
            env=os.environ | threads | {"PYTHONPATH": path, "MPLBACKEND": "agg"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, root: Path, words: list[str], **moment: float) -> dict[str, Any]:
        """Run a command and return the answer."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"words": [*words, "--root", str(root)], "root": str(root), **moment}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer | {"errors": self._log.read_text(errors="replace")}

    def close(self) -> None:
        """End the process."""
        self._process.communicate("")


def serve(log: Path) -> None:
    """Answer requests until there are no more."""
    import matplotlib.pyplot  # noqa: F401
    import sklearn.feature_extraction.text  # noqa: F401
    import torch  # noqa: F401

    import pipeline.cli.commands
    import pipeline.encode.lsa
    import pipeline.stages.chain
    import pipeline.train.trainer  # noqa: F401
    from pipeline.core import schema

    schema.SHARD_ROWS = SHARD_ROWS
    for line in sys.stdin:
        request = json.loads(line)
        read, write = os.pipe()
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _command(request, write, log)
        os.close(write)
        with contextlib.suppress(OSError):  # whoever comes second
            os.setpgid(pid, pid)
        status = _wait(pid, started + request["seconds"] if "seconds" in request else None)
        events = os.read(read, 20).decode()
        os.close(read)
        answer = {"killed": status == -signal.SIGKILL, "code": status, "events": int(events or 0)}
        sys.stdout.write(json.dumps(answer | {"seconds": time.monotonic() - started}) + "\n")
        sys.stdout.flush()


def _wait(pid: int, deadline: float | None) -> int:
    """Wait for a process, kill it and what it started at the deadline, and return its exit code."""
    while True:
        ended, status = os.waitpid(pid, 0 if deadline is None else os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if deadline is not None and time.monotonic() >= deadline:
            os.killpg(pid, signal.SIGKILL)
            deadline = None
        time.sleep(0.0005)


def _command(request: dict[str, Any], write: int, log: Path) -> None:
    """Run a command in this process and end it."""
    os.setpgid(0, 0)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    events = 0
    last, below = request.get("event"), request["root"]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal events
        if event in OPERATIONS and str(arguments[0]).startswith(below):
            events += 1
            if events == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    from pipeline.cli import main

    code = main(request["words"])
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(write, str(events).encode())
    os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
