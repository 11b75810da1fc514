"""Fetch the files of a release: several at a time, checked before they get their names."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.progress import Progress, say
from pipeline.sources.base import UNFINISHED
from pipeline.sources.content import read_blocks
from pipeline.sources.records import open_parquet
from pipeline.sources.remote import Remote, sleep

RECORD = "release.json"

_ATTEMPTS = 3


@dataclass(frozen=True)
class Catalogue:
    """A publisher's listing of a release.

    Attributes:
        name: of the release, such as ``s2ag-2026-09-17``, and of its folder.
        files: those to fetch, in order.
        get: writes a file to a path, calls a function with each number of bytes written, and returns the file with what
            the server states of it; in threads. StageError if the server fails or refuses.
        stated: the publisher's number of rows by table.
    """

    name: str
    files: Sequence[Remote]
    get: Callable[[Remote, Path, Callable[[int], None]], Remote]
    stated: Mapping[str, int] = field(default_factory=dict)


class _Stopped(Exception):  # noqa: N818
    """Another file failed."""


def fetch_release(catalogue: Catalogue, folder: Path, *, connections: int = 4) -> dict[str, Any]:
    """Fetch the missing files of a release into ``folder``; write ``release.json`` there and return its content.

    Until its end the folder has a folder ``.fetching`` with the files that are not complete or checked.

    Args:
        catalogue: the release.
        folder: to be made; it may have files of an earlier run.
        connections: files fetched at a time.

    Raises:
        InputError: the disk is too small, or the folder has another release.
        StageError: a server cannot be reached or refuses; the next run fetches what is missing.
        CorruptError: a file fails its check each time.
    """
    unfinished = folder / UNFINISHED
    for record in (folder / RECORD, unfinished / RECORD):
        if isinstance(known := files.read_json(record), dict) and known.get("release") != catalogue.name:
            what = f"{folder} must be empty or have {catalogue.name}, got {str(known.get('release'))[:80]}"
            raise InputError(what, "Choose another folder with --output")
    paths = {remote.name: folder / remote.name for remote in catalogue.files}
    missing = [each for each in catalogue.files if not _holds(paths[each.name], each.bytes)]
    needed, free = sum(remote.bytes or 0 for remote in missing), files.free_bytes(folder)
    if needed > free:
        what = f"{catalogue.name} needs {needed / 2**30:,.0f} GiB more, but {folder} has {free / 2**30:,.0f} GiB free"
        raise InputError(what, "Choose another folder with --output")
    unfinished.mkdir(parents=True, exist_ok=True)
    files.write_text(unfinished / RECORD, json.dumps({"release": catalogue.name}))
    _fetch_all(catalogue, missing, folder, connections)
    sizes = {name: {"bytes": path.stat().st_size} for name, path in sorted(paths.items())}
    content: dict[str, Any] = {"release": catalogue.name, "files": sizes}
    content |= {"stated": dict(catalogue.stated)} if catalogue.stated else {}
    files.write_text(folder / RECORD, json.dumps(content, indent=1) + "\n")
    shutil.rmtree(unfinished)
    return content


def _holds(path: Path, size: int | None) -> bool:
    return path.is_file() and size in (None, path.stat().st_size)


def _fetch_all(catalogue: Catalogue, missing: Sequence[Remote], folder: Path, connections: int) -> None:
    """Fetch files, several at a time, and stop at the first that fails."""
    sizes, lock, stop = [remote.bytes for remote in missing], threading.Lock(), threading.Event()
    total = None if None in sizes else sum(filter(None, sizes))
    with Progress(total, f"fetch {catalogue.name}", "B") as progress, futures.ThreadPoolExecutor(connections) as pool:

        def report(count: int) -> None:
            if stop.is_set():
                raise _Stopped
            with lock:
                progress.add(count)

        running = [pool.submit(_fetch, catalogue, remote, folder, report) for remote in missing]
        try:
            done, _ = futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        for error in (future.exception() for future in done):
            if error and not isinstance(error, _Stopped):
                raise error


def _fetch(catalogue: Catalogue, remote: Remote, folder: Path, report: Callable[[int], None]) -> None:
    """Fetch a file, from its beginning if it fails, and give it its name once it is checked."""
    path, partial = folder / remote.name, folder / UNFINISHED / remote.name
    for place in (path, partial):
        place.parent.mkdir(parents=True, exist_ok=True)
    with files.disk_errors(folder):
        for attempt in range(1, _ATTEMPTS + 1):
            received = 0

            def count(received_now: int) -> None:
                nonlocal received
                received += received_now
                report(received_now)

            try:
                check(partial, catalogue.get(remote, partial, count))
                break
            except (InputError, StageError) as error:
                if attempt == _ATTEMPTS:
                    raise
                say(f"{error.what}: it is fetched again")
                report(-received)
                sleep(5.0 * attempt)
        files.sync(partial)
        partial.replace(path)


def check(path: Path, remote: Remote) -> None:
    """Check a file in the strongest available way; CorruptError if it fails.

    In order: the SHA-256 or the MD5 of the listing, the checksums inside a gzip file, the footer of a Parquet file.
    """
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise CorruptError(f"{remote.name} has {size:,} bytes, the listing says {remote.bytes:,}", "Try again later")
    for kind, expected in (("sha256", remote.sha256), ("md5", remote.md5)):
        if expected:
            with path.open("rb") as handle:
                hashed = hashlib.file_digest(handle, functools.partial(hashlib.new, kind, usedforsecurity=False))
            if hashed.hexdigest() != expected.lower():
                what = f"{remote.name} must have {kind.upper()} {expected}, got {hashed.hexdigest()}"
                raise CorruptError(what, "Try again later")
            return
    if path.suffix == ".gz":
        with path.open("rb") as handle:
            if (head := handle.read(40))[:2] != b"\x1f\x8b":
                raise CorruptError(f"{remote.name} must be a gzip file, got {head!r}", "Try again later")
        for _ in read_blocks(path):
            pass
    elif path.suffix == ".parquet":
        open_parquet(path)
