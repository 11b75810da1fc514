"""Fetch the files of a release: in parallel, with HTTP ranges, resuming earlier runs, with checks.

A file gets its final name once it is complete and checked. Until then it is ``.partial-NAME``, and
``.state-NAME.json`` has the server's answer.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.progress import Progress
from pipeline.sources.base import UNFINISHED
from pipeline.sources.content import read_blocks
from pipeline.sources.records import open_parquet
from pipeline.sources.remote import (
    ATTEMPTS,
    FAILURES,
    TRANSIENT,
    Catalogue,
    Remote,
    backoff,
    decoded,
    public_url,
    raise_if_permanent,
    retry_after,
    wait,
)

RECORD = "release.json"

_STATE = ".state-*.json"

_T = TypeVar("_T")

_RESERVE = 2**30
"""Bytes that a file of unknown size leaves on the disk."""

_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""Status codes of a storage server if a signed address has expired or the file has moved."""


def fetch_release(
    session: httpx.Client,
    catalogue: Catalogue,
    remotes: Sequence[Remote],
    folder: Path,
    *,
    connections: int = 4,
    stated: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Fetch the missing files of a release into ``folder``; write ``release.json`` there and return its content.

    ``remotes`` are all or some files of the catalogue; ``connections`` of them are fetched at a time. ``stated`` is the
    publisher's number of rows by table (:meth:`pipeline.sources.base.Release.stated`).

    Raises:
        InputError: the disk is too small, or there is no file to fetch.
        StageError: a server cannot be reached or refuses; the next run resumes.
        CorruptError: a file does not match its checksum.
    """
    if not remotes:
        raise InputError(f"{catalogue.name} must have a file to fetch, got an empty listing", "Check --endpoint")
    missing = sum(remote.bytes or 0 for remote in remotes if not (folder / remote.name).is_file())
    if missing > files.free_bytes(folder):
        raise InputError(
            f"{catalogue.name} needs {missing / 2**30:,.0f} GiB more, but {folder} has "
            f"{files.free_bytes(folder) / 2**30:,.0f} GiB free",
            "Choose another folder with --output",
        )
    folder.mkdir(parents=True, exist_ok=True)
    recorded = (_recorded(folder / RECORD, _Record) or _Record()).files
    (folder / UNFINISHED).touch()
    sizes = [remote.bytes for remote in remotes]
    total = None if None in sizes else sum(filter(None, sizes))
    lock = threading.Lock()
    with Progress(total, f"fetch {catalogue.name}", "B") as progress, futures.ThreadPoolExecutor(connections) as pool:

        def report(count: int) -> None:
            with lock:
                progress.add(count)

        stop, running = threading.Event(), {}
        for remote in remotes:
            download = Download(session, catalogue, remote, folder / remote.name, report, stop)
            running[pool.submit(download.fetch, recorded.get(remote.name, {}))] = remote
        try:
            finished, _ = futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    failed = [error for future in finished if (error := future.exception()) and not isinstance(error, Stopped)]
    if failed:
        raise failed[0]
    checks = {remote.name: future.result() for future, remote in running.items()}
    record: dict[str, Any] = {"release": catalogue.name, "files": dict(sorted(checks.items()))}
    record |= {"stated": dict(stated)} if stated else {}
    files.write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
    for path in folder.rglob(_STATE):
        path.unlink()
    (folder / UNFINISHED).unlink()
    return record


class _Record(msgspec.Struct):
    files: dict[str, dict[str, Any]] = {}


def _recorded(path: Path, kind: type[_T]) -> _T | None:
    """Return the record of an earlier run; None if it is missing or unreadable."""
    return decoded(path.read_bytes(), kind) if path.is_file() else None


class Stopped(Exception):  # noqa: N818
    """The download was stopped because another file failed."""


class _State(msgspec.Struct, frozen=True):
    """State of a file that is being fetched, from the response headers.

    Attributes:
        etag: ETag of this version of the file.
        total: size of the complete file in bytes; None if unknown.
        md5: 32 hex digits if the ETag is an MD5 (of an upload in one piece, not encrypted by a key).
        checked: results of :func:`check`; empty until the file is complete.
    """

    etag: str | None = None
    total: int | None = None
    md5: str | None = None
    checked: dict[str, object] = {}

    @classmethod
    def from_response(cls, response: httpx.Response) -> _State:
        """Return the state that response headers describe."""
        headers = response.headers
        total = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
        etag = headers.get("ETag", "")
        is_md5 = re.fullmatch(r'"[0-9a-f]{32}"', etag) and "kms" not in headers.get("x-amz-server-side-encryption", "")
        strong = etag if etag.startswith('"') and etag.isascii() else None
        return cls(
            strong, int(total) if re.fullmatch("[0-9]{1,18}", total) else None, etag.strip('"') if is_md5 else None
        )


class Download:
    """Fetches one file. ``report`` receives the number of bytes received, negative if discarded; ``stop`` ends it."""

    def __init__(
        self,
        session: httpx.Client,
        catalogue: Catalogue,
        remote: Remote,
        path: Path,
        report: Callable[[int], None],
        stop: threading.Event,
    ) -> None:
        self._session, self._catalogue, self._remote, self._path = session, catalogue, remote, path
        self._report, self._stop = report, stop
        self._partial = path.with_name(f".partial-{path.name}")
        self._json = path.with_name(_STATE.replace("*", path.name))
        self._state = _recorded(self._json, _State) or _State()

    def fetch(self, recorded: Mapping[str, object]) -> Mapping[str, object]:
        """Fetch the file unless an earlier run has, and return the results of :func:`check`.

        Raises:
            StageError: the server fails repeatedly, or refuses.
            CorruptError: the file fails the check twice.
        """
        recorded = recorded or self._state.checked
        if self._path.is_file() and self._is_listed(recorded) and self._path.stat().st_size == recorded["bytes"]:
            self._report(self._path.stat().st_size)
            return recorded
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.disk_errors(self._path.parent):
            self._report(self._partial_bytes)
            for is_last in (False, True):
                self._fetch_all()
                try:
                    checked = check(self._partial, self._remote, self._state.md5)
                    break
                except CorruptError as error:
                    self._restart()
                    if is_last:
                        raise CorruptError(error.what, "The server sent the same twice: try again later") from error
            files.sync(self._partial)
            self._partial.replace(self._path)
            self._save_state(_State(checked=checked))
        return checked

    @property
    def _partial_bytes(self) -> int:
        return self._partial.stat().st_size if self._partial.is_file() else 0

    def _is_listed(self, checked: Mapping[str, object]) -> bool:
        """Whether a checked file matches the listing."""
        listed = {"bytes": self._remote.bytes, "md5": self._remote.md5, "sha256": self._remote.sha256}
        known = {key: value for key, value in listed.items() if value is not None}
        return bool(checked) and all(checked.get(key, value) == value for key, value in known.items())

    def _fetch_all(self) -> None:
        """Append to the partial file until it is complete; StageError after :data:`ATTEMPTS` without progress."""
        failures, max_bytes = 0, self._partial_bytes
        while failures < ATTEMPTS:
            seconds = 0.0
            try:
                problem, seconds = self._attempt()
            except FAILURES as error:
                raise_if_permanent(self._remote.url, error)
                problem = f"{type(error).__name__}: {error}"
            if not problem:
                return
            failures = 0 if self._partial_bytes > max_bytes else failures + 1
            max_bytes = max(max_bytes, self._partial_bytes)
            if failures < ATTEMPTS:
                wait(self._remote.url, problem, max(seconds, backoff(failures)), self._stop)
                self._raise_if_stopped()
            if re.match(f"HTTP ({'|'.join(map(str, _EXPIRED))})", problem):
                self._remote = self._catalogue.renewed(self._remote)
        raise StageError(
            f"{public_url(self._remote.url)} could not be fetched ({problem})",
            "Run the same command again: it resumes where it stopped",
        )

    def _attempt(self) -> tuple[str, float]:
        """Request the missing bytes; return the problem, empty if none, and the seconds to wait (``Retry-After``)."""
        start, headers = self._partial_bytes, {}
        if start and start == self._state.total:
            return "", 0
        if start and self._state.etag:
            headers = {"Range": f"bytes={start}-", "If-Range": self._state.etag}
        with self._session.stream("GET", self._remote.url, headers=headers) as response:
            if response.status_code not in (200, 206):
                if response.status_code == 416:
                    self._restart()
                return f"HTTP {response.status_code}", retry_after(response) if response.status_code in TRANSIENT else 0
            content_range = response.headers.get("Content-Range", "")
            if response.status_code == 200 or not content_range.startswith(f"bytes {start}-"):
                self._restart()
                if response.status_code == 206:
                    return f"the server sent another range: {content_range}", 0
            self._save_state(_State.from_response(response))
            length = self._remote.bytes if self._remote.bytes is not None else self._state.total
            with self._partial.open("ab") as handle:
                for chunk in response.iter_raw():
                    self._raise_if_stopped()
                    if length is None and files.free_bytes(self._path.parent) < _RESERVE:
                        raise StageError(
                            f"{self._remote.name} has no stated size and leaves less than 1 GiB at {self._path.parent}",
                            "Check --endpoint, or choose another folder with --output",
                        )
                    if length is not None and handle.tell() + len(chunk) > length:
                        self._restart()
                        return f"the server sent more than the {length:,} bytes of {self._remote.name}", 0
                    handle.write(chunk)
                    self._report(len(chunk))
        total = self._state.total
        if total is not None and self._partial_bytes != total:
            problem = f"the connection ended after {self._partial_bytes:,} of {total:,} bytes"
            if self._partial_bytes > total:  # the file became shorter on the server
                self._restart()
            return problem, 0
        return "", 0

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _restart(self) -> None:
        self._report(-self._partial_bytes)
        self._state = _State()
        self._partial.unlink(missing_ok=True)
        self._json.unlink(missing_ok=True)

    def _save_state(self, state: _State) -> None:
        files.write_text(self._json, msgspec.json.encode(state).decode())
        self._state = state


def check(path: Path, remote: Remote, md5: str | None) -> dict[str, object]:
    """Check a file in the strongest available way and return its size and that check; CorruptError if it fails.

    In order: the SHA-256 of the listing, the MD5 of the listing or the server, the checksums inside a gzip file, the
    footer of a Parquet file.
    """
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise CorruptError(f"{remote.name} has {size:,} bytes, the listing says {remote.bytes:,}")
    for kind, expected in (("sha256", remote.sha256), ("md5", remote.md5 or md5)):
        if expected:
            with path.open("rb") as handle:
                hashed = hashlib.file_digest(handle, functools.partial(hashlib.new, kind, usedforsecurity=False))
            if hashed.hexdigest() != expected.lower():
                actual = f"{kind.upper()} {hashed.hexdigest()}"
                raise CorruptError(f"{remote.name} must have {expected}, got {actual}")
            return {"bytes": size, kind: hashed.hexdigest()}
    if path.suffix == ".gz":
        for _ in read_blocks(path):
            pass
        return {"bytes": size, "checked": "gzip"}
    if path.suffix == ".parquet":
        open_parquet(path)
        return {"bytes": size, "checked": "parquet"}
    return {"bytes": size}
