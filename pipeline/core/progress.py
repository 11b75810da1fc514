"""Progress and messages on standard error; standard output is for results."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

_T = TypeVar("_T")

_PLAIN_EVERY = 60.0
"""Seconds between plain progress lines if standard error is no terminal; a quarter of it in verbose mode."""

_quiet = False
_verbose = False
_warned: set[str] = set()
_command_bar: Any = None
"""The bar of all steps of a command, or None."""


def set_quiet(quiet: bool) -> None:
    """Silence messages and bars, but not errors and warnings; a command begins with this."""
    global _quiet
    _quiet = quiet
    _warned.clear()


def set_verbose(verbose: bool) -> None:
    """Show details: the times of steps, and the rates of long ones."""
    global _verbose
    _verbose = verbose


def quiet() -> bool:
    """Return whether messages and bars are silenced."""
    return _quiet


def say(message: str) -> None:
    """Print one line on standard error; errors of writing are ignored."""
    if not _quiet:
        _print(message)


def detail(message: str) -> None:
    """Print one line in verbose mode."""
    if _verbose:
        say(f"  {message}")


def warn(message: str) -> None:
    """Print a warning once per command, even if messages are silenced; one on what is left out begins with that."""
    if message not in _warned:
        _warned.add(message)
        _print(message if message.startswith("left out: ") else f"Warning: {message}")


def _print(message: str) -> None:
    from pipeline.core.text import printable  # here, because every start of the command loads this module

    with contextlib.suppress(OSError):
        if _command_bar is not None:
            _command_bar.clear()
        print(printable(message), file=sys.stderr, flush=True)
        if _command_bar is not None:
            _command_bar.refresh()


def close_bar() -> None:
    """Remove the bar of a command at its end or failure."""
    global _command_bar
    if _command_bar is not None:
        _command_bar.close()
        _command_bar = None


def _show_command_bar(done: int, total: int, text: str) -> None:
    """Show the number of finished steps of a command and the running step."""
    global _command_bar
    from tqdm import tqdm

    if _command_bar is None:
        form = "[{n:.0f}/{total:.0f}] {desc} |{bar:20}|{postfix}"
        _command_bar = tqdm(total=total, bar_format=form, leave=False, file=sys.stderr, dynamic_ncols=True)
    _command_bar.total, _command_bar.n = total, done
    _command_bar.set_postfix_str("", refresh=False)
    _command_bar.set_description_str(text)


def span(seconds: float) -> str:
    """Return a duration as text: ``40 s``, ``3 min``, ``2 h 10 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Steps:
    """Shows the steps of a command with their numbers and the total time left: a bar on a terminal, else a line a step.

    The time left is known when this command has timed a step of each remaining kind. The latest step of a kind counts,
    since the first one also loads and compiles.
    """

    def __init__(self) -> None:
        self._remaining_steps: dict[str, str] = {}
        self._done = 0
        self._timed: dict[str, float] = {}

    def expect(self, kinds: Mapping[str, str]) -> None:
        """Set the remaining steps: their kinds of work by identity."""
        self._remaining_steps = dict(kinds)

    def begin(self, kinds: Mapping[str, str], stage: str, names: Sequence[str]) -> None:
        """Show that steps of one stage, made together, begin."""
        self._remaining_steps |= kinds
        start, end, total = self._done + 1, self._done + len(kinds), self._done + len(self._remaining_steps)
        numbers = f"{start}/{total}" if start == end else f"{start}-{end}/{total}"
        name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more in one pass"
        timed = self._timed.keys() >= set(self._remaining_steps.values())
        seconds = sum(self._timed[kind] for kind in self._remaining_steps.values()) if timed else 0
        text = f"{stage}: {name}" + (f" (about {span(seconds)} left)" if seconds >= 1 else "")
        if not _quiet and not _verbose and sys.stderr.isatty():
            _show_command_bar(self._done, total, text)
        else:
            say(f"[{numbers}] {text}")

    def end(self, kinds: Mapping[str, str], stage: str, seconds: float) -> None:
        """Count steps made together as done."""
        for step, kind in kinds.items():
            self._remaining_steps.pop(step, None)
            self._timed[kind] = seconds / len(kinds)
        self._done += len(kinds)
        if not self._remaining_steps:
            close_bar()
        detail(f"{stage}: {seconds:.1f} s")


class Progress:
    """A bar of ``total`` units (None: unknown) with rate and time left, or plain lines if stderr is no terminal."""

    def __init__(self, total: int | None, title: str, unit: str) -> None:
        self._total, self._title, self._unit = total, title, unit
        self._done, self._started = 0, time.monotonic()
        self._printed = self._started
        self._bar: Any = None
        self._before = 0

    def __enter__(self) -> Progress:
        if _command_bar is not None:
            self._before = _command_bar.n
        elif not _quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total,
                desc=self._title,
                unit=f" {self._unit}",
                unit_scale=True,
                delay=2,
                leave=_verbose,
                file=sys.stderr,
            )
        return self

    def add(self, count: int, note: str = "") -> None:
        """Count ``count`` more units as done; ``note`` is shown after the bar."""
        self._done += count
        if _command_bar is not None:
            _command_bar.set_postfix_str(self._line(note).strip().partition(": ")[2], refresh=False)
            _command_bar.n = self._before + min(self._done / self._total, 1) if self._total else self._before
            _command_bar.refresh()
        elif self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif not _quiet and time.monotonic() - self._printed >= (_PLAIN_EVERY / 4 if _verbose else _PLAIN_EVERY):
            self._printed = time.monotonic()
            say(self._line(note))

    def over(self, items: Iterable[_T], count: Callable[[_T], int]) -> Iterator[_T]:
        """Yield items; an item counts as done when the next one is requested."""
        for item in items:
            yield item
            self.add(count(item))

    def _line(self, note: str) -> str:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        line = f"  {self._title}: {self._done:,}"
        if self._total:
            left = f", {span((self._total - self._done) / rate)} left" if self._done else ""
            line += f"/{self._total:,} {self._unit} ({self._done / self._total:.0%}{left})"
        else:
            line += f" {self._unit}"
        speed = f"{rate:,.0f} {self._unit}/s" if rate >= 1 else f"{60 * rate:,.0f} {self._unit}/min"
        return f"{line}, {speed}" + (f", {note}" if note else "")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and not _quiet and _verbose and time.monotonic() - self._started > 2:
            say(self._line(""))
