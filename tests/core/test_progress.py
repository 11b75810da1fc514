from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from pipeline.core import progress
from pipeline.core.progress import Progress, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.4, "1 s"), (89, "89 s"), (150, "2 min"), (5_000, "83 min"), (7_800, "2 h 10 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_no_time_left_is_told_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PLAIN_EVERY", 0.0)
    with Progress(10, "search", "docs") as bar:
        bar.add(0)
    assert "  search: 0.00/10.0 docs [00:00<?, ? docs/s]" in capsys.readouterr().err


def test_what_is_left_out_always_shows(capsys: pytest.CaptureFixture[str]) -> None:
    progress.set_quiet(True)
    progress.say("said")
    progress.warn("warn")
    progress.set_quiet(False)
    assert capsys.readouterr().err.split() == ["Warning:", "warn"]


ON_A_TERMINAL = """
import time
from pipeline.core.progress import Progress, say
say("[1/1] embed: demo")
with Progress(4, "embed minilm", "docs") as bar:
    time.sleep(2.1)
    bar.add(2)
    say("a message")
"""


def test_a_terminal_shows_a_bar_below_messages_and_removes_it() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    subprocess.run([sys.executable, "-c", ON_A_TERMINAL], stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux reports the other end's closing so
        while part := os.read(ours, 65_536):
            shown += part
    lines = [line.strip() for line in re.split(r"[\r\n]+", shown.decode()) if line.strip()]
    assert lines[0] == "[1/1] embed: demo"
    assert any(line.startswith("embed minilm:  50%") and "2.00/4.00" in line for line in lines)
    assert "a message" in lines
    assert not shown.decode().rpartition("\r")[0].rpartition("\r")[2].strip()  # the bar's line is empty at the end
