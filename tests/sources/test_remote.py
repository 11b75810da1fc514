"""Servers that answer wrongly, at length or never: every request ends, and nothing secret is said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.sources import download, openalex_files
from pipeline.sources.download import RECORD, fetch_release
from pipeline.sources.openalex_files import OpenAlexCatalogue, list_objects
from pipeline.sources.remote import ATTEMPTS, Remote, ask
from pipeline.sources.s2ag import S2agCatalogue
from tests.cli.run import flags, mdcr
from tests.sources.server import KEY, Datasets, answering, send, serving


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


class Files:
    """A catalogue of one file."""

    name = "files"

    def __init__(self, url: str) -> None:
        self.remotes = [Remote("a.jsonl", url)]

    def files(self) -> list[Remote]:
        return self.remotes

    def renewed(self, remote: Remote) -> Remote:
        return remote


def fetch(session: httpx.Client, url: str, folder: Path) -> Any:
    return fetch_release(session, Files(url), Files(url).files(), folder)


def listing(token: str, *keys: str) -> bytes:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    name = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListBucketResult xmlns="{name}">{contents}{following}</ListBucketResult>'.encode()


@pytest.mark.parametrize(
    ("token", "message", "requests"),
    [("again", "repeats a page of its listing of data/", 2), ("t{}", "lists data/ on more than 20 pages", 20)],
)
def test_a_listing_without_an_end_ends(
    server: Server, session: httpx.Client, monkeypatch: pytest.MonkeyPatch, token: str, message: str, requests: int
) -> None:
    monkeypatch.setattr(openalex_files, "_MAX_PAGES", 20)
    server.answer = lambda request: send(request, 200, listing(token.format(len(server.requests)), "a.gz"))
    with pytest.raises(StageError, match=message):
        list(list_objects(session, server.address, "data/"))
    assert len(server.requests) == requests


@pytest.mark.parametrize("keys", [(), ("data/jsonl/works/manifest.json",)])
def test_an_empty_listing_is_an_error(server: Server, session: httpx.Client, keys: tuple[str, ...]) -> None:
    server.answer = lambda request: send(request, 200, listing("", *keys))
    with pytest.raises(InputError, match="holds no jsonl works"):
        OpenAlexCatalogue(session, "jsonl", server.address)


def test_no_files_are_no_release(session: httpx.Client, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="files must have a file to fetch, got an empty listing"):
        fetch_release(session, Files("http://127.0.0.1"), [], tmp_path / "release")
    assert not (tmp_path / "release").exists()


def test_a_server_that_sends_other_ranges_ends(server: Server, session: httpx.Client, tmp_path: Path) -> None:
    def answer(request: Any) -> None:
        if request.headers.get("Range"):
            send(request, 206, b"x" * 10, {"ETag": '"e"', "Content-Range": "bytes 0-9/100"})
        else:
            send(request, 200, b"x" * 100, {"ETag": '"e"'}, cut=50)

    server.answer = answer
    with pytest.raises(StageError, match="/a could not be fetched"):
        fetch(session, f"{server.address}/a", tmp_path)
    assert len(server.requests) <= 2 * ATTEMPTS


def test_a_file_that_became_shorter_is_fetched_again(server: Server, session: httpx.Client, tmp_path: Path) -> None:
    """On disk, after it was checked; on the server, while it was being fetched."""
    content = b"0123456789" * 10
    server.answer = lambda request: send(request, 200, content, {"ETag": '"e"'})
    for _ in range(2):
        fetch(session, f"{server.address}/a", tmp_path)
        assert len(server.requests) == 1
    (tmp_path / "a.jsonl").write_bytes(content[:30])
    fetch(session, f"{server.address}/a", tmp_path)
    assert (tmp_path / "a.jsonl").read_bytes() == content

    def shrinks(request: Any) -> None:
        if request.headers.get("Range"):
            send(request, 206, b"x" * 10, {"ETag": '"e"', "Content-Range": "bytes 80-89/50"})
        elif len(server.requests) == 1:
            send(request, 200, content, {"ETag": '"e"'}, cut=80)
        else:
            send(request, 200, content[:50], {"ETag": '"f"'})

    server.answer = shrinks
    server.requests.clear()
    fetch(session, f"{server.address}/a", tmp_path / "other")
    assert (tmp_path / "other/a.jsonl").read_bytes() == content[:50]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"files": [1]}', "\0"], ids=["deep", "list", "nul"])
def test_a_record_that_cannot_be_read_is_written_again(
    server: Server, session: httpx.Client, tmp_path: Path, text: str
) -> None:
    server.answer = lambda request: send(request, 200, b"{}\n")
    (tmp_path / RECORD).write_text(text)
    (tmp_path / ".state-a.jsonl.json").write_text(text)
    record = fetch(session, f"{server.address}/a", tmp_path)
    assert record["files"] == {"a.jsonl": {"bytes": 3}} == json.loads((tmp_path / RECORD).read_text())["files"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://no-such-host.invalid/x", "its host is unknown"),
        ("http://user:secret@no-such-host.invalid/x", "http://no-such-host.invalid/x cannot be reached"),
        ("ftp://host/x", "must be an address of HTTP"),
        ("host", "must be an address of HTTP"),
        ("http://[::/x", "must be an address of HTTP"),
    ],
)
def test_what_cannot_be_reached_fails_at_once(
    session: httpx.Client, tmp_path: Path, waited: list[float], url: str, expected: str
) -> None:
    for request in (lambda: ask(session, url), lambda: fetch(session, url, tmp_path)):
        with pytest.raises((StageError, InputError), match=expected):
            request()
    assert not waited


def test_waits_are_said_and_credentials_are_not(
    server: Server, session: httpx.Client, tmp_path: Path, waited: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda request: send(request, 503, b"", {"Retry-After": "7"})
    url = f"{server.with_user()}/x?signature=s"
    with pytest.raises(StageError) as raised:
        ask(session, url)
    assert waited == [7, 7, 8, 16, 32]
    said = capfd.readouterr().err
    assert said.splitlines()[0] == f"{server.address}/x: HTTP 503; the next attempt is in 7 s"
    with pytest.raises(StageError) as failed:
        fetch(session, url, tmp_path)
    said += capfd.readouterr().err + str(raised.value) + str(failed.value)
    assert "the next attempt is in 32 s" in said
    assert "secret" not in said
    assert "signature" not in said


def test_the_command_never_shows_the_credentials_of_an_endpoint(server: Server, tmp_path: Path) -> None:
    server.answer = lambda request: send(request, 200, listing(""))
    for release in ("openalex", "s2ag", "scirepeval"):
        ended = mdcr(tmp_path, *flags(f"fetch {release} --dry-run --endpoint {server.with_user()}"))
        assert ended.returncode in (1, 2), ended.stderr
        assert "secret" not in ended.stdout + ended.stderr
    assert server.requests


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_answer_is_refused(server: Server, session: httpx.Client, waited: list[float], packed: bool) -> None:
    body = b"[" + b"0," * 2**23
    headers = {"Content-Encoding": "gzip"} if packed else {}
    server.answer = lambda request: send(request, 200, gzip.compress(body) if packed else body, headers)
    with pytest.raises(StageError, match="/x answered with more than 8 MiB"):
        ask(session, f"{server.address}/x")
    assert not waited


def test_an_answer_that_is_packed_twice_is_refused(server: Server, session: httpx.Client) -> None:
    twice = gzip.compress(gzip.compress(b"0" * 2**27, 9), 9)
    assert len(twice) < 20_000
    server.answer = lambda request: send(request, 200, twice, {"Content-Encoding": "gzip, gzip"})
    with pytest.raises(StageError, match="/x answered in the encoding 'gzip, gzip'"):
        ask(session, f"{server.address}/x")


@pytest.mark.parametrize("name", ["Server", "ETag", "Set-Cookie", "Retry-After", "Content-Range"])
@pytest.mark.parametrize("value", ["\u00e9", "\u00b2", "9" * 5_000])
def test_odd_headers_change_nothing(
    server: Server, session: httpx.Client, tmp_path: Path, name: str, value: str
) -> None:
    server.answer = lambda request: send(request, 200, b"{}\n", {name: value})
    assert ask(session, f"{server.address}/x").content == b"{}\n"
    server.answer = lambda request: send(
        request, *((200, b"{}\n") if len(server.requests) > 2 else (503, b"")), {name: value}, cut=2
    )
    with pytest.raises(StageError, match="could not be fetched"):  # the connection ends early each time
        fetch(session, f"{server.address}/a", tmp_path)


@pytest.mark.parametrize("host", ["xn--", "xn--a", "a..b", "a" * 70])
def test_a_redirect_to_a_host_that_is_no_name_is_refused(
    server: Server, session: httpx.Client, tmp_path: Path, host: str
) -> None:
    server.answer = lambda request: send(request, 307, b"", {"Location": f"http://{host}/"})
    with pytest.raises(InputError, match="must be an address of HTTP"):
        ask(session, f"{server.address}/x")
    with pytest.raises(InputError, match="must be an address of HTTP"):
        fetch(session, f"{server.address}/a", tmp_path)


def test_a_file_longer_than_listed_or_without_end_is_refused(
    server: Server, session: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    def endless(request: Any) -> None:
        nonlocal sent
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        try:
            for _ in range(2_000):
                sent += request.wfile.write(b"0" * 2**20)
        except OSError:
            pass

    server.answer = endless
    listed = Remote("a.jsonl", f"{server.address}/a", bytes=100)
    with pytest.raises(StageError, match=r"more than the 100 bytes of a\.jsonl"):
        fetch_release(session, Files(listed.url), [listed], tmp_path / "listed")
    monkeypatch.setattr(download, "_RESERVE", download.files.free_bytes(tmp_path) - 2**24)
    with pytest.raises(StageError, match=r"a\.jsonl has no stated size and leaves less than"):
        fetch(session, f"{server.address}/a", tmp_path / "endless")
    assert sent < 2**28


@pytest.mark.parametrize("described", ["1.2.3M records", f"{'9' * 400}B records", "\u0663M records", ".M records"])
def test_odd_numbers_in_descriptions_state_nothing(session: httpx.Client, described: str) -> None:
    datasets = Datasets()
    datasets.releases = {"2026-01-01": {"papers": {"a.jsonl": b"{}"}}}
    datasets.description = described
    with serving(datasets) as address:
        catalogue = S2agCatalogue(session, "2026-01-01", KEY, ["papers"], address)
    assert all(0 <= rows < 10**16 for rows in catalogue.stated.values())


@pytest.mark.parametrize("size", ["-5", "9" * 40, "1e9", "\u0663"])
def test_odd_sizes_and_encodings_of_a_listing_are_refused(server: Server, session: httpx.Client, size: str) -> None:
    one = listing("", "data/jsonl/works/a.gz").replace(b"<Size>1<", f"<Size>{size}<".encode())
    server.answer = lambda request: send(request, 200, one)
    with pytest.raises(MdcrError, match="size|listing"):
        OpenAlexCatalogue(session, "jsonl", server.address).files()
    server.answer = lambda request: send(request, 200, b'<?xml version="1.0" encoding="nosuch"?>' + one)
    with pytest.raises(StageError, match="did not answer with a listing"):
        OpenAlexCatalogue(session, "jsonl", server.address)
