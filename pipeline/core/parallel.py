"""Applies a function to many items in several processes or threads."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
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
    """Yield (item, ``function(item)``) in order of completion, from at most ``workers`` processes.

    One worker, or one item, runs in this process. Workers are spawned, not forked, since this process may run threads
    or a JVM, and die with this process. Function and items must pickle; :func:`functools.partial` may bind arguments.
    """
    item_list = list(items)
    if workers <= 1 or len(item_list) <= 1:
        for item in item_list:
            yield item, function(item)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(item_list)), mp_context=context, initializer=_die_with, initargs=(os.getpid(),)
    ) as pool:
        futures: dict[Future[_Result], _Item] = {}
        try:
            with signals_held():
                futures = {pool.submit(function, item): item for item in item_list}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()  # the pool then cancels all futures
            raise
        except BaseException:
            for future in futures:
                future.cancel()
            raise


@contextmanager
def signals_held() -> Iterator[None]:
    """Delay signals while the block starts processes, which then ignore signals of the terminal.

    This process handles a signal received in the block when the block ends. The processes end silently with it.
    """
    terminal, received = {signal.SIGINT, signal.SIGHUP}, []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, terminal)
    handled = (*terminal, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: handler for number in handled if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda *arguments: received.append(arguments))
    try:
        resource_tracker.ensure_running()  # it unblocks SIGINT
        signal.pthread_sigmask(signal.SIG_BLOCK, terminal)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, frame in received[:1]:
        handlers[number](number, frame)


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int) -> Iterator[_Result]:
    """Yield ``function(item)`` in the order of items, from threads; at most ``workers`` + 1 results wait.

    It is faster than one thread if the function releases the interpreter lock most of the time.
    """
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures: deque[Future[_Result]] = deque()
        for item in items:
            if len(futures) > workers:
                yield futures.popleft().result()
            futures.append(pool.submit(function, item))
        while futures:
            yield futures.popleft().result()


def _die_with(parent: int) -> None:
    """End this process when its parent ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
