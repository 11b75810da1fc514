"""Remote files, and requests to publishers with total deadlines: objects by obstore, answers of an API by httpx."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.core import files
from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say, span
from pipeline.core.text import without_credentials

_T = TypeVar("_T")

SECONDS = 60.0
"""Time limit of an answer, however slowly it comes."""

_SLOWEST = 20_000
"""Bytes a second, below which a file counts as not sent."""

_ATTEMPTS, _MAX_ANSWER = 6, 8 * 2**20
"""Attempts of a request to an API, and bytes of its answer; the longest listings have a few hundred kilobytes."""

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""


@dataclass(frozen=True)
class Remote:
    """A file to fetch: path below the folder, what finds it at its publisher, size and checksums if they are listed."""

    name: str
    source: Any = None
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        for name in self.name.split("/"):
            plain_name(name)
        if self.bytes is not None and not 0 <= self.bytes < 2**62:
            raise InputError(f"the server's size of {self.name} is {str(self.bytes)[:30]} bytes", "Check --endpoint")


def plain_name(name: str) -> str:
    """Return a server's name of a release, folder or file; InputError unless it is plain, visible and short."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=+ -]{0,199}", name):
        raise InputError(f"the server's name {name!r} is not allowed", "Report it")
    return name


def endpoint_of(url: str) -> str:
    """Return an address of HTTP without a slash at its end; InputError for another text."""
    import httpx

    try:
        parts = httpx.URL(url)
        if parts.scheme not in ("http", "https") or not parts.host.encode("idna") or parts.port == 0:
            raise ValueError
    except (httpx.InvalidURL, ValueError) as error:  # of names of hosts too
        what = f"--endpoint must be an address of HTTP, got {public_url(url)!r}"
        raise InputError(what, "Write --endpoint=https://HOST/PATH") from error
    return url.rstrip("/")


def public_url(url: str) -> str:
    """Return an address without its query, which may have a signature, and without user and password."""
    return without_credentials(url.partition("?")[0])


def reason_of(error: BaseException) -> str:
    """Return what a library says of a failure, as one line without credentials."""
    said, _, details = without_credentials(str(error)).partition("\n\n")
    said = " ".join(re.sub(r"[?]\S*", "", f"{type(error).__name__}: {said}").split())[:300]
    causes = re.findall(r'(?:error|message): "([^"]+)"', details)  # obstore's, the innermost last
    return f"{said} ({causes[-1]})" if causes else said


def within(seconds: float, what: str, function: Callable[[], _T]) -> _T:
    """Return ``function()``; StageError if it takes longer, when its thread is left and ends with this process."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001  # raised below
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise StageError(f"{what} did not come in {span(seconds)}", "Try again later, or check --endpoint") from error


def seconds_of(size: int | None) -> float:
    """Return the time limit of a file of so many bytes."""
    return SECONDS + (size or 0) / _SLOWEST


def sleep(seconds: float) -> None:
    """Sleep."""
    threading.Event().wait(seconds)


def ask(url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Return status and body of the answer to a small GET, which follows no redirect.

    Raises:
        StageError: the server cannot be reached, fails repeatedly, or sends more than 8 MiB, or at a crawl.
    """
    import httpx

    address = public_url(url)

    def request() -> tuple[int, bytes, str]:
        with httpx.stream("GET", url, headers={"Accept-Encoding": "identity", **headers}, timeout=SECONDS) as response:
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > _MAX_ANSWER:
                    raise StageError(f"{address} answered with more than 8 MiB", "Check --endpoint")
            return response.status_code, bytes(body), response.headers.get("Retry-After", "")

    for attempt in range(1, _ATTEMPTS + 1):
        seconds = 2.0**attempt
        try:
            status, body, asked = within(SECONDS, f"the answer of {address}", request)
            if status not in _TRANSIENT:
                return status, body
            problem = f"HTTP {status}"
            seconds = max(seconds, min(float(asked), 300.0) if re.fullmatch("[0-9]{1,9}", asked) else 0.0)
        except (httpx.RequestError, httpx.InvalidURL) as error:
            problem = reason_of(error)
            if _is_unknown_host(error):
                raise StageError(
                    f"{address} cannot be reached: {problem}", "Check the network and --endpoint"
                ) from error
        if attempt < _ATTEMPTS:
            say(f"{address}: {problem}; the next attempt is in {span(seconds)}")
            sleep(seconds)
    raise StageError(
        f"{address} gave no answer in {_ATTEMPTS} attempts ({problem})", "Check the network and --endpoint"
    )


def _is_unknown_host(error: BaseException | None) -> bool:
    """Return whether an error comes from a name of a host that nobody knows, so that trying again cannot help."""
    while error is not None and not isinstance(error, socket.gaierror):
        error = error.__cause__ or error.__context__
    return error is not None


STORE: dict[str, Any] = {
    "client_options": {"allow_http": True, "timeout": "7 days", "connect_timeout": "30 seconds"},
    "retry_config": {"max_retries": 6},
}
"""Options of a store of obstore; :func:`within` limits each of its answers."""


def write_object(
    store: Any, key: str, remote: Remote, path: Path, report: Callable[[int], None], options: Any = None
) -> Remote:
    """Write an object to a path, and return it with the size and the MD5 that the storage states.

    obstore goes on with an object that breaks off, unless it has another ETag then.

    Raises:
        StageError: the storage cannot be reached or refuses, or the disk is too small.
    """
    import obstore

    with reported(remote.name):
        answer = within(SECONDS, f"an answer for {remote.name}", lambda: obstore.get(store, key, options=options))
        size, etag = answer.meta["size"], re.fullmatch(r'"([0-9a-f]{32})"', answer.meta["e_tag"] or "")
        if size > (free := files.free_bytes(path.parent)):
            raise StageError(f"{remote.name} has {size:,} bytes, the disk {free:,} free", "Choose another --output")

        def write() -> None:
            with path.open("wb") as handle:
                for chunk in answer.stream(2**20):
                    report(handle.write(chunk))

        within(seconds_of(size), remote.name, write)
    return replace(remote, bytes=remote.bytes or size, md5=remote.md5 or (etag[1] if etag else None))


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Raise StageError for all that obstore raises."""
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except (FileNotFoundError, PreconditionError) as error:
        remedy = "If the release was replaced, fetch the new one into another folder"
        raise StageError(f"{what} is not there any more ({reason_of(error)})", remedy) from error
    except (BaseError, ValueError) as error:
        raise StageError(f"{what} does not come ({reason_of(error)})", "Check the network and --endpoint") from error
