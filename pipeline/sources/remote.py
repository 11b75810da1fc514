"""Remote files, their catalogues, and small HTTP requests."""

from __future__ import annotations

import re
import socket
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Protocol, TypeVar

import httpx
import msgspec

import pipeline
from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say, span
from pipeline.core.text import without_credentials

_T = TypeVar("_T")

ATTEMPTS = 6
"""Maximum number of attempts without progress."""

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""

FAILURES = (httpx.RequestError, httpx.InvalidURL, UnicodeError)
"""What requests raise; UnicodeError is of the name of a host, such as one that a server redirects to."""

_REDIRECTS = 10

_READ = ("Retry-After",)
"""Headers of an answer that are read."""

_MAX_ANSWER = 8 * 2**20
"""Maximum size of a response in bytes; the longest listings have a few hundred kilobytes."""


@dataclass(frozen=True)
class Remote:
    """A file to fetch: path below the folder, an address, which may expire, and size and checksums if listed."""

    name: str
    url: str
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


class Catalogue(Protocol):
    """A publisher's listing of a release."""

    @property
    def name(self) -> str:
        """Name of the release, such as ``s2ag-2026-09-17``, and of its folder."""

    def files(self) -> Sequence[Remote]:
        """Return the files of the release that are to be fetched, in order."""

    def renewed(self, remote: Remote) -> Remote:
        """Return a file with a fresh address in place of an expired one; thread-safe."""


def client() -> httpx.Client:
    """Return a thread-safe HTTP client with the proxies of the environment; it keeps no cookies."""
    return httpx.Client(
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"User-Agent": f"mdcr/{pipeline.__version__}", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(60, connect=30),
        limits=httpx.Limits(max_connections=64),
        follow_redirects=True,
    )


def ask(
    session: httpx.Client, url: str, headers: Mapping[str, str] | None = None, *, patient: bool = True
) -> httpx.Response:
    """Return the response to a small GET, repeated after transient errors; other origins do not get ``headers``.

    A refused connection is transient if ``patient``, since the server may be starting. StageError if the server cannot
    be reached, fails repeatedly, or sends more than 8 MiB.
    """
    private = dict(headers or {})
    for attempt in range(1, ATTEMPTS + 1):
        response = None
        try:
            response = _follow_redirects(session, session.build_request("GET", url, headers=private), private)
        except FAILURES as error:
            raise_if_permanent(url, error, patient)
            problem = f"{type(error).__name__}: {error}"
        else:
            if response.status_code not in TRANSIENT:
                return response
            problem = f"HTTP {response.status_code}"
        if attempt < ATTEMPTS:
            wait(url, problem, max(backoff(attempt), retry_after(response)))
    raise StageError(f"{public_url(url)} gave no answer in {ATTEMPTS} attempts ({problem})", "Check the network")


def decoded(content: bytes, kind: type[_T]) -> _T | None:
    """Return the value of JSON from outside; None if it is not of type ``kind``."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def raise_if_permanent(url: str, error: Exception, patient: bool = True) -> None:
    """Raise an error if retrying cannot help: unknown host, malformed address, or refused and not ``patient``."""
    cause: BaseException | None = error
    address = public_url(url)
    while cause is not None:
        reason = ""
        if isinstance(cause, socket.gaierror):
            reason = f"its host is unknown ({cause.strerror})"
        elif isinstance(cause, ConnectionRefusedError) and not patient:
            reason = "the connection is refused"
        if reason:
            raise StageError(f"{address} cannot be reached: {reason}", "Check the network and --endpoint") from error
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, UnicodeError | httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise InputError(f"{address!r} must be an address of HTTP", "Write --endpoint=https://HOST/PATH") from error


def wait(url: str, problem: str, seconds: float, stop: threading.Event | None = None) -> None:
    """Print the problem and wait before the next attempt, or until ``stop`` is set."""
    if seconds:
        say(f"{public_url(url)}: {problem}; the next attempt is in {span(seconds)}")
    sleep(seconds, stop)


def sleep(seconds: float, stop: threading.Event | None = None) -> None:
    """Sleep until the time is over or ``stop`` is set."""
    (stop or threading.Event()).wait(seconds)


def _follow_redirects(session: httpx.Client, request: httpx.Request, private: Mapping[str, str]) -> httpx.Response:
    """Return the response at the end of redirects; ``private`` headers are sent to the first origin only."""
    origin = _origin(request.url)
    for _ in range(_REDIRECTS):
        answer = session.send(request, follow_redirects=False, stream=True)
        try:
            body = _read_bounded(answer)
        finally:
            answer.close()
        if answer.next_request is None:
            headers = {name: value for name in _READ if (value := answer.headers.get(name, "")) and value.isascii()}
            return httpx.Response(answer.status_code, headers=headers, content=body, request=request)
        request = answer.next_request
        if _origin(request.url) != origin:
            for name in private:
                request.headers.pop(name, None)
    raise httpx.TooManyRedirects(f"more than {_REDIRECTS} redirects", request=request)


def _read_bounded(answer: httpx.Response) -> bytes:
    """Return the body of a response, unpacked if it is gzip; StageError if it is too long or packed otherwise."""
    url, encoding = public_url(str(answer.url)), answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip"):
        raise StageError(f"{url} answered in the encoding {encoding[:80]!r}", "Check --endpoint")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
    body = bytearray()
    for chunk in answer.iter_raw():
        try:
            body += unpacker.decompress(chunk, _MAX_ANSWER + 1) if unpacker else chunk
        except zlib.error as error:
            raise httpx.DecodingError(str(error), request=answer.request) from error
        if len(body) > _MAX_ANSWER:
            raise StageError(f"{url} answered with more than {_MAX_ANSWER >> 20} MiB", "Check --endpoint")
    return bytes(body)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def backoff(attempt: int) -> float:
    """Return the seconds to wait after a failed attempt, exponential in its number; 0 for number 0."""
    return float(min(2**attempt, 60)) if attempt else 0.0


def retry_after(response: httpx.Response | None) -> float:
    """Return the seconds that a server asks to wait (``Retry-After``), at most 300; 0 if it does not."""
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(text), 300.0) if text.isdecimal() else 0.0


def public_url(url: str) -> str:
    """Return an address without its query, which may have a signature, and without user and password."""
    return without_credentials(url.partition("?")[0])
