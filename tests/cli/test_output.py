"""Rows as users see them."""

from __future__ import annotations

import argparse
import sys

import pytest

from pipeline.cli.output import print_rows

ROWS = [{"name": "a", "about": "one two three " * 12}, {"name": "bb", "about": ""}]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_last_column_is_wrapped_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_rows("things", ROWS, argparse.Namespace(json=False))
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 80) == terminal
    assert lines[0].split() == ["name", "about"]
    assert lines[-1] == "bb"
