"""Servers that answer wrongly, at length or never: every request ends, and nothing secret is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import StageError
from pipeline.sources import fetch as fetching
from pipeline.sources.fetch import Catalogue, ask, catalogue, fetch_release
from tests.cli.run import flags, mdcr
from tests.sources.server import KEY, answering, drip, send


class Server:
    """A server on this machine whose answers a test sets."""

    def __init__(self) -> None:
        self.answer: Callable[[Any], None] = lambda request: send(request, 404)
        self.requests: list[str] = []
        self.address = ""

    def handle(self, request: Any) -> None:
        self.requests.append(request.path)
        self.answer(request)

    def with_user(self) -> str:
        return self.address.replace("://", "://user:secret@")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with answering(server.handle) as server.address:
        yield server


def fetch(url: str, folder: Path) -> Any:
    """Fetch a release of one file by its address."""
    return fetch_release(Catalogue("files", ["a.jsonl"], lambda _: url), folder)


def test_what_crawls_ends(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of the API, and a file: each has a total deadline."""
    monkeypatch.setattr(fetching, "SECONDS", 1.0)
    server.answer = lambda request: drip(request, b"{" + b" " * 1_000)
    for request in (
        lambda: catalogue("latest", KEY, endpoint=server.address),
        lambda: fetch(f"{server.address}/a", tmp_path / "crawls"),
    ):
        with pytest.raises(StageError, match="did not come in 1 s"):
            request()


def test_a_release_that_was_fetched_in_part_is_completed(server: Server, tmp_path: Path) -> None:
    content = b"0123456789" * 10
    server.answer = lambda request: send(request, 200, content)
    partial = tmp_path / ".fetching" / "a.jsonl"
    partial.parent.mkdir()
    partial.write_bytes(content[:30])
    (partial.parent / "release.json").write_text("[" * 100_000)
    for _ in range(2):
        fetch(f"{server.address}/a", tmp_path)
        assert len(server.requests) == 1
        assert not partial.parent.exists()
        assert (tmp_path / "a.jsonl").read_bytes() == content


def test_a_file_without_a_length_or_larger_than_the_disk_is_refused(server: Server, tmp_path: Path) -> None:
    def endless(request: Any) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True

    server.answer = endless
    with pytest.raises(StageError, match="it states no length"):
        fetch(f"{server.address}/a", tmp_path / "endless")
    server.answer = lambda request: send(request, 200, b"", {"Content-Length": str(10**15)})
    with pytest.raises(StageError, match=r"a\.jsonl has 1,000,000,000,000,000 bytes, the disk"):
        fetch(f"{server.address}/a", tmp_path / "large")


@pytest.mark.parametrize("url", ["ftp://host/x", "host", "http://[::/x", "http://xn--", "http://a..b"])
def test_what_is_no_address_is_refused_at_once(waited: list[float], url: str) -> None:
    with pytest.raises(StageError, match="cannot be reached"):
        catalogue("latest", KEY, endpoint=url)
    assert not waited


def test_waits_are_said_and_credentials_are_not(
    server: Server, tmp_path: Path, waited: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda request: send(request, 503, b"", {"Retry-After": "7"})
    url = f"{server.with_user()}/x?signature=s"
    with pytest.raises(StageError) as raised:
        ask(url, {})
    assert waited == [7, 7, 8, 16, 32]
    said = capfd.readouterr().err
    assert said.splitlines()[0] == f"{server.address}/x: HTTP 503; the next attempt is in 7 s"
    server.answer = lambda request: send(request, 403, b"")
    with pytest.raises(StageError) as failed:
        fetch(url, tmp_path)
    ended = mdcr(tmp_path, *flags(f"fetch s2ag --dry-run --endpoint {server.with_user()}"))
    assert ended.returncode == 2
    said += capfd.readouterr().err + str(raised.value) + str(failed.value) + ended.stdout + ended.stderr
    assert "it is fetched again" in said
    assert "secret" not in said
    assert "signature" not in said


def test_a_long_answer_is_refused(server: Server, waited: list[float]) -> None:
    server.answer = lambda request: send(request, 200, b"[" + b"0," * 2**23)
    with pytest.raises(StageError, match="/x answered with more than 8 MiB"):
        ask(f"{server.address}/x", {})
    assert not waited
