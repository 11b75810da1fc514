"""Servers that answer wrongly, at length or never: every request ends, and nothing secret is said."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from pipeline.core.errors import InputError, StageError
from pipeline.sources import openalex_files
from pipeline.sources.download import RECORD, fetch_release
from pipeline.sources.openalex_files import OpenAlexCatalogue, list_objects
from pipeline.sources.remote import ATTEMPTS, Remote, ask
from tests.cli.run import flags, mdcr

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A server on this machine whose answers a test sets."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request: send(request, 404)
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.requests.append(self.path)
                outer.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.http.server_port}"
        self.address = f"http://{self.place}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


def send(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


class Files:
    """A catalogue of files at one address."""

    name = "files"

    def __init__(self, *remotes: Remote) -> None:
        self._remotes = list(remotes)

    def files(self) -> list[Remote]:
        return self._remotes

    def renewed(self, remote: Remote) -> Remote:
        return remote


def listing(token: str, *keys: str) -> bytes:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    name = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListBucketResult xmlns="{name}">{contents}{following}</ListBucketResult>'.encode()


def never(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def test_a_repeated_token_ends_a_listing(server: Server, session: httpx.Client) -> None:
    server.answer = lambda request: send(request, 200, listing("again", "a.gz"))
    with pytest.raises(StageError, match="repeats a page of its listing of data/"):
        list(list_objects(session, server.address, "data/"))
    assert len(server.requests) == 2


def test_a_listing_without_an_end_ends(server: Server, session: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openalex_files, "_PAGES", 20)
    server.answer = lambda request: send(request, 200, listing(f"t{len(server.requests)}", "a.gz"))
    with pytest.raises(StageError, match="lists data/ on more than 20 pages"):
        list(list_objects(session, server.address, "data/"))
    assert len(server.requests) == 20


@pytest.mark.parametrize("keys", [(), ("data/jsonl/works/manifest.json",)])
def test_an_empty_listing_is_an_error(server: Server, session: httpx.Client, keys: tuple[str, ...]) -> None:
    server.answer = lambda request: send(request, 200, listing("", *keys))
    with pytest.raises(InputError, match="holds no jsonl works"):
        OpenAlexCatalogue(session, "jsonl", server.address)


def test_no_files_are_no_release(session: httpx.Client, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="files must have a file to fetch, got an empty listing"):
        fetch_release(session, Files(), [], tmp_path / "release")
    assert not (tmp_path / "release").exists()


def test_a_server_that_sends_other_ranges_ends(server: Server, session: httpx.Client, tmp_path: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Range"):
            send(request, 206, b"x" * 10, ETag='"e"', Content_Range="bytes 0-9/100")
        else:
            send(request, 200, b"x" * 50, ETag='"e"', Content_Length="100")

    server.answer = answer
    catalogue = Files(Remote("a.jsonl", f"{server.address}/a"))
    with pytest.raises(StageError, match="/a could not be fetched"):
        fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=lambda _: None)
    assert len(server.requests) <= 2 * ATTEMPTS


def test_a_file_that_became_shorter_is_fetched_again(server: Server, session: httpx.Client, tmp_path: Path) -> None:
    """On disk, after it was checked; on the server, while it was being fetched."""
    content = b"0123456789" * 10
    server.answer = lambda request: send(request, 200, content, ETag='"e"')
    catalogue = Files(Remote("a.jsonl", f"{server.address}/a"))
    fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=never)
    fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=never)
    assert len(server.requests) == 1
    (tmp_path / "a.jsonl").write_bytes(content[:30])
    fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=never)
    assert (tmp_path / "a.jsonl").read_bytes() == content

    def shrinks(request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Range"):
            send(request, 206, b"x" * 10, ETag='"e"', Content_Range="bytes 80-89/50")
        elif len(server.requests) == 1:
            send(request, 200, content[:80], ETag='"e"', Content_Length="100")
        else:
            send(request, 200, content[:50], ETag='"f"')

    server.answer = shrinks
    server.requests.clear()
    fetch_release(session, catalogue, catalogue.files(), tmp_path / "other", sleep=lambda _: None)
    assert (tmp_path / "other/a.jsonl").read_bytes() == content[:50]


def test_a_record_that_cannot_be_read_is_written_again(server: Server, session: httpx.Client, tmp_path: Path) -> None:
    server.answer = lambda request: send(request, 200, b"{}\n")
    catalogue = Files(Remote("a.jsonl", f"{server.address}/a"))
    for text in ("[" * 100_000, '{"files": [1]}', "\0"):
        (tmp_path / RECORD).write_text(text)
        (tmp_path / ".state-a.jsonl.json").write_text(text)
        record = fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=never)
        assert record["files"] == {"a.jsonl": {"bytes": 3}} == json.loads((tmp_path / RECORD).read_text())["files"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://no-such-host.invalid/x", "no address is known of its host"),
        ("http://user:secret@no-such-host.invalid/x", "http://no-such-host.invalid/x cannot be reached"),
        ("ftp://host/x", "must be an address of HTTP"),
        ("host", "must be an address of HTTP"),
        ("http://[::/x", "must be an address of HTTP"),
    ],
)
def test_what_cannot_be_reached_fails_at_once(session: httpx.Client, tmp_path: Path, url: str, expected: str) -> None:
    with pytest.raises((StageError, InputError), match=expected):
        ask(session, url, wait=never)
    catalogue = Files(Remote("a.jsonl", url))
    with pytest.raises((StageError, InputError), match=expected):
        fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=never)


def test_waits_are_said_and_credentials_are_not(
    server: Server, session: httpx.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda request: send(request, 503, b"", Retry_After="7")
    waited: list[float] = []
    url = f"http://user:secret@{server.place}/x?signature=s"
    with pytest.raises(StageError) as raised:
        ask(session, url, wait=waited.append)
    assert waited == [7, 7, 8, 16, 32]
    said = capfd.readouterr().err
    assert said.splitlines()[0] == f"{server.address}/x: HTTP 503; the next attempt is in 7 s"
    catalogue = Files(Remote("a.jsonl", url))
    with pytest.raises(StageError) as failed:
        fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=lambda _: None)
    told = said + capfd.readouterr().err + str(raised.value) + str(failed.value)
    assert "the next attempt is in 32 s" in told
    assert "secret" not in told
    assert "signature" not in told


def test_the_command_never_shows_the_credentials_of_an_endpoint(server: Server, tmp_path: Path) -> None:
    server.answer = lambda request: send(request, 200, listing(""))
    endpoint = f"http://user:secret@{server.place}"
    for release in ("openalex", "s2ag", "scirepeval"):
        ended = mdcr(tmp_path, *flags(f"fetch {release} --dry-run --endpoint {endpoint}"))
        assert ended.returncode in (1, 2), ended.stderr
        assert "secret" not in ended.stdout + ended.stderr
    assert server.requests


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_answer_is_refused(server: Server, session: httpx.Client, packed: bool) -> None:
    body = b"[" + b"0," * 2**23
    if packed:
        server.answer = lambda request: send(request, 200, gzip.compress(body), Content_Encoding="gzip")
    else:
        server.answer = lambda request: send(request, 200, body)
    with pytest.raises(StageError, match="/x answered with more than 8 MiB"):
        ask(session, f"{server.address}/x", wait=never)
