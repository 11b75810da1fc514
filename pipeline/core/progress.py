"""Progress and messages, on standard error; results alone go to standard output."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Any

_PLAIN_EVERY = 15.0
"""Seconds between plain progress lines when standard error is no terminal."""

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Silence messages and bars (errors still show)."""
    global _quiet
    _quiet = quiet


def quiet() -> bool:
    """Whether messages and bars are silenced."""
    return _quiet


def say(message: str) -> None:
    """Print one line on standard error; where that is full or closed, the work goes on without it."""
    if not _quiet:
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr, flush=True)


class Progress:
    """A bar with rate and remaining time; plain lines when standard error is no terminal.

    Args:
        total: how many units there are, or None where unknown.
        what: what is going on, such as ``embed scincl``.
        unit: the unit, such as ``docs``.
    """

    def __init__(self, total: int | None, what: str, unit: str) -> None:
        self._total, self._what, self._unit = total, what, unit
        self._done, self._started = 0, time.monotonic()
        self._said = self._started
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if not _quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total, desc=self._what, unit=f" {self._unit}", unit_scale=True, delay=2, file=sys.stderr
            )
        return self

    def add(self, count: int, note: str = "") -> None:
        """Count ``count`` more units as done; ``note`` shows behind the bar."""
        self._done += count
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif not _quiet and time.monotonic() - self._said >= _PLAIN_EVERY:
            self._said = time.monotonic()
            say(self._line(note))

    def _line(self, note: str) -> str:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        line = f"{self._what}: {self._done:,}"
        if self._total:
            remaining = (self._total - self._done) / max(rate, 1e-9)
            line += f"/{self._total:,} {self._unit} ({self._done / self._total:.0%}, {remaining:,.0f} s left)"
        else:
            line += f" {self._unit}"
        return f"{line}, {rate:,.0f} {self._unit}/s" + (f", {note}" if note else "")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and not _quiet and time.monotonic() - self._started > 2:
            say(self._line(""))
