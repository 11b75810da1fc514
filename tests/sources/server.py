"""A real HTTP server that answers as the Datasets API and its storage do, and breaks when it is told to."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

KEY = "the-key"


class Datasets:
    """What the server holds, how it misbehaves, and what it was asked.

    Attributes:
        releases: release id -> dataset -> file name -> content.
        signature: the one signature that storage accepts; every list of files is signed with it.
        break_after: file name -> bytes after which the connection ends, once for each entry of the list.
        wrong: file name -> how many times its bytes are other ones than its checksum says.
        busy: answers of the API that are HTTP 429 before it works.
        requests: path -> requests; ``ranges``: the Range headers that came; ``keys``: hosts' x-api-key headers by kind.
    """

    def __init__(self) -> None:
        self.releases: dict[str, dict[str, dict[str, bytes]]] = {}
        self.signature = 1
        self.expire_after: int | None = None
        self.break_after: dict[str, list[int]] = {}
        self.wrong: Counter[str] = Counter()
        self.busy = 0
        self.whole_md5 = True
        self.ranges_work = True
        self.requests: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.keys: set[tuple[str, str | None]] = set()
        self.address = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    datasets: Datasets

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.datasets.requests[url.path] += 1
        kind = "storage" if url.path.startswith("/storage/") else "api"
        self.datasets.keys.add((kind, self.headers.get("x-api-key")))
        if kind == "storage":
            self._storage(url.path, parse_qs(url.query))
        else:
            self._api(url.path.removeprefix("/datasets/v1/"))

    def _api(self, path: str) -> None:
        held = self.datasets
        if held.busy:
            held.busy -= 1
            self._json(429, {"message": "Too Many Requests"}, {"Retry-After": "0"})
            return
        parts = path.strip("/").split("/")
        release = max(held.releases) if parts[1:2] == ["latest"] else "".join(parts[1:2])
        if parts == ["release"]:
            self._json(200, sorted(held.releases))
        elif release not in held.releases:
            self._json(404, {"error": "Release not found"})
        elif len(parts) == 2:
            about = [{"name": name, "description": "", "README": ""} for name in held.releases[release]]
            self._json(200, {"release_id": release, "README": "Subject to terms", "datasets": about})
        elif self.headers.get("x-api-key") != KEY:
            self._json(403, {"message": "Forbidden"})
        else:
            base = f"{held.address}/storage/staging/{release}/{parts[3]}"
            signed = f"X-Amz-Algorithm=AWS4&X-Amz-Signature={held.signature}"
            names = held.releases[release][parts[3]]
            self._json(200, {"name": parts[3], "README": "", "files": [f"{base}/{name}?{signed}" for name in names]})

    def _storage(self, path: str, query: dict[str, list[str]]) -> None:
        held = self.datasets
        if held.expire_after is not None:
            held.expire_after -= 1
            if held.expire_after < 0:
                held.signature, held.expire_after = held.signature + 1, None
        if query.get("X-Amz-Signature") != [str(held.signature)]:
            self._send(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
            return
        release, dataset, name = path.split("/")[3:]
        content = held.releases[release][dataset][name]
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest() + ("" if held.whole_md5 else "-2")
        if held.wrong[name] > 0:
            held.wrong[name] -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = 0
        if (asked := self.headers.get("Range")) and held.ranges_work:
            held.ranges.append(asked)
            if self.headers.get("If-Range") == f'"{etag}"':
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if held.break_after.get(name):
            self.wfile.write(body[: held.break_after[name].pop(0)])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(body)

    def _json(self, status: int, values: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(values).encode(), headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(datasets: Datasets) -> Iterator[str]:
    """Serve from a thread; gives the address of the API."""
    handler = type("Handler", (_Handler,), {"datasets": datasets})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    datasets.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"{datasets.address}/datasets/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
