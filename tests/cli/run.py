"""Running ``mdcr`` in this process, or several commands in one other process: exit codes and output.

``COMMAND`` starts one command as a process of its own.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.cli import main
from pipeline.core import progress

COMMAND = [sys.executable, "-m", "pipeline"]

_SEVERAL = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from pipeline.cli import main

ended = []
for words in json.loads(sys.argv[1]):
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(words)
    ended.append((code, output.getvalue(), errors.getvalue()))
json.dump(ended, sys.stdout)
"""


class Result(NamedTuple):
    """What a command left: its exit code and the text of both streams."""

    returncode: int
    stdout: str
    stderr: str


def heed_signals() -> None:
    """Have a process that is about to start heed the signals that ``nohup`` and background jobs of scripts ignore."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def mdcr(root: Path, *words: str, env: Mapping[str, str] | None = None) -> Result:
    """Run a command in a workspace."""
    output, errors = io.StringIO(), io.StringIO()
    progress.set_quiet(False)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            code = main([*words, "--root", str(root)])
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
    return Result(code, output.getvalue(), errors.getvalue())


def elsewhere(
    commands: Sequence[Sequence[str]], folder: Path, env: Mapping[str, str], python: Path = Path(sys.executable)
) -> list[Result]:
    """Run commands one after the other in one process, by the code that its environment has."""
    words = [python, "-c", _SEVERAL, json.dumps(commands)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Result(*ended) for ended in json.loads(done.stdout)]


def mdcr_json(root: Path, *words: str) -> Any:
    """Run a command that must succeed, and return what it printed as JSON."""
    result = mdcr(root, *words, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def one_line_error(result: Result, code: int = 2) -> str:
    """Return the one line a failed command printed as error, after checking that it is one."""
    assert result.returncode == code, (result.returncode, result.stderr)
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("mdcr: ")]
    assert len(errors) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return errors[0]


def scores_of(root: Path) -> dict[str, bytes]:
    """Return the bytes of every ranking and score table, by path."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for room in ("runs/rankings", "runs/scores")
        for path in sorted((root / room).glob("[!.]*/*.arrow"))
    }


def flags(text: str) -> Sequence[str]:
    """Split options written as in a shell."""
    return text.split()
