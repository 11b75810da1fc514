from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.manifest import MANIFEST
from pipeline.core.workspace import POOLS, RANKINGS, SCORES
from pipeline.retrieve import dense
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("pool --field Medcine", "there is no field 'Medcine'. Did you mean 'Medicine'?"),
        ("pool --size many", "--size 'many' is not a number. Write it like 200k"),
        ("pool --queries some", "--queries 'some' is not a number"),
        ("pool --size 2M --queries 20", "a pool of 2M was asked for, but only"),
        ("pool --size 900 --queries 3k", "3k queries asked for, but only"),
        ("pool --year 2031", "no paper of 2031 can be a query. Choose another --year; most papers are of"),
        ("pool --corpus tnyi", "there is no corpus 'tnyi'"),
        ("pool --samples 0", "--samples must be from 1 to 9999, got 0"),
        ("pool --citation-direction both", "--citation-direction must be outbound, inbound or total, got 'both'"),
        ("pool --citation-direction outbond", "Did you mean 'outbound'?"),
        ("pool --year twenty", "--year must be a whole number, got 'twenty'"),
        ("pool --workers two", "--workers must be a whole number, got 'two'"),
        ("pool --feild Art", "mdcr pool has no option --feild. Did you mean '--field'?"),
        ("pool Art", "mdcr pool has no use for 'Art'"),
        ("evla", "there is no command 'evla'. Did you mean 'eval'?"),
        ("export", "--what must be given. Choose pool, run"),
        ("show pools --what corpora", "--what is given twice"),
        ("pool --exclude nowhere.txt", "the exclusion list nowhere.txt cannot be read"),
        ("eval --model spectre", "there is no model 'spectre'. Did you mean 'specter'"),
        ("eval --model bm25:k1=fast", "'k1=fast' in 'bm25:k1=fast' is not a parameter"),
        ("eval --model bm25:k2=1", "BM25 has no parameter 'k2'"),
        ("eval --model lsa --precision fp8", "--precision 'fp8' is unknown"),
        ("eval --model lsa --measures mapp,ndcgg", "mapp"),
        ("eval --model lsa --depth 0", "depth 0 is out of range"),
        ("eval --model lsa --engine fais --size 900 --queries 20", "there is no search engine 'fais'"),
        ("eval --model lsa --memory lots", "memory 'lots' is not an amount"),
        ("eval --model lsa --memory 1", "--memory 1 is too little. Give 512M or more"),
        ("eval --model lsa --workers 0", "--workers must be at least 1, got 0"),
        ("corpus --source s2orc", "there is no source 's2orc'. Did you mean 's2orc2020'?"),
        ("corpus --source s2orc2020", "needs the folder of the release"),
        ("corpus --source s2orc2020 --input /nonexistent", "the input folder /nonexistent does not exist"),
        ("corpus --source synthetic --papers few", "--papers 'few' is not a number"),
        ("corpus --source synthetic --corpus a/b", "'a/b' is not a name for a corpus"),
        ("show colour", "there is nothing called 'colour' to show"),
        ("show table", "nothing that was scored"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(root: Path, arguments: str, expected: str) -> None:
    assert expected in one_line_error(mdcr(root, *flags(arguments)))


def test_a_model_folder_without_tokenizer(root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "tokenizer" in one_line_error(mdcr(root, "eval", "--model", str(tmp_path)))


def test_several_corpora_need_a_name(tmp_path: Path) -> None:
    assert "there are 0 corpora" in one_line_error(mdcr(tmp_path, "pool"))
    for seed in ("1", "2"):
        mdcr_json(tmp_path, *flags(f"corpus --source synthetic --papers 500 --seed {seed} --corpus c{seed}"))
    assert "Name one with --corpus: c1, c2" in one_line_error(mdcr(tmp_path, "pool"))


FOLDERS = (POOLS, RANKINGS, SCORES)
EVAL = flags("eval --size 900 --queries 20 --samples 1 --model lsa --measures map")


def _damage(path: Path) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    return whole


def test_a_corpus_whose_release_is_gone_says_what_to_run(tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.mkdir()
    lines = "".join(json.dumps({"id": str(number), "title": f"Kiwi {number}"}) + "\n" for number in range(50))
    (release / "a.jsonl").write_text(lines)
    make = [*flags("corpus --source jsonl --corpus own --columns paper_id=id,title=title --input"), str(release)]
    mdcr_json(tmp_path, *make)
    (corpus,) = published(tmp_path / "corpora")
    _damage(corpus.path / "attributes.arrow")
    (release / "a.jsonl").write_text(lines.replace("Kiwi 7", "Plum 7"))
    assert "its release has changed. Run mdcr corpus" in one_line_error(mdcr(tmp_path, "pool", "--repair"))
    (release / "a.jsonl").unlink()
    assert "Run mdcr corpus" in one_line_error(mdcr(tmp_path, "pool", "--repair"))
    (release / "a.jsonl").write_text(lines)
    mdcr_json(tmp_path, *make, "--repair")
    assert not corpus.damaged()


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"../..", b"tiny-000000000000"])
def test_a_damaged_name_file_is_one_line(own: Path, text: bytes) -> None:
    (name,) = (own / "corpora").glob("*.name")
    name.write_bytes(text)
    assert f"{name} names no corpus of this workspace" in one_line_error(mdcr(own, "pool"))


def test_damaged_manifests_of_a_chain_are_repaired_and_others_stop_nothing(own: Path) -> None:
    value = mdcr_json(own, *EVAL)["rows"][0]["value"]
    other = [*EVAL, "--seed", "3"]
    mdcr_json(own, *other)
    manifests = {each.path / MANIFEST for folder in FOLDERS for each in published(own / folder)}
    mdcr_json(own, *EVAL, "--seed", "4")
    unneeded = {each.path / MANIFEST for folder in FOLDERS for each in published(own / folder)} - manifests
    for path in unneeded - set((own / "indexes").rglob(MANIFEST)):
        path.write_bytes(b"\xff")
    assert mdcr_json(own, *EVAL)["rows"][0]["value"] == value
    for path in manifests:
        path.write_bytes(b"\xff")
    assert "--repair" in one_line_error(mdcr(own, *EVAL))
    assert mdcr_json(own, *EVAL, "--repair")["rows"][0]["value"] == value
    assert mdcr_json(own, *other, "--repair")["rows"]


def test_doctor_tells_what_is_missing(tmp_path: Path) -> None:
    findings = {f[0]: f for f in mdcr_json(tmp_path, "doctor")["findings"]}
    assert findings["Java"][1] is True
    assert findings["machine"][1] is True
    old = tmp_path / "jdk"
    (old / "bin").mkdir(parents=True)
    (old / "release").write_text('JAVA_VERSION="17.0.2"\n')
    result = mdcr(tmp_path, "doctor", env={"JAVA_HOME": str(old)})
    assert result.returncode == 0
    assert "17" in result.stdout
    assert "JAVA_HOME" in result.stdout


@pytest.mark.skipif(dense.gpus() > 0, reason="torch sees GPUs")
def test_doctor_tells_that_torch_does_not_see_the_gpu(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA X, 1 MiB, 570'\n")
    tool.chmod(0o755)
    said = mdcr(tmp_path, "doctor", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}).stdout
    assert "NVIDIA X, 1 MiB, 570" in said
    assert "sees 0 GPUs" in said
    assert "install torch for this driver" in said
