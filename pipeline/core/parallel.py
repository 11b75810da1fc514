"""The same function over many items, in several processes or threads."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_PR_SET_PDEATHSIG = 1


def unordered(
    function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int
) -> Iterator[tuple[_Item, _Result]]:
    """Yield (item, ``function(item)``) as they are finished, from at most ``workers`` processes.

    One worker, or one item, runs in this process. Worker processes start fresh (no fork of a process that may run
    threads or a JVM) and die with this process, however it ends. The function is importable, with everything it needs
    in the item or bound by :func:`functools.partial`; both travel by pickling.
    """
    todo = list(items)
    if workers <= 1 or len(todo) <= 1:
        for item in todo:
            yield item, function(item)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(todo)), mp_context=context, initializer=_die_with, initargs=(os.getpid(),)
    ) as pool:
        futures: dict[Future[_Result], _Item] = {}
        try:
            with signals_held():
                futures = {pool.submit(function, item): item for item in todo}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()  # the pool then gives up every future itself
            raise
        except BaseException:
            for future in futures:
                future.cancel()
            raise


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while the block starts processes, which then ignore those of the terminal.

    This process handles a signal that came in the block once the block has ended. The processes end with it, silently.
    """
    terminal, came = {signal.SIGINT, signal.SIGHUP}, []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, terminal)
    handled = (*terminal, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: handler for number in handled if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda *arguments: came.append(arguments))
    try:
        resource_tracker.ensure_running()  # it lets SIGINT through again
        signal.pthread_sigmask(signal.SIG_BLOCK, terminal)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, frame in came[:1]:
        handlers[number](number, frame)


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int) -> Iterator[_Result]:
    """Yield ``function(item)`` of each item, in order, from threads; at most ``workers`` + 1 results wait.

    This is faster than one thread where the function releases the interpreter lock most of the time.
    """
    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            if len(waiting) > workers:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()


def _die_with(parent: int) -> None:
    """End this process when its parent ends, even by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        follow(parent)
    if os.getppid() != parent:
        os._exit(1)


def follow(parent: int) -> None:
    """End this process within a second of its parent's end; the thread that started it may end before."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
