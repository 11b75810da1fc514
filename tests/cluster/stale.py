"""A shared file system as another machine sees it: slow, its listings and attributes seconds old (simulated).

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
def stale_view(root: Path, attributes: float, listings: float, slow: float = 0.0) -> Iterator[dict[str, int]]:
    """See the files below ``root`` late.

    Args:
        root: what is shared.
        attributes: seconds until a file can be asked for.
        listings: seconds until it is listed.
        slow: seconds an operation takes.

    Yields:
        How often a file was hidden, by name of the operation.
    """
    real = {name: getattr(os, name) for name in ("stat", "listdir", "scandir", "replace", "rename")}
    own: set[str] = set()
    hidden = {"stat": 0, "listdir": 0, "scandir": 0}
    below = str(root.resolve())

    def late(path: Any, delay: float, what: str) -> bool:
        if isinstance(path, int):
            return False
        name = os.path.abspath(os.fspath(path))
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
        time.sleep(slow)
        if late(path, attributes, "stat"):
            raise FileNotFoundError(2, "stale", str(path))
        return real["stat"](path, *arguments, **options)

    def listdir_late(path: Any = ".") -> list[str]:
        time.sleep(slow)
        names = real["listdir"](path)
        return names if isinstance(path, int) else [n for n in names if not late(Path(path, n), listings, "listdir")]

    class ScandirLate:
        def __init__(self, path: Any = ".") -> None:
            time.sleep(slow)
            self._entries = real["scandir"](path)
            self._path = path

        def __enter__(self) -> ScandirLate:
            return self

        def __exit__(self, *error: Any) -> None:
            self._entries.close()

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            return (e for e in self._entries if isinstance(self._path, int) or not late(e.path, listings, "scandir"))

    def moved(name: str) -> Any:
        def move(source: Any, target: Any, **options: Any) -> None:
            time.sleep(slow)
            real[name](source, target, **options)
            old, new = (os.path.abspath(os.fspath(path)) for path in (source, target))
            own.update([new, *(new + old_path.removeprefix(old) for old_path in own if old_path.startswith(f"{old}/"))])

        return move

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", stat_late)
        patch.setattr(os, "listdir", listdir_late)
        patch.setattr(os, "scandir", ScandirLate)
        patch.setattr(os, "replace", moved("replace"))
        patch.setattr(os, "rename", moved("rename"))
        yield hidden
