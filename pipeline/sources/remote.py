"""Remote files, catalogues of them, and small HTTP requests."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx

import pipeline
from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say, span
from pipeline.core.text import without_credentials

ATTEMPTS = 6
"""Attempts without a byte of progress before a request is given up."""

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""

_REDIRECTS = 10

_MAX_ANSWER = 8 * 2**20
"""Bytes of the longest answer that is read whole; the longest listings have a few hundred kilobytes."""


@dataclass(frozen=True)
class Remote:
    """One file to fetch: its path below the folder, an address, which may expire, and what is listed of it."""

    name: str
    url: str
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        for part in self.name.split("/"):
            plain_name(part)


def plain_name(name: str) -> str:
    """Return a server's name of a release, folder or file, if it is plain, visible and of at most 200 characters."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=+ -]{0,199}", name):
        raise InputError(f"the server's name {name!r} is not allowed", "Report it")
    return name


class Catalogue(Protocol):
    """A release as its publisher lists it."""

    @property
    def name(self) -> str:
        """Name of the release, such as ``s2ag-2026-09-17``: the folder it goes into."""

    def files(self) -> Sequence[Remote]:
        """Return its files."""

    def renewed(self, remote: Remote) -> Remote:
        """Return a file with a fresh address, in place of an expired one; any thread may call."""


def client() -> httpx.Client:
    """Return an HTTP client for many threads, with the proxies of the environment."""
    return httpx.Client(
        headers={"User-Agent": f"mdcr/{pipeline.__version__}", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(60, connect=30),
        limits=httpx.Limits(max_connections=64),
        follow_redirects=True,
    )


def ask(
    session: httpx.Client, url: str, headers: Mapping[str, str] | None = None, *, patient: bool = True
) -> httpx.Response:
    """Return the answer to a small GET, repeated after transient errors; another origin does not get ``headers``.

    A refused connection counts as transient if ``patient``: the server may be about to start. StageError if the server
    cannot be reached, fails repeatedly, or sends more than 8 MiB.
    """
    for attempt in range(1, ATTEMPTS + 1):
        answer = None
        try:
            answer = _redirected(session, session.build_request("GET", url, headers=dict(headers or {})), headers or {})
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise_if_hopeless(url, error, patient)
            problem = f"{type(error).__name__}: {error}"
        else:
            if answer.status_code not in TRANSIENT:
                return answer
            problem = f"HTTP {answer.status_code}"
        if attempt < ATTEMPTS:
            wait(url, problem, max(pause(attempt, None), pause(0, answer)))
    raise StageError(f"{bare(url)} gave no answer in {ATTEMPTS} attempts ({problem})", "Check the network; try again")


def raise_if_hopeless(url: str, error: Exception, patient: bool = True) -> None:
    """Raise an error where further attempts cannot succeed: no such host, malformed, refused and not ``patient``."""
    cause: BaseException | None = error
    while cause is not None:
        reason = ""
        if isinstance(cause, socket.gaierror):
            reason = f"no address is known of its host ({cause.strerror})"
        elif isinstance(cause, ConnectionRefusedError) and not patient:
            reason = "the connection is refused"
        if reason:
            raise StageError(f"{bare(url)} cannot be reached: {reason}", "Check the network and --endpoint") from error
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise InputError(f"{bare(url)!r} must be an address of HTTP", "Write --endpoint=https://HOST/PATH") from error


def wait(url: str, problem: str, seconds: float, stop: threading.Event | None = None) -> None:
    """Wait before the next attempt, or until ``stop`` is set, and say why."""
    if seconds:
        say(f"{bare(url)}: {problem}; the next attempt is in {span(seconds)}")
    sleep(seconds, stop)


def sleep(seconds: float, stop: threading.Event | None = None) -> None:
    """Sleep, or until ``stop`` is set."""
    (stop or threading.Event()).wait(seconds)


def _redirected(session: httpx.Client, request: httpx.Request, private: Mapping[str, str]) -> httpx.Response:
    """Return the answer at the end of redirects; ``private`` headers go to the first origin alone."""
    origin = _origin(request.url)
    for _ in range(_REDIRECTS):
        answer = session.send(request, follow_redirects=False, stream=True)
        try:
            body = _bounded(answer)
        finally:
            answer.close()
        if answer.next_request is None:
            headers = httpx.Headers([item for item in answer.headers.multi_items() if item[0] != "content-encoding"])
            return httpx.Response(answer.status_code, headers=headers, content=body, request=request)
        request = answer.next_request
        if _origin(request.url) != origin:
            for name in private:
                request.headers.pop(name, None)
    raise httpx.TooManyRedirects(f"more than {_REDIRECTS} redirects", request=request)


def _bounded(answer: httpx.Response) -> bytes:
    """Read an answer, decompressed."""
    body = bytearray()
    for chunk in answer.iter_bytes():
        body += chunk
        if len(body) > _MAX_ANSWER:
            raise StageError(
                f"{bare(str(answer.url))} answered with more than {_MAX_ANSWER >> 20} MiB, which no listing has",
                "Check --endpoint",
            )
    return bytes(body)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def pause(attempt: int, answer: httpx.Response | None) -> float:
    """Return the seconds to wait before the next attempt: what the server asks for, else exponential."""
    asked = answer.headers.get("Retry-After", "") if answer is not None else ""
    if asked.isdecimal():
        return min(float(asked), 300.0)
    return float(min(2**attempt, 60)) if attempt else 0.0


def bare(url: str) -> str:
    """Return an address without its query, which may hold a signature, and without user and password."""
    return without_credentials(url.partition("?")[0])
