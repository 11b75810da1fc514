"""A shared file system as another machine sees it: its listings and attributes are seconds old (simulated).

What this process writes it sees at once; what others wrote is there when it is opened, but not yet listed, and not
there when asked for, until it is old enough. So does NFS with its attribute caches.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def stale_view(root: Path, attributes: float, listings: float) -> Iterator[dict[str, int]]:
    """See the files below ``root`` late: ask for them after ``attributes`` seconds, list them after ``listings``.

    Yields:
        How often a file was hidden, by name of the operation.
    """
    real = {name: getattr(os, name) for name in ("stat", "listdir", "scandir", "replace", "rename")}
    own: set[str] = set()
    hidden = {"stat": 0, "listdir": 0, "scandir": 0}
    below = str(root.resolve())

    def late(path: Any, delay: float, what: str) -> bool:
        name = "" if isinstance(path, int) else os.path.abspath(os.fspath(path))
        if not name.startswith(below) or name in own or name.endswith((".tmp", ".lock")):
            return False
        try:
            status = real["stat"](name)
        except OSError:
            return False
        young = stat.S_ISREG(status.st_mode) and time.time() - status.st_ctime < delay
        hidden[what] += young
        return young

    def stat_late(path: Any, *arguments: Any, **options: Any) -> Any:
        if late(path, attributes, "stat"):
            raise FileNotFoundError(2, "stale", str(path))
        return real["stat"](path, *arguments, **options)

    def listdir_late(path: Any = ".") -> list[str]:
        names = real["listdir"](path)
        return names if isinstance(path, int) else [n for n in names if not late(Path(path, n), listings, "listdir")]

    @contextmanager
    def scandir_late(path: Any = ".") -> Iterator[Iterator[os.DirEntry[str]]]:
        with real["scandir"](path) as entries:
            yield (entry for entry in entries if isinstance(path, int) or not late(entry.path, listings, "scandir"))

    def moved(name: str) -> Any:
        def move(source: Any, target: Any, **options: Any) -> None:
            real[name](source, target, **options)
            old, new = (os.path.abspath(os.fspath(path)) for path in (source, target))
            own.update([new, *(new + old_path.removeprefix(old) for old_path in own if old_path.startswith(f"{old}/"))])

        return move

    views = {"stat": stat_late, "listdir": listdir_late, "scandir": scandir_late}
    with pytest.MonkeyPatch.context() as patch:
        for name, view in (views | {name: moved(name) for name in ("replace", "rename")}).items():
            patch.setattr(os, name, view)
        yield hidden
