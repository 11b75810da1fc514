"""Fetching the data sets of SciRepEval from a local hub, into the folder that the study reads."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub.utils import reset_sessions

from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.studies.scirepeval.published import write

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """A hub with the files of a folder; scirepeval_test has only scripts on its main branch."""

    root: Path
    protocol_version = "HTTP/1.1"
    sha = SHA
    breaks: Counter[str]
    requests: Counter[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.requests[path] += 1
        if path.startswith("/api/datasets/allenai/"):
            _, _, _, _, dataset, _, revision = path.split("/", 6)
            scripts = dataset == "scirepeval_test" and revision == "main"
            files = [] if scripts else [each for each in (self.root / dataset).rglob("*") if each.is_file()]
            listed = [
                {
                    "rfilename": each.relative_to(self.root / dataset).as_posix(),
                    "size": each.stat().st_size,
                    "blobId": "0",
                    "lfs": {
                        "sha256": hashlib.sha256(each.read_bytes()).hexdigest(),
                        "size": each.stat().st_size,
                        "pointerSize": 130,
                    },
                }
                for each in files
            ]
            self._send(200, json.dumps({"id": dataset, "sha": self.sha, "siblings": listed}).encode())
            return
        _, _, _, dataset, _, commit, name = path.split("/", 6)
        assert commit == SHA
        body = (self.root / dataset / name).read_bytes()
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        span = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        etag = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
        self._send(206 if start else 200, body[start:], span | etag, cut=self.breaks[name] if not start else 0)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int = 0) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: cut or None])
        if cut:
            self.close_connection = True


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, type[Hub]]]:
    reset_sessions()  # one that another test opened offline stays offline
    handler = type("Handler", (Hub,), {"root": write(tmp_path / "held"), "breaks": Counter(), "requests": Counter()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_folder_is_what_the_study_reads(tmp_path: Path, hub: tuple[str, type[Hub]]) -> None:
    address, held = hub
    held.breaks["drsm/test/0000.parquet"] = 7  # the connection ends after so many bytes; the next request continues
    extra = held.root / "scirepeval" / "fos" / "train-00000-of-00001.parquet"
    extra.write_bytes(b"PAR1")
    (held.root / "scirepeval_test" / "README.md").write_text("read me")
    found = mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", address)
    folder = Path(found["folder"])
    assert folder.name == f"scirepeval-{SHA[:7]}-{SHA[:7]}"
    fetched = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()} - {"release.json"}
    there = {each.relative_to(held.root).as_posix() for each in held.root.rglob("*") if each.is_file()}
    unwanted = {extra.relative_to(held.root).as_posix(), "scirepeval_test/README.md"}
    assert fetched == {each for each in there - unwanted if not each.startswith("s2and/")}
    assert all((folder / each).read_bytes() == (held.root / each).read_bytes() for each in fetched)
    assert held.requests[f"/datasets/allenai/scirepeval_test/resolve/{SHA}/drsm/test/0000.parquet"] == 2
    listed = mdcr_json(tmp_path, "study", "scirepeval", "--list", "--input", str(folder))["tasks"]
    assert {row["task"] for row in listed if row["files"] == "whole"} >= {"drsm", "fos", "scidocs_cite", "reviewers"}
    before = held.requests.copy()
    mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", address)
    again = held.requests - before
    assert all(path.startswith("/api/") for path in again)  # nothing is fetched twice


def test_a_commit_that_is_a_path_is_refused(tmp_path: Path, hub: tuple[str, type[Hub]]) -> None:
    address, held = hub
    held.sha = "../../x"
    line = one_line_error(mdcr(tmp_path, "fetch", "scirepeval", "--endpoint", address))
    assert "the server's name 'scirepeval-../../x" in line
    assert not (tmp_path / "corpora").exists()


def test_parts_and_errors(tmp_path: Path, hub: tuple[str, type[Hub]]) -> None:
    address, held = hub
    (held.root / "scirepeval" / "drsm" / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    asked = ["fetch", "scirepeval", "--endpoint", address, "--datasets", "drsm", "--train"]
    names = {each["name"] for each in mdcr_json(tmp_path, *asked, "--dry-run")["files"]}
    assert names == {
        "scirepeval/drsm/evaluation-00000-of-00001.parquet",
        "scirepeval/drsm/train-00000-of-00001.parquet",
        "scirepeval_test/drsm/train/0000.parquet",
        "scirepeval_test/drsm/test/0000.parquet",
    }
    for arguments, code, said in (
        (["--endpoint", address, "--datasets", "drms"], 2, "configuration 'drms'"),
        (["--endpoint", "http://127.0.0.1:9"], 1, "mdcr study scirepeval --input FOLDER"),
        (["--snapshot", "jsonl"], 2, "takes no --snapshot"),
    ):
        assert said in one_line_error(mdcr(tmp_path, "fetch", "scirepeval", *arguments), code)
