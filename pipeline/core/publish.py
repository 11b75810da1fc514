"""Publishing an artifact: its builder's lock, the rename of a finished folder, the replacement of damaged files."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipeline.core import files
from pipeline.core.artifact import matches
from pipeline.core.manifest import MANIFEST, Manifest
from pipeline.core.progress import say
from pipeline.core.workdir import Workdir


def publish(work: Workdir, manifest: Manifest, path: Path) -> None:
    """Write the manifest and move the finished folder to its final name; it replaces a folder without a manifest."""
    manifest.write(work.path)
    work.clear_records()
    if path.exists():
        shutil.rmtree(path)
    work.path.rename(path)
    for abandoned in path.glob(".*.tmp"):  # of processes that were lost
        abandoned.unlink(missing_ok=True)
    files.sync(path.parent)


def replace_files(work: Workdir, manifest: Manifest, path: Path, intact: dict[str, str], recorded: set[str]) -> None:
    """Move the files that differ into a published artifact one by one, and its manifest last.

    Whenever this is killed the artifact is still there, whole or damaged, and the next repair goes on.

    ``intact`` has the checksums of published files that are known to be intact, ``recorded`` what the manifest lists.
    """
    for output in manifest.outputs:
        if intact.get(output.path) != output.sha256 and not matches(path, output):
            (path / output.path).parent.mkdir(parents=True, exist_ok=True)
            (work.path / output.path).replace(path / output.path)
    listed = {output.path for output in manifest.outputs}
    folders = {name.split("/")[0] for name in listed if "/" in name}
    there = {
        file.relative_to(path).as_posix() for name in folders for file in (path / name).rglob("*") if file.is_file()
    }
    for name in (recorded | there) - listed:
        (path / name).unlink(missing_ok=True)
    files.sync(path)
    manifest.write(work.path)
    (work.path / MANIFEST).replace(path / MANIFEST)
    files.sync(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the builder's lock of an artifact. The system frees it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_file(path)
    handle = lock.open("a")
    try:
        while not _acquire(handle, lock):
            handle.close()
            handle = lock.open("a")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        handle.close()


def lock_file(path: Path) -> Path:
    """Return the lock of an artifact; beside a published one it is of a running or killed builder."""
    return path.with_name(f".{path.name}.lock")


def _acquire(handle: IO[str], lock: Path) -> bool:
    """Lock an open file. False: its last holder has removed it, so a new one must be opened."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another process is building {lock.stem.removeprefix('.')}: waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        say(f"no locks on {lock.parent} ({error.strerror}): run one builder at a time there")
        return True
    try:
        return os.fstat(handle.fileno()).st_ino == lock.stat().st_ino
    except FileNotFoundError:
        return False
