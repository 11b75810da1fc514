"""Progress and messages on standard error; standard output is for results."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

_PLAIN_EVERY = 60.0
"""Seconds between plain progress lines if standard error is no terminal."""

_quiet = False
_warned: set[str] = set()


def set_quiet(quiet: bool) -> None:
    """Silence messages and bars, but not errors and warnings; a command begins with this."""
    global _quiet
    _quiet = quiet
    _warned.clear()


def quiet() -> bool:
    """Return whether messages and bars are silenced."""
    return _quiet


def say(message: str) -> None:
    """Print one line on standard error; errors of writing are ignored."""
    if not _quiet:
        _print(message)


def warn(message: str) -> None:
    """Print a warning once per command, even if messages are silenced; one on what is left out begins with that."""
    if message not in _warned:
        _warned.add(message)
        _print(message if message.startswith("left out: ") else f"Warning: {message}")


def _print(message: str) -> None:
    from pipeline.core.text import printable  # here, because every start of the command loads this module

    tqdm = sys.modules.get("tqdm")  # a bar may be shown, which it hides meanwhile
    with contextlib.suppress(OSError):
        (tqdm.tqdm.write if tqdm else print)(printable(message), file=sys.stderr)
        sys.stderr.flush()


def span(seconds: float) -> str:
    """Return a duration as text: ``40 s``, ``3 min``, ``2 h 10 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """A bar of ``total`` units (None: unknown) with rate and time left, or plain lines if stderr is no terminal."""

    def __init__(self, total: int | None, title: str, unit: str) -> None:
        self._about: dict[str, Any] = {"total": total, "unit": f" {unit}", "unit_scale": True}
        self._title = title
        self._bar: Any = None
        self._done, self._started = 0, time.monotonic()
        self._printed = self._started

    def __enter__(self) -> Self:
        if not _quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(**self._about, desc=self._title, delay=2, leave=False, file=sys.stderr)
        return self

    def add(self, count: int, note: str = "") -> None:
        """Count ``count`` more units as done; ``note`` is shown after the bar."""
        self._done += count
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif not _quiet and time.monotonic() - self._printed >= _PLAIN_EVERY:
            self._printed = time.monotonic()
            say(self._line(note))

    def over(self, items: Iterable[_T], count: Callable[[_T], int]) -> Iterator[_T]:
        """Yield items; an item counts as done when the next one is requested."""
        for item in items:
            yield item
            self.add(count(item))

    def _line(self, note: str) -> str:
        from tqdm import tqdm

        form = "  {desc}: {n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
        elapsed = time.monotonic() - self._started
        return str(
            tqdm.format_meter(
                self._done, elapsed=elapsed, prefix=self._title, postfix=note or None, bar_format=form, **self._about
            )
        )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
