"""Fetching a release: its files, several at a time, by HTTP ranges, resumed where an earlier run stopped, and checked.

A file gets its final name once it is complete and checked. Until then it is ``.partial-NAME``, beside it
``.state-NAME.json`` with what the server said.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.progress import Progress
from pipeline.sources.base import UNFINISHED
from pipeline.sources.lines import read_blocks
from pipeline.sources.parquet import open_parquet
from pipeline.sources.remote import (
    ATTEMPTS,
    TRANSIENT,
    Catalogue,
    Remote,
    Wait,
    bare,
    pause,
    raise_if_hopeless,
    say_wait,
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
    known = (_read_json(folder / RECORD, _Record) or _Record()).files
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


@dataclass(frozen=True)
class Downloader:
    """Fetches files of one release into one folder; used by many threads at once.

    Attributes:
        session: the HTTP client.
        catalogue: gives new addresses for expired ones.
        folder: where the files go.
        known: what an earlier run checked, by file name.
        report: progress callback; receives the bytes that arrived since the last call, negative if discarded.
        wait: sleeps; None: for the time given or until ``stop`` is set.
        stop: set it to end all downloads.
    """

    session: httpx.Client
    catalogue: Catalogue
    folder: Path
    known: Mapping[str, Mapping[str, object]]
    report: Callable[[int], None]
    wait: Wait | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, remote: Remote) -> Mapping[str, object]:
        """Fetch one file, unless it is there, and return what was checked.

        Raises:
            StageError: the server fails repeatedly, or refuses.
            CorruptError: the file is wrong twice.
        """
        path = self.folder / remote.name
        record = Partial(path)
        known = self.known.get(remote.name) or record.state.checked
        if path.is_file() and _still(known, remote) and path.stat().st_size == known["bytes"]:
            self.report(path.stat().st_size)
            return known
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.disk_errors(path.parent):
            self.report(record.size)
            try:
                checked = self._checked(remote, record)
            except CorruptError:
                try:
                    checked = self._checked(remote, record)
                except CorruptError as error:
                    raise CorruptError(error.what, "The server sent it twice like this: try again later") from error
            files.sync(record.partial)
            record.partial.replace(path)
            record.note(State(checked=checked))
        return checked

    def _checked(self, remote: Remote, record: Partial) -> dict[str, object]:
        self._complete(remote, record)
        try:
            return check(record.partial, remote, record.state.md5)
        except CorruptError:
            self._restart(record)
            raise

    def _complete(self, remote: Remote, record: Partial) -> None:
        """Append to the partial file until it is complete, or until attempts stop making progress."""
        fruitless, most = 0, record.size
        while fruitless < ATTEMPTS:
            seconds = 0.0
            try:
                problem, seconds = self._attempt(remote, record)
            except (httpx.RequestError, httpx.InvalidURL) as error:
                raise_if_hopeless(remote.url, error)
                problem = f"{type(error).__name__}: {error}"
            if not problem:
                return
            fruitless = 0 if record.size > most else fruitless + 1
            most = max(most, record.size)
            if fruitless < ATTEMPTS:
                seconds = max(seconds, pause(fruitless, None))
                say_wait(remote.url, problem, seconds)
                self._sleep(seconds)
            if re.match(f"HTTP ({'|'.join(map(str, _EXPIRED))})", problem):
                remote = self.catalogue.renewed(remote)
        raise StageError(
            f"{bare(remote.url)} could not be fetched ({problem})",
            "Run the same command again: it resumes where it stopped",
        )

    def _attempt(self, remote: Remote, record: Partial) -> tuple[str, float]:
        """Request what is missing.

        Returns:
            What went wrong, empty if the file is complete; the seconds that the server asks to wait.
        """
        start, headers = record.size, {}
        if start and start == record.state.total:
            return "", 0
        if start and record.state.etag:
            headers = {"Range": f"bytes={start}-", "If-Range": record.state.etag}
        with self.session.stream("GET", remote.url, headers=headers) as answer:
            if answer.status_code not in (200, 206):
                if answer.status_code == 416:
                    self._restart(record)
                return f"HTTP {answer.status_code}", pause(0, answer) if answer.status_code in TRANSIENT else 0
            sent = answer.headers.get("Content-Range", "")
            if answer.status_code == 200 or not sent.startswith(f"bytes {start}-"):
                self._restart(record)
                if answer.status_code == 206:
                    return f"the server sent another range: {sent}", 0
            record.begin(answer)
            with record.partial.open("ab") as handle:
                for chunk in answer.iter_raw():
                    if self.stop.is_set():
                        raise Stopped
                    handle.write(chunk)
                    self.report(len(chunk))
        total = record.state.total
        if total is not None and record.size != total:
            problem = f"the connection ended after {record.size:,} of {total:,} bytes"
            if record.size > total:  # the file became shorter on the server
                self._restart(record)
            return problem, 0
        return "", 0

    def _sleep(self, seconds: float) -> None:
        (self.wait or self.stop.wait)(seconds)
        if self.stop.is_set():
            raise Stopped

    def _restart(self, record: Partial) -> None:
        self.report(-record.size)
        record.forget()


def _still(checked: Mapping[str, object], remote: Remote) -> bool:
    """Return whether a checked file matches the listing."""
    listed = {"bytes": remote.bytes, "md5": remote.md5, "sha256": remote.sha256}
    return bool(checked) and all(checked.get(k, v) == v for k, v in listed.items() if v is not None)


class State(msgspec.Struct, frozen=True):
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
    checked: dict[str, object] = msgspec.field(default_factory=dict)


class Partial:
    """The part of a file that has arrived, and its state."""

    def __init__(self, path: Path) -> None:
        self.partial = path.with_name(f".partial-{path.name}")
        self._json = path.with_name(_STATE.replace("*", path.name))
        self.state = _read_json(self._json, State) or State()

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def begin(self, answer: httpx.Response) -> None:
        """Store what the response says about the file: ETag, length, MD5."""
        total = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers.get("Content-Length", "")
        tag = answer.headers.get("ETag", "")
        plain = "kms" not in answer.headers.get("x-amz-server-side-encryption", "")
        digits = re.fullmatch(r'"([0-9a-f]{32})"', tag)
        etag, md5 = tag if tag.startswith('"') else None, digits[1] if digits and plain else None
        self.note(State(etag, int(total) if total.isdecimal() else None, md5))

    def forget(self) -> None:
        """Remove what has arrived."""
        self.state = State()
        self.partial.unlink(missing_ok=True)
        self._json.unlink(missing_ok=True)

    def note(self, state: State) -> None:
        """Store the state."""
        files.write_text(self._json, msgspec.json.encode(state).decode())
        self.state = state


def check(path: Path, remote: Remote, md5: str | None) -> dict[str, object]:
    """Check a file by the strongest means available, and return what was checked.

    These are, in order: the SHA-256 of the listing, the MD5 of the listing or the server, the checksums inside a gzip
    file, the footer of a Parquet file.

    Args:
        path: the file.
        remote: its entry in the listing.
        md5: from the server, 32 hex digits.

    Raises:
        CorruptError: a check fails.
    """
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise CorruptError(f"{remote.name} has {size:,} bytes, the listing says {remote.bytes:,}")
    if remote.sha256:
        return {"bytes": size, "sha256": _same(remote, "SHA-256", files.sha256(path), remote.sha256)}
    if expected := remote.md5 or md5:
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return {"bytes": size, "md5": _same(remote, "MD5", digest, expected)}
    if path.suffix == ".gz":
        for _ in read_blocks(path):
            pass
        return {"bytes": size, "checked": "gzip"}
    if path.suffix == ".parquet":
        open_parquet(path)
        return {"bytes": size, "checked": "parquet"}
    return {"bytes": size}


def _same(remote: Remote, kind: str, digest: str, expected: str) -> str:
    if digest != expected.lower():
        raise CorruptError(f"{remote.name} has {kind} {digest}, and should have {expected}")
    return digest
