"""Ctrl-C and requests to end: print one line, and exit within a fixed time with the exit code of the signal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

_GRACE = {signal.SIGINT: 0.4, signal.SIGTERM: 10.0, signal.SIGHUP: 10.0}
"""Seconds after a signal for closing files and locks."""

_received: list[int] = []
_reported = threading.Lock()


class Interrupted(KeyboardInterrupt):
    """A signal was received. For KeyboardInterrupt itself the interpreter would set another exit code."""


def install() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise :class:`Interrupted`, and end this process if that takes too long.

    The interpreter raises only between two steps of Python code. A library may run longer, so a thread ends the process
    after :data:`_GRACE`. Signals that were ignored when this process started (``nohup``) stay ignored.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in _GRACE:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)
    sys.unraisablehook = _unraisable
    threading.Thread(target=_exit_after_grace, args=(reader,), daemon=True).start()


def ignore() -> None:
    """Ignore signals from now on: the command has ended."""
    for signum in _GRACE:
        signal.signal(signum, signal.SIG_IGN)


def received() -> int | None:
    """Return the first signal received, or None."""
    return _received[0] if _received else None


def report(signum: int) -> int:
    """Print once that a signal ended this command, and return the exit code."""
    if _reported.acquire(blocking=False):
        how = "" if signum == signal.SIGINT else f" by {signal.Signals(signum).name}"
        line = f"mdcr: stopped{how}; the same command resumes where it stopped\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
    return 128 + signum


def _interrupt(signum: int, _frame: FrameType | None) -> None:
    ignore()
    _received.append(signum)
    raise Interrupted


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Print nothing about an interrupt in a destructor, which cannot raise it: the thread ends the process."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _exit_after_grace(reader: int) -> None:
    while (signum := os.read(reader, 1)[0]) not in _GRACE:
        pass
    time.sleep(_GRACE[signal.Signals(signum)])
    os._exit(report(signum))
