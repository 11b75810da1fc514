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
from pipeline.core.progress import Progress, Steps, span


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
    assert "  search: 0/10 docs (0%), 0 docs/min" in capsys.readouterr().err


def test_the_time_left_is_told_once_all_kinds_of_work_that_are_left_were_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = {"p": "pool", "e": "embed 1k", "f": "embed 1k", "a": "search", "b": "search", "c": "search", "d": "search"}
    steps = Steps()
    steps.expect(kinds)
    # 2 steps of 40 seconds are left at "c", as the latest took
    for ids, seconds in (("p", 2.0), ("e", 60.0), ("f", 20.0), ("ab", 80.0), ("c", 4.0), ("d", 4.0)):
        together, stage = {step: kinds[step] for step in ids}, kinds[ids[0]].split()[0]
        steps.begin(together, stage, list(ids))
        steps.end(together, stage, seconds)
    steps.expect({"g": "search", "h": "embed 2k"})
    steps.begin({"g": "search"}, "search", ["g"])  # embedding another pool size was not timed
    assert capsys.readouterr().err.splitlines() == [
        "[1/7] pool: p",
        "[2/7] embed: e",
        "[3/7] embed: f",
        "[4-5/7] search: a and 1 more in one pass",
        "[6/7] search: c (about 80 s left)",
        "[7/7] search: d (about 4 s left)",
        "[8/9] search: g",
    ]


@pytest.mark.parametrize(
    ("quiet", "verbose", "shown"), [(False, False, "warn"), (False, True, "detail warn"), (True, True, "warn")]
)
def test_details_are_a_second_level_and_what_is_left_out_always_shows(
    capsys: pytest.CaptureFixture[str], quiet: bool, verbose: bool, shown: str
) -> None:
    progress.set_quiet(quiet)
    progress.set_verbose(verbose)
    progress.detail("detail")
    progress.warn("warn")
    progress.set_verbose(False)
    assert capsys.readouterr().err.split() == shown.split()


ON_A_TERMINAL = """
from pipeline.core.progress import Progress, Steps, say
steps = Steps()
steps.expect({"a": "embed", "b": "search"})
steps.begin({"a": "embed"}, "embed", ["demo"])
with Progress(4, "embed minilm", "docs") as bar:
    bar.add(2)
say("a message")
steps.end({"a": "embed"}, "embed", 1.0)
steps.begin({"b": "search"}, "search", ["demo"])
steps.end({"b": "search"}, "search", 1.0)
"""


def test_a_terminal_shows_one_bar_for_all_steps_and_removes_it() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    subprocess.run([sys.executable, "-c", ON_A_TERMINAL], stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux reports the other end's closing so
        while part := os.read(ours, 65_536):
            shown += part
    lines = [line.strip() for line in re.split(r"[\r\n]+", shown.decode()) if line.strip()]
    assert any(line.startswith("[0/2] embed: demo |") and "2/4 docs (50%" in line for line in lines)
    assert any(line.startswith("[1/2] search: demo |") for line in lines)
    assert "a message" in lines
    assert not shown.decode().rpartition("\r")[0].rpartition("\r")[2].strip()  # the bar's line is empty at the end
