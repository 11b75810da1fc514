"""Fetching the data sets of SciRepEval from a local hub, into the folder that the study reads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub.utils import reset_sessions

from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.sources.server import answering, send_file, send_json
from tests.studies.scirepeval.published import write

SHA = "0123456789abcdef0123456789abcdef01234567"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Hub:
    """A hub with the files of a folder; scirepeval_test has only scripts on its main branch."""

    def __init__(self, root: Path) -> None:
        self.root, self.sha = root, SHA
        self.breaks: dict[str, int] = {}
        self.requests: Counter[str] = Counter()
        self.address = ""

    def answer(self, request: Any) -> None:
        path = unquote(urlsplit(request.path).path)
        self.requests[path] += 1
        if path.startswith("/api/datasets/allenai/"):
            _, _, _, _, dataset, _, revision = path.split("/", 6)
            scripts = dataset == "scirepeval_test" and revision == "main"
            listed = [self._listed(name, body) for name, body in files_of(self.root / dataset).items() if not scripts]
            send_json(request, 200, {"id": dataset, "sha": self.sha, "siblings": listed})
            return
        _, _, _, dataset, _, commit, name = path.split("/", 6)
        assert commit == SHA
        body = (self.root / dataset / name).read_bytes()
        send_file(request, body, hashlib.sha256(body).hexdigest(), self.breaks.pop(name, None))

    def _listed(self, name: str, body: bytes) -> dict[str, Any]:
        lfs = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
        return {"rfilename": name, "size": len(body), "blobId": "0", "lfs": lfs}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    reset_sessions()  # one that another test opened offline stays offline
    hub = Hub(write(tmp_path / "held"))
    with answering(hub.answer) as hub.address:
        yield hub


def test_the_folder_is_what_the_study_reads(tmp_path: Path, hub: Hub) -> None:
    hub.breaks["drsm/test/0000.parquet"] = 7  # the connection ends after so many bytes; the next request continues
    unwanted = {"scirepeval/fos/train-00000-of-00001.parquet": b"PAR1", "scirepeval_test/README.md": b"read me"}
    for name, content in unwanted.items():
        (hub.root / name).write_bytes(content)
    folder = Path(mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address)["folder"])
    assert folder.name == f"scirepeval-{SHA[:7]}-{SHA[:7]}"
    fetched, there = files_of(folder), files_of(hub.root)
    assert fetched.pop("release.json")
    wanted = [name for name in there if name not in unwanted and not name.startswith("s2and/")]
    assert fetched == {name: there[name] for name in wanted}
    assert hub.requests[f"/datasets/allenai/scirepeval_test/resolve/{SHA}/drsm/test/0000.parquet"] == 2
    listed = mdcr_json(tmp_path, "study", "scirepeval", "--list", "--input", str(folder))["tasks"]
    assert {row["task"] for row in listed if row["files"] == "whole"} >= {"drsm", "fos", "scidocs_cite", "reviewers"}
    before = hub.requests.copy()
    mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address)
    assert all(path.startswith("/api/") for path in hub.requests - before)  # nothing is fetched twice


def test_a_commit_that_is_a_path_is_refused(tmp_path: Path, hub: Hub) -> None:
    hub.sha = "../../x"
    line = one_line_error(mdcr(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address))
    assert "the server's name 'scirepeval-../../x" in line
    assert not (tmp_path / "corpora").exists()


def test_parts_and_errors(tmp_path: Path, hub: Hub) -> None:
    (hub.root / "scirepeval" / "drsm" / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    asked = ["fetch", "scirepeval", "--endpoint", hub.address, "--datasets", "drsm", "--train"]
    assert {file["name"] for file in mdcr_json(tmp_path, *asked, "--dry-run")["files"]} == {
        "scirepeval/drsm/evaluation-00000-of-00001.parquet",
        "scirepeval/drsm/train-00000-of-00001.parquet",
        "scirepeval_test/drsm/train/0000.parquet",
        "scirepeval_test/drsm/test/0000.parquet",
    }
    for arguments, code, said in (
        (["--endpoint", hub.address, "--datasets", "drms"], 2, "configuration 'drms'"),
        (["--endpoint", "http://127.0.0.1:9"], 1, "mdcr study scirepeval --input FOLDER"),
        (["--snapshot", "jsonl"], 2, "takes no --snapshot"),
    ):
        assert said in one_line_error(mdcr(tmp_path, "fetch", "scirepeval", *arguments), code)
