"""Fetching a release: its files, several at a time, by HTTP ranges, resumed where an earlier run stopped, and checked.

A file gets its final name once it is complete and checked. Until then it is ``.partial-NAME``, beside it
``.state-NAME.json`` with what the server said.
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
from pipeline.sources.records import open_parquet, read_blocks
from pipeline.sources.remote import (
    ATTEMPTS,
    TRANSIENT,
    Catalogue,
    Remote,
    bare,
    pause,
    raise_if_hopeless,
    wait,
)

RECORD = "release.json"

_STATE = ".state-*.json"

_T = TypeVar("_T")

_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""Answers of a storage server if a signed address has expired or the file has moved."""


def fetch_release(
    session: httpx.Client,
    catalogue: Catalogue,
    remotes: Sequence[Remote],
    folder: Path,
    *,
    connections: int = 4,
    stated: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Fetch what is missing of a release into ``folder`` and return the record, which is ``release.json`` there.

    ``remotes`` are all or some of the catalogue's files, of which ``connections`` are fetched at a time. ``stated`` is
    how many rows the publisher says that each table has (:meth:`pipeline.sources.base.Release.stated`).

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
    known = (_read_json(folder / RECORD, _Record) or _Record()).files
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
            running[pool.submit(download.fetch, known.get(remote.name, {}))] = remote
        try:
            done, _ = futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    failed = [error for future in done if (error := future.exception()) and not isinstance(error, Stopped)]
    if failed:
        raise failed[0]
    checked = {remote.name: future.result() for future, remote in running.items()}
    record: dict[str, Any] = {"release": catalogue.name, "files": dict(sorted(checked.items()))}
    record |= {"stated": dict(stated)} if stated else {}
    files.write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
    for path in folder.rglob(_STATE):
        path.unlink()
    (folder / UNFINISHED).unlink()
    return record


class _Record(msgspec.Struct):
    files: dict[str, dict[str, Any]] = {}


def _read_json(path: Path, kind: type[_T]) -> _T | None:
    """Return what an earlier run noted; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Stopped(Exception):  # noqa: N818
    """The download was stopped because another file failed."""


class _State(msgspec.Struct, frozen=True):
    """State of a file that is being fetched, from the server's headers.

    Attributes:
        etag: the server's name for this version of the file.
        total: bytes of the whole file, None if the server did not say.
        md5: 32 hex digits if the ETag is an MD5 (of an upload in one piece, not encrypted by a key).
        checked: what was checked once the file was complete; empty before.
    """

    etag: str | None = None
    total: int | None = None
    md5: str | None = None
    checked: dict[str, object] = {}

    @classmethod
    def of(cls, answer: httpx.Response) -> _State:
        """Return what a response says about a file."""
        total = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers.get("Content-Length", "")
        tag = answer.headers.get("ETag", "")
        plain = "kms" not in answer.headers.get("x-amz-server-side-encryption", "")
        digits = re.fullmatch(r'"([0-9a-f]{32})"', tag)
        etag, md5 = tag if tag.startswith('"') else None, digits[1] if digits and plain else None
        return cls(etag, int(total) if total.isdecimal() else None, md5)


class Download:
    """Fetches one file; ``report`` receives the bytes that arrived, negative if discarded; ``stop`` ends it."""

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
        self._state = _read_json(self._json, _State) or _State()

    def fetch(self, known: Mapping[str, object]) -> Mapping[str, object]:
        """Fetch the file, unless it is there as an earlier run checked it, and return what was checked.

        Raises:
            StageError: the server fails repeatedly, or refuses.
            CorruptError: the file is wrong twice.
        """
        known = known or self._state.checked
        if self._path.is_file() and self._is_listed(known) and self._path.stat().st_size == known["bytes"]:
            self._report(self._path.stat().st_size)
            return known
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.disk_errors(self._path.parent):
            self._report(self._size)
            try:
                checked = self._checked()
            except CorruptError:
                try:
                    checked = self._checked()
                except CorruptError as error:
                    raise CorruptError(error.what, "The server sent it twice like this: try again later") from error
            files.sync(self._partial)
            self._partial.replace(self._path)
            self._note(_State(checked=checked))
        return checked

    @property
    def _size(self) -> int:
        return self._partial.stat().st_size if self._partial.is_file() else 0

    def _is_listed(self, checked: Mapping[str, object]) -> bool:
        """Whether a checked file matches the listing."""
        listed = {"bytes": self._remote.bytes, "md5": self._remote.md5, "sha256": self._remote.sha256}
        return bool(checked) and all(checked.get(k, v) == v for k, v in listed.items() if v is not None)

    def _checked(self) -> dict[str, object]:
        self._complete()
        try:
            return check(self._partial, self._remote, self._state.md5)
        except CorruptError:
            self._restart()
            raise

    def _complete(self) -> None:
        """Append to the partial file until it is complete, or until attempts stop making progress."""
        fruitless, most = 0, self._size
        while fruitless < ATTEMPTS:
            seconds = 0.0
            try:
                problem, seconds = self._attempt()
            except (httpx.RequestError, httpx.InvalidURL) as error:
                raise_if_hopeless(self._remote.url, error)
                problem = f"{type(error).__name__}: {error}"
            if not problem:
                return
            fruitless = 0 if self._size > most else fruitless + 1
            most = max(most, self._size)
            if fruitless < ATTEMPTS:
                wait(self._remote.url, problem, max(seconds, pause(fruitless, None)), self._stop)
                self._raise_if_stopped()
            if re.match(f"HTTP ({'|'.join(map(str, _EXPIRED))})", problem):
                self._remote = self._catalogue.renewed(self._remote)
        raise StageError(
            f"{bare(self._remote.url)} could not be fetched ({problem})",
            "Run the same command again: it resumes where it stopped",
        )

    def _attempt(self) -> tuple[str, float]:
        """Request what is missing; return the problem, empty if complete, and the seconds the server asks to wait."""
        start, headers = self._size, {}
        if start and start == self._state.total:
            return "", 0
        if start and self._state.etag:
            headers = {"Range": f"bytes={start}-", "If-Range": self._state.etag}
        with self._session.stream("GET", self._remote.url, headers=headers) as answer:
            if answer.status_code not in (200, 206):
                if answer.status_code == 416:
                    self._restart()
                return f"HTTP {answer.status_code}", pause(0, answer) if answer.status_code in TRANSIENT else 0
            sent = answer.headers.get("Content-Range", "")
            if answer.status_code == 200 or not sent.startswith(f"bytes {start}-"):
                self._restart()
                if answer.status_code == 206:
                    return f"the server sent another range: {sent}", 0
            self._note(_State.of(answer))
            with self._partial.open("ab") as handle:
                for chunk in answer.iter_raw():
                    self._raise_if_stopped()
                    handle.write(chunk)
                    self._report(len(chunk))
        total = self._state.total
        if total is not None and self._size != total:
            problem = f"the connection ended after {self._size:,} of {total:,} bytes"
            if self._size > total:  # the file became shorter on the server
                self._restart()
            return problem, 0
        return "", 0

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _restart(self) -> None:
        self._report(-self._size)
        self._state = _State()
        self._partial.unlink(missing_ok=True)
        self._json.unlink(missing_ok=True)

    def _note(self, state: _State) -> None:
        files.write_text(self._json, msgspec.json.encode(state).decode())
        self._state = state


def check(path: Path, remote: Remote, md5: str | None) -> dict[str, object]:
    """Check a file by the strongest means available, and return what was checked; CorruptError if it fails.

    These are, in order: the SHA-256 of the listing, the MD5 of the listing or the server, the checksums inside a gzip
    file, the footer of a Parquet file.
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
                raise CorruptError(f"{remote.name} has {actual}, and should have {expected}")
            return {"bytes": size, kind: hashed.hexdigest()}
    if path.suffix == ".gz":
        for _ in read_blocks(path):
            pass
        return {"bytes": size, "checked": "gzip"}
    if path.suffix == ".parquet":
        open_parquet(path)
        return {"bytes": size, "checked": "parquet"}
    return {"bytes": size}
