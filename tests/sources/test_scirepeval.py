"""Fetching the data sets of SciRepEval from a local hub, into the folder that the study reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.sources.scirepeval import catalogue
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.sources.server import SHA, Hub, answering
from tests.studies.scirepeval.published import write


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(write(tmp_path / "held"))
    with answering(hub.answer) as hub.address:
        yield hub


def test_the_folder_is_what_the_study_reads(tmp_path: Path, hub: Hub) -> None:
    hub.breaks["drsm/test/0000.parquet"] = 7  # the next request continues
    extra = hub.root / "scirepeval" / "fos" / "train-00000-of-00001.parquet"
    extra.write_bytes(b"PAR1")
    (hub.root / "scirepeval_test" / "README.md").write_text("read me")
    folder = Path(mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address)["folder"])
    assert folder.name == f"scirepeval-{SHA[:7]}-{SHA[:7]}"
    fetched = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"release.json"}
    there = {path.relative_to(hub.root).as_posix() for path in hub.root.rglob("*") if path.is_file()}
    unwanted = {extra.relative_to(hub.root).as_posix(), "scirepeval_test/README.md"}
    assert fetched == {name for name in there - unwanted if not name.startswith("s2and/")}
    assert all((folder / name).read_bytes() == (hub.root / name).read_bytes() for name in fetched)
    assert hub.fetched[f"/datasets/allenai/scirepeval_test/resolve/{SHA}/drsm/test/0000.parquet"] == 2
    listed = mdcr_json(tmp_path, "study", "scirepeval", "--list", "--input", str(folder))["tasks"]
    assert {row["task"] for row in listed if row["files"] == "whole"} >= {"drsm", "fos", "scidocs_cite", "reviewers"}
    before = hub.requests.copy()
    mdcr_json(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address)
    assert all(path.startswith("/api/") for path in hub.requests - before)  # nothing is fetched twice


def test_configurations_and_training_splits_are_chosen(hub: Hub) -> None:
    (hub.root / "scirepeval" / "drsm" / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    assert {file.name for file in catalogue(["drsm"], train=True, endpoint=hub.address).files} == {
        "scirepeval/drsm/evaluation-00000-of-00001.parquet",
        "scirepeval/drsm/train-00000-of-00001.parquet",
        "scirepeval_test/drsm/train/0000.parquet",
        "scirepeval_test/drsm/test/0000.parquet",
    }


@pytest.mark.parametrize(
    ("changes", "arguments", "code", "said"),
    [
        ({"sha": "../../x"}, [], 2, "the server's name 'scirepeval-../../x"),
        ({}, ["--datasets", "drms"], 2, "configuration 'drms'"),
        ({}, ["--task", "x"], 2, "takes no --task"),
        ({"listing": b"<html>"}, [], 1, "does not come from the hub (JSONDecodeError"),
        ({"listing": b'{"sha": 5}'}, [], 1, "does not come from the hub (KeyError: 'id'"),
        ({"listing": b'{"id": "a/b", "sha": "0", "siblings": []}'}, [], 1, "the hub lists no files"),
    ],
)
def test_bad_requests_and_answers_are_refused(
    tmp_path: Path, hub: Hub, changes: dict[str, Any], arguments: list[str], code: int, said: str
) -> None:
    vars(hub).update(changes)
    assert said in one_line_error(mdcr(tmp_path, "fetch", "scirepeval", "--endpoint", hub.address, *arguments), code)
    assert not (tmp_path / "corpora").exists()
