"""Damaged files: named in one line, and repaired from what they were made from; and what ``mdcr doctor`` finds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.workspace import POOLS, RANKINGS
from pipeline.retrieve import exact
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.stages.making import flip

EVAL = flags("eval --size 900 --queries 20 --samples 1 --model lsa --measures map")


def test_several_corpora_need_a_name(tmp_path: Path) -> None:
    assert "there is no corpus" in one_line_error(mdcr(tmp_path, "pool"))
    for seed in ("1", "2"):
        mdcr_json(tmp_path, *flags(f"corpus --source synthetic --papers 500 --seed {seed} --corpus c{seed}"))
    assert "Name one with --corpus: c1, c2" in one_line_error(mdcr(tmp_path, "pool"))


def test_a_corpus_whose_release_is_gone_says_what_to_run(tmp_path: Path) -> None:
    file = tmp_path / "release/a.jsonl"
    file.parent.mkdir()
    lines = "".join(json.dumps({"id": str(number), "title": f"Kiwi {number}"}) + "\n" for number in range(50))
    file.write_text(lines)
    make = [*flags("corpus --source jsonl --corpus own --columns paper_id=id,title=title --input"), str(file.parent)]
    mdcr_json(tmp_path, *make)
    (corpus,) = published(tmp_path / "corpora")
    flip(corpus.path / "attributes.arrow")
    file.write_text(lines.replace("Kiwi 7", "Plum 7"))
    assert "its release has changed. Run mdcr corpus" in one_line_error(mdcr(tmp_path, "pool", "--repair"))
    file.unlink()
    assert "Run mdcr corpus" in one_line_error(mdcr(tmp_path, "pool", "--repair"))
    file.write_text(lines)
    mdcr_json(tmp_path, *make, "--repair")
    assert not corpus.damaged()


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"../..", b"tiny-000000000000"])
def test_a_damaged_name_file_is_one_line(own: Path, text: bytes) -> None:
    (name,) = (own / "corpora").glob("*.name")
    name.write_bytes(text)
    assert f"{name} names no corpus of this workspace" in one_line_error(mdcr(own, "pool"))


def test_doctor_tells_what_is_missing(tmp_path: Path) -> None:
    findings = {f[0]: f for f in mdcr_json(tmp_path, "doctor")["findings"]}
    assert findings["Java"][1] is True
    assert findings["machine"][1] is True


@pytest.mark.skipif(exact.gpus() > 0, reason="torch sees GPUs")
def test_doctor_tells_that_torch_does_not_see_the_gpu(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA X, 1 MiB, 570'\n")
    tool.chmod(0o755)
    said = mdcr(tmp_path, "doctor", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}).stdout
    assert "NVIDIA X, 1 MiB, 570" in said
    assert "sees 0 GPUs" in said
    assert "install torch for this driver" in said


@pytest.mark.parametrize("text", ["{", '{"rounds": [{"at": 1}]}'])
def test_a_damaged_record_of_jobs_stops_no_listing(own: Path, text: str) -> None:
    mdcr_json(own, *EVAL)
    record = own / "runs/jobs/eval-1/record.json"
    record.parent.mkdir(parents=True)
    record.write_text(text)
    for words in (["jobs"], ["gc"], ["show"], EVAL):
        result = mdcr(own, *words)
        assert result.returncode == 0, result.stderr
        if words == ["jobs"]:  # once a process
            assert f"left out: {record} is damaged" in result.stderr
            assert "remove its folder" in result.stderr
    assert f"{record} is damaged" in one_line_error(mdcr(own, "gc", "--delete"))


@pytest.mark.slow
def test_damaged_rankings_and_pools_cost_a_page_its_queries_alone(own: Path) -> None:
    mdcr_json(own, *EVAL, "--model", "lsa,newest")
    figures = mdcr_json(own, "show")["rows"]
    rankings = list(published(own / RANKINGS))
    for damaged in (
        rankings[0].path / "ranking.arrow",
        *(pool.path / "qrels.arrow" for pool in published(own / POOLS)),
    ):
        flip(damaged)
        for words in (["report"], ["leaderboard"], ["compare", "lsa", "newest"]):
            result = mdcr(own, *words)
            assert result.returncode == 0, result.stderr
            if words == ["report"]:  # once a process
                assert f"left out: {damaged} does not match its recorded checksum" in result.stderr
        assert mdcr_json(own, "show")["rows"] == figures
    (vectors,) = own.glob("indexes/vectors/*/*/rows.arrow")
    flip(vectors)
    assert mdcr(own, "leaderboard").returncode == 0
