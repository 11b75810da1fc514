"""Fetching a release: its files, several at a time, and a record of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import msgspec

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.fetch.download import Downloader, Stopped
from pipeline.fetch.partial import STATE
from pipeline.fetch.remote import Catalogue, Remote, Wait
from pipeline.sources.base import UNFINISHED

RECORD = "release.json"


def fetch_release(
    session: httpx.Client,
    catalogue: Catalogue,
    remotes: Sequence[Remote],
    folder: Path,
    *,
    connections: int = 4,
    sleep: Wait | None = None,
) -> dict[str, Any]:
    """Fetch files of a release into ``folder`` and return the record, which is ``release.json`` there.

    Complete files are not fetched again.

    Args:
        session: the HTTP client.
        catalogue: gives new addresses for expired ones.
        remotes: the files, all or some of the catalogue's.
        folder: where they go, under their names.
        connections: files fetched at a time.
        sleep: waits between attempts; None: really.

    Raises:
        InputError: the disk is too small, or there is no file to fetch.
        StageError: a server cannot be reached or refuses; what was fetched stays, and the next run resumes.
        CorruptError: a file does not match its checksum.
    """
    if not remotes:
        raise InputError(f"{catalogue.name} must have a file to fetch, got an empty listing", "Check --endpoint")
    missing = sum(remote.bytes or 0 for remote in remotes if not (folder / remote.name).is_file())
    if missing > files.free_bytes(folder):
        raise InputError(
            f"{catalogue.name} takes {missing / 2**30:,.0f} GiB more, and {folder} has "
            f"{files.free_bytes(folder) / 2**30:,.0f} GiB free",
            "Choose another folder with --output",
        )
    folder.mkdir(parents=True, exist_ok=True)
    known = _recorded(folder / RECORD)
    (folder / UNFINISHED).touch()
    sizes = [remote.bytes for remote in remotes]
    total = None if None in sizes else sum(filter(None, sizes))
    lock = threading.Lock()
    with Progress(total, f"fetch {catalogue.name}", "B") as progress, ThreadPoolExecutor(connections) as pool:

        def report(count: int) -> None:
            with lock:
                progress.add(count)

        downloader = Downloader(session, catalogue, folder, known, report, sleep)
        futures = {pool.submit(downloader.fetch, remote): remote for remote in remotes}
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            downloader.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    failed = [error for future in done if (error := future.exception()) and not isinstance(error, Stopped)]
    if failed:
        raise failed[0]
    checked = {remote.name: future.result() for future, remote in futures.items()}
    record = {"release": catalogue.name, "files": dict(sorted(checked.items()))}
    files.write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
    for path in folder.rglob(STATE):
        path.unlink()
    (folder / UNFINISHED).unlink()
    return record


class _Record(msgspec.Struct):
    files: dict[str, dict[str, Any]]


def _recorded(path: Path) -> dict[str, dict[str, Any]]:
    """Return what an earlier run checked; without a readable record, nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Record).files
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
