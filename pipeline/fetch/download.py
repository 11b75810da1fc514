"""Fetching one file, by HTTP ranges, on from where an earlier attempt or an earlier run stopped.

It has its final name only when it is whole.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from pipeline.core import files
from pipeline.core.errors import CorruptError, StageError
from pipeline.fetch.partial import Partial
from pipeline.fetch.remote import ATTEMPTS, TRANSIENT, Catalogue, Remote, Wait, bare, pause
from pipeline.fetch.verify import check

_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""Answers of a storage server to a signed address that is too old, or to a file that moved."""


class Stopped(Exception):  # noqa: N818
    """Another file's failure ended the whole."""


@dataclass(frozen=True)
class Downloader:
    """Fetches files of one release into one folder; used by many threads at once.

    Attributes:
        session: the HTTP client.
        catalogue: gives new addresses for those that stopped working.
        folder: where the files go.
        known: what was checked of files that an earlier run fetched, by name.
        report: called with every number of bytes that arrived (less than 0 where some were given up).
        wait: sleeps; None: until the time is over or ``stop`` is set.
        stop: set to end all downloads soon.
    """

    session: httpx.Client
    catalogue: Catalogue
    folder: Path
    known: Mapping[str, Mapping[str, object]]
    report: Callable[[int], None]
    wait: Wait | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, remote: Remote) -> Mapping[str, object]:
        """Fetch one file, unless it is there, and return what was checked of it.

        Raises:
            StageError: the server goes on failing, or refuses.
            CorruptError: what it sends is twice not what it should be.
        """
        path = self.folder / remote.name
        record = Partial(path)
        known = self.known.get(remote.name) or record.checked
        if path.is_file() and _still(known, remote):
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
                    raise CorruptError(error.what, "The server sent it so twice: try again later") from error
            files.sync(record.partial)
            record.partial.replace(path)
            record.finish(checked)
        return checked

    def _checked(self, remote: Remote, record: Partial) -> dict[str, object]:
        md5 = self._complete(remote, record)
        try:
            return check(record.partial, remote, md5)
        except CorruptError:
            self._restart(record)
            raise

    def _complete(self, remote: Remote, record: Partial) -> str | None:
        """Append to the partial file until the server says it is whole; return the MD5 the server gives, if any."""
        fruitless, problem = 0, ""
        while fruitless < ATTEMPTS:
            before = record.size
            if fruitless:
                self._sleep(pause(fruitless, None))
            try:
                outcome = self._attempt(remote, record)
            except httpx.TransportError as error:
                outcome = f"{type(error).__name__}: {error}"
            if isinstance(outcome, _Whole):
                return outcome.md5
            problem = outcome
            fruitless = 0 if record.size > before else fruitless + 1
            if re.match(f"HTTP ({'|'.join(map(str, _EXPIRED))})", problem):
                remote = self.catalogue.renewed(remote)
        raise StageError(
            f"{bare(remote.url)} could not be fetched ({problem})",
            "Run the same command again: it goes on where it stopped",
        )

    def _attempt(self, remote: Remote, record: Partial) -> _Whole | str:
        """Ask once for what is missing; return what went wrong unless the file is whole."""
        start, headers = record.size, {}
        if start and start == record.total:
            return _Whole(record.md5)
        if start and record.etag:
            headers = {"Range": f"bytes={start}-", "If-Range": record.etag}
        with self.session.stream("GET", remote.url, headers=headers) as answer:
            if answer.status_code not in (200, 206):
                if answer.status_code == 416:
                    self._restart(record)
                if answer.status_code in TRANSIENT:
                    self._sleep(pause(0, answer))
                return f"HTTP {answer.status_code}"
            if answer.status_code == 200 or _starts_at(answer) != start:
                self._restart(record)
                if answer.status_code == 206:
                    return f"the server sent another range: {answer.headers.get('Content-Range')}"
            record.begin(answer)
            with record.partial.open("ab") as handle:
                for chunk in answer.iter_raw():
                    if self.stop.is_set():
                        raise Stopped
                    handle.write(chunk)
                    self.report(len(chunk))
        if record.total is not None and record.size < record.total:
            return f"the connection ended after {record.size:,} of {record.total:,} bytes"
        return _Whole(record.md5)

    def _sleep(self, seconds: float) -> None:
        (self.wait or self.stop.wait)(seconds)
        if self.stop.is_set():
            raise Stopped

    def _restart(self, record: Partial) -> None:
        self.report(-record.size)
        record.forget()


@dataclass(frozen=True)
class _Whole:
    md5: str | None


def _still(checked: Mapping[str, object], remote: Remote) -> bool:
    """Whether a file that was fetched and checked is the one the listing has now."""
    listed = {"bytes": remote.bytes, "md5": remote.md5, "sha256": remote.sha256}
    return bool(checked) and all(checked.get(k, v) == v for k, v in listed.items() if v is not None)


def _starts_at(answer: httpx.Response) -> int | None:
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
