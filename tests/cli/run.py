"""Running ``mdcr`` as a user does: another process, its exit code and what it printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "pipeline"]


def mdcr(root: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a workspace."""
    return subprocess.run(
        [*COMMAND, *arguments, "--root", str(root)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | (env or {}),
    )


def mdcr_json(root: Path, *arguments: str) -> Any:
    """Run a command that must succeed, and return what it printed as JSON."""
    result = mdcr(root, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def one_line_error(result: subprocess.CompletedProcess[str], code: int = 2) -> str:
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
