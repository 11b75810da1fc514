"""Real HTTP servers for tests: one whose answers a test sets, and the Datasets API with its storage."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "the-key"


@contextmanager
def answering(answer: Callable[[Any], None]) -> Iterator[str]:
    """Serve from a thread; ``answer`` gets each request. Gives the address."""
    functions = {"do_GET": lambda request: answer(request), "log_message": lambda *_: None}
    handler: Any = type("Handler", (BaseHTTPRequestHandler,), {"protocol_version": "HTTP/1.1", **functions})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(
    request: Any, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, cut: int | None = None
) -> None:
    """Answer a request; with ``cut`` the connection ends after so many bytes of the body."""
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body[:cut])
    request.close_connection |= cut is not None


def send_json(request: Any, status: int, values: object, headers: Mapping[str, str] | None = None) -> None:
    send(request, status, json.dumps(values).encode(), headers)


def drip(request: Any, body: bytes, seconds: float = 0.2) -> None:
    """Answer a byte at a time, until the client has gone."""
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.close_connection = True
    try:
        for byte in body:
            request.wfile.write(bytes([byte]))
            time.sleep(seconds)
    except OSError:
        pass


class Datasets:
    """What the server holds, how it misbehaves, and what it was asked.

    Attributes:
        releases: release id -> dataset -> file name -> content.
        signature: the one signature that storage accepts, once; each list of files is signed with the next one.
        break_after: file name -> bytes after which the connection ends, once for each entry of the list.
        changes: whether such a file is another one when it is asked for again.
        wrong: file name -> how many times a byte of it is wrong.
        pages: file name -> how many times a page comes in its place.
        busy: answers of the API that are HTTP 429 before it works.
        requests: path -> requests; ``keys``: hosts' x-api-key headers by kind.
    """

    def __init__(self) -> None:
        self.releases: dict[str, dict[str, dict[str, bytes]]] = {}
        self.signature = 0
        self.break_after: dict[str, list[int]] = {}
        self.wrong, self.pages = Counter[str](), Counter[str]()
        self.busy = 0
        self.changes = False
        self.requests: Counter[str] = Counter()
        self.keys: set[tuple[str, str | None]] = set()
        self.address = ""

    def answer(self, request: Any) -> None:
        url = urlsplit(request.path)
        self.requests[url.path] += 1
        kind = "storage" if url.path.startswith("/storage/") else "api"
        self.keys.add((kind, request.headers.get("x-api-key")))
        if kind == "storage":
            self._storage(request, url.path, parse_qs(url.query))
        else:
            self._api(request, url.path.removeprefix("/datasets/v1/"))

    def _api(self, request: Any, path: str) -> None:
        if self.busy:
            self.busy -= 1
            send_json(request, 429, {"message": "Too Many Requests"}, {"Retry-After": "0"})
            return
        parts = path.strip("/").split("/")
        release = max(self.releases) if parts[1:2] == ["latest"] else "".join(parts[1:2])
        if parts == ["release"]:
            send_json(request, 200, sorted(self.releases))
        elif release not in self.releases:
            send_json(request, 404, {"error": "Release not found"})
        elif len(parts) == 2:
            about = [{"name": name, "description": "", "README": ""} for name in self.releases[release]]
            send_json(request, 200, {"release_id": release, "README": "Subject to terms", "datasets": about})
        elif request.headers.get("x-api-key") != KEY:
            send_json(request, 403, {"message": "Forbidden"})
        else:
            base = f"{self.address}/storage/staging/{release}/{parts[3]}"
            self.signature += 1
            signed = f"X-Amz-Algorithm=AWS4&X-Amz-Signature={self.signature}"
            urls = [f"{base}/{name}?{signed}" for name in self.releases[release][parts[3]]]
            send_json(request, 200, {"name": parts[3], "README": "", "files": urls})

    def _storage(self, request: Any, path: str, query: dict[str, list[str]]) -> None:
        if int(query["X-Amz-Signature"][0]) < self.signature - 3:
            send(request, 403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
            return
        release, dataset, name = path.split("/")[3:]
        content = self.releases[release][dataset][name]
        if self.wrong[name] > 0:
            self.wrong[name] -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.pages[name] > 0:
            self.pages[name] -= 1
            content = b"<Error><Code>SlowDown</Code></Error>"
        cut = self.break_after[name].pop(0) if self.break_after.get(name) else None
        send(request, 200, content, cut=cut)
        if cut is not None and self.changes:
            self.releases[release][dataset][name] = gzip.compress(os.urandom(50_000))


@contextmanager
def serving(datasets: Datasets) -> Iterator[str]:
    """Serve the Datasets API and its storage; gives the address of the API."""
    with answering(datasets.answer) as datasets.address:
        yield f"{datasets.address}/datasets/v1"
