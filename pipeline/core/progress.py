"""Progress and messages, on standard error; results alone go to standard output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

_T = TypeVar("_T")

_PLAIN_EVERY = 60.0
"""Seconds between plain progress lines when standard error is no terminal; a quarter of it where details are shown."""

_quiet = False
_verbose = False
_whole: Any = None
"""The bar of all steps of a command, while it is shown."""


def set_quiet(quiet: bool) -> None:
    """Silence messages and bars (errors and what is left out still show)."""
    global _quiet
    _quiet = quiet


def set_verbose(verbose: bool) -> None:
    """Show details: the time of each step, the rate of each long one."""
    global _verbose
    _verbose = verbose


def quiet() -> bool:
    """Whether messages and bars are silenced."""
    return _quiet


def say(message: str) -> None:
    """Print one line on standard error; where that is full or closed, the work goes on without it."""
    if not _quiet:
        warn(message)


def detail(message: str) -> None:
    """Print one line of the second level."""
    if _verbose:
        say(f"  {message}")


def warn(message: str) -> None:
    """Print one line, even where messages are silenced: the results lack something that was asked for."""
    from pipeline.core.text import printable  # here, because every start of the command loads this module

    with contextlib.suppress(OSError):
        if _whole is not None:
            _whole.clear()
        print(printable(message), file=sys.stderr, flush=True)
        if _whole is not None:
            _whole.refresh()


def close_bar() -> None:
    """Remove the bar of a command that ends, or fails."""
    global _whole
    if _whole is not None:
        _whole.close()
        _whole = None


def _show_whole(done: int, total: int, text: str) -> None:
    """Show how many steps of a command are done, and the step that runs."""
    global _whole
    from tqdm import tqdm

    if _whole is None:
        form = "[{n:.0f}/{total:.0f}] {desc} |{bar:20}|{postfix}"
        _whole = tqdm(total=total, bar_format=form, leave=False, file=sys.stderr, dynamic_ncols=True)
    _whole.total, _whole.n = total, done
    _whole.set_postfix_str("", refresh=False)
    _whole.set_description_str(text)


def _on_terminal() -> bool:
    return not _quiet and not _verbose and sys.stderr.isatty()


def span(seconds: float) -> str:
    """Write a duration: ``40 s``, ``3 min``, ``2 h 10 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Steps:
    """The steps of a command with their number and the time left of the whole: one bar on a terminal, else a line each.

    The time left is told once a step of every kind that is left was timed by this command; the latest of a kind counts,
    because the first one also loads and compiles.
    """

    def __init__(self) -> None:
        self._left: dict[str, str] = {}
        self._done = 0
        self._timed: dict[str, float] = {}

    def expect(self, kinds: Mapping[str, str]) -> None:
        """Set the steps that are left: the kind of work of each, by identity."""
        self._left = dict(kinds)

    def begin(self, kinds: Mapping[str, str], stage: str, names: Sequence[str]) -> None:
        """Say that steps of one stage, which are made together, begin."""
        self._left |= kinds
        first, last, total = self._done + 1, self._done + len(kinds), self._done + len(self._left)
        place = f"{first}/{total}" if first == last else f"{first}-{last}/{total}"
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more in one pass"
        left = self._remaining()
        text = f"{stage}: {what}" + (f" (about {span(left)} left)" if left and left >= 1 else "")
        if _on_terminal():
            _show_whole(self._done, total, text)
        else:
            say(f"[{place}] {text}")

    def end(self, kinds: Mapping[str, str], stage: str, seconds: float) -> None:
        """Count steps that were made together as done."""
        for step, kind in kinds.items():
            self._left.pop(step, None)
            self._timed[kind] = seconds / len(kinds)
        self._done += len(kinds)
        if not self._left:
            close_bar()
        detail(f"{stage}: {seconds:.1f} s")

    def _remaining(self) -> float | None:
        """Return seconds; None where a kind of work was not timed yet."""
        if not self._timed.keys() >= set(self._left.values()):
            return None
        return sum(self._timed[kind] for kind in self._left.values())


class Progress:
    """A bar of ``total`` units, or unknown, with rate and time left; plain lines when stderr is no terminal."""

    def __init__(self, total: int | None, what: str, unit: str) -> None:
        self._total, self._what, self._unit = total, what, unit
        self._done, self._started = 0, time.monotonic()
        self._said = self._started
        self._bar: Any = None
        self._before = 0

    def __enter__(self) -> Progress:
        if _whole is not None:
            self._before = _whole.n
        elif not _quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total,
                desc=self._what,
                unit=f" {self._unit}",
                unit_scale=True,
                delay=2,
                leave=_verbose,
                file=sys.stderr,
            )
        return self

    def add(self, count: int, note: str = "") -> None:
        """Count ``count`` more units as done; ``note`` shows behind the bar."""
        self._done += count
        if _whole is not None:
            _whole.set_postfix_str(self._line(note).strip().partition(": ")[2], refresh=False)
            _whole.n = self._before + min(self._done / self._total, 1) if self._total else self._before
            _whole.refresh()
        elif self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif not _quiet and time.monotonic() - self._said >= (_PLAIN_EVERY / 4 if _verbose else _PLAIN_EVERY):
            self._said = time.monotonic()
            say(self._line(note))

    def over(self, items: Iterable[_T], count: Callable[[_T], int]) -> Iterator[_T]:
        """Yield items; each is counted as done when the next is asked for."""
        for item in items:
            yield item
            self.add(count(item))

    def _line(self, note: str) -> str:
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        line = f"  {self._what}: {self._done:,}"
        if self._total:
            remaining = (self._total - self._done) / max(rate, 1e-9)
            line += f"/{self._total:,} {self._unit} ({self._done / self._total:.0%}, {span(remaining)} left)"
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
