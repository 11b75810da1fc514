"""Fetching one file by HTTP ranges, resumed where an earlier attempt or run stopped.

A file gets its final name once it is complete and checked.
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
from pipeline.fetch.remote import (
    ATTEMPTS,
    TRANSIENT,
    Catalogue,
    Remote,
    Wait,
    bare,
    pause,
    refuse_hopeless,
    say_wait,
)
from pipeline.fetch.verify import check

_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""Answers of a storage server if a signed address has expired or the file has moved."""


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
            record.finish(checked)
        return checked

    def _checked(self, remote: Remote, record: Partial) -> dict[str, object]:
        self._complete(remote, record)
        try:
            return check(record.partial, remote, record.state.md5)
        except CorruptError:
            self._restart(record)
            raise

    def _complete(self, remote: Remote, record: Partial) -> None:
        """Append to the partial file until it is complete, or no attempt brings more than an earlier one."""
        fruitless, most = 0, record.size
        while fruitless < ATTEMPTS:
            seconds = 0.0
            try:
                problem, seconds = self._attempt(remote, record)
            except (httpx.RequestError, httpx.InvalidURL) as error:
                refuse_hopeless(remote.url, error)
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
    """Return whether a checked file is the one the listing has now."""
    listed = {"bytes": remote.bytes, "md5": remote.md5, "sha256": remote.sha256}
    return bool(checked) and all(checked.get(k, v) == v for k, v in listed.items() if v is not None)
