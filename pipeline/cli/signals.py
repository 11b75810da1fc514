"""Ctrl-C and requests to end: a word, the exit code of the signal, and an end within a fixed time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

_GRACE = {signal.SIGINT: 0.4, signal.SIGTERM: 10.0, signal.SIGHUP: 10.0}
"""Seconds that a signal leaves for closing files and locks."""

_received: list[int] = []
_told = threading.Lock()


class Interrupted(KeyboardInterrupt):
    """A signal came. For KeyboardInterrupt itself the interpreter sets an exit code of its own."""


def install() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise :class:`Interrupted`, and end this process if that takes too long.

    The interpreter raises only between two steps of Python code, and a library may be computing, so a thread ends the
    process when the time is over. Signals that this process was started to ignore (``nohup``) stay ignored.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _GRACE:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _unraisable
    threading.Thread(target=_end, args=(reader,), daemon=True).start()


def ignore() -> None:
    """Ignore signals from now on: the command has ended, and the interpreter is about to."""
    for number in _GRACE:
        signal.signal(number, signal.SIG_IGN)


def received() -> int | None:
    """Return the first signal that came."""
    return _received[0] if _received else None


def tell(number: int) -> int:
    """Say once that a signal ended this command, and return the exit code."""
    if _told.acquire(blocking=False):
        how = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        line = f"mdcr: stopped{how}; the same command resumes where it stopped\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
    return 128 + number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    ignore()
    _received.append(number)
    raise Interrupted


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Keep quiet about an interrupt in a destructor, where it cannot be raised: the thread ends the process."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _end(reader: int) -> None:
    while (number := os.read(reader, 1)[0]) not in _GRACE:
        pass
    time.sleep(_GRACE[signal.Signals(number)])
    os._exit(tell(number))
