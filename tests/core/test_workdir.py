from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import folder_name, identity
from pipeline.core.errors import CorruptError
from pipeline.core.manifest import MANIFEST, Manifest
from pipeline.core.workdir import Workdir

SCHEMA = pa.schema([pa.field("row", pa.uint32())])
CONFIG, INPUTS = {"size": 2.5e-07}, {"pool": "0" * 64}
IDENTITY = identity("test", 1, CONFIG, INPUTS)
NAME = folder_name("t", IDENTITY)


def write(work: Workdir, *names: str) -> None:
    for name in names:
        with work.file(name) as (path, written):
            path.write_bytes(name.encode() * 10)
            written.rows, written.counts = 10, {"tokens": 17}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    work = Workdir.prepare(tmp_path / NAME)
    write(work, "a", "b")
    counts = {"positives": 12, "reasons": {"no text": 0.5}}
    Manifest(IDENTITY, "test", 1, "t", CONFIG, INPUTS, tuple(work.outputs()), counts).write(work.path)
    work.clear_records()
    return Artifact.open(work.path)


def flipped(whole: bytes, positions: range | list[int]) -> Iterator[bytes]:
    for position in positions:
        changed = bytearray(whole)
        changed[position // 8] ^= 1 << position % 8
        yield bytes(changed)


def test_finished_files_survive_and_unfinished_ones_go(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path)
    work.arrow("a.arrow", pa.table({"row": pa.array([1, 2], pa.uint32())}), SCHEMA, tokens=7)
    with pytest.raises(RuntimeError, match="killed"), work.file("b.arrow") as (path, _):
        path.write_bytes(b"half")
        raise RuntimeError("killed")
    (tmp_path / "c.arrow").write_bytes(b"no record")
    (tmp_path / ".d.arrow.123.tmp").write_bytes(b"torn")
    (tmp_path / "e").mkdir()
    write(work, "f")
    (tmp_path / "f").write_bytes(b"changed")

    again = Workdir.prepare(tmp_path)
    assert again.counts("a.arrow") == {"tokens": 7}
    assert [again.done(name) for name in ("a.arrow", "b.arrow", "f")] == [True, False, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.arrow.done", "a.arrow"]


def test_folders_are_recorded_file_by_file(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path)
    with work.folder("index") as (folder, _):
        (folder / "deep").mkdir()
        (folder / "deep" / "x").write_bytes(b"1")
        (folder / "y").write_bytes(b"22")
    assert [(output.path, output.bytes) for output in work.outputs()] == [("index/deep/x", 1), ("index/y", 2)]
    assert Workdir.prepare(tmp_path).done("index")


def test_an_artifact_names_its_damaged_file(artifact: Artifact) -> None:
    assert artifact.file("a").read_bytes() == b"a" * 10
    (artifact.path / "b").write_bytes(b"b" * 9 + b"c")
    assert artifact.complete()
    assert artifact.damaged() == ["b"]
    with pytest.raises(CorruptError, match=r"/b does not match.*--repair"):
        artifact.file("b")
    (artifact.path / "a").unlink()
    assert not artifact.complete()
    with pytest.raises(CorruptError, match="/a is missing"):
        artifact.file("a")


def test_no_flipped_bit_of_a_manifest_is_accepted(artifact: Artifact) -> None:
    manifest = artifact.path / MANIFEST
    whole = manifest.read_bytes()
    for changed in flipped(whole, random.Random(19).sample(range(8 * len(whole)), 300)):
        manifest.write_bytes(changed)
        with pytest.raises(CorruptError, match=rf"{manifest} is damaged.*--repair"):
            Artifact.open(artifact.path)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"7", b'{"schema": 1}', b'{"checksum": 1, "a": NaN}']
)
def test_a_manifest_that_is_none_is_refused_in_one_line(artifact: Artifact, text: bytes) -> None:
    (artifact.path / MANIFEST).write_bytes(text)
    with pytest.raises(CorruptError, match="is damaged") as refused:
        Artifact.open(artifact.path)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "edit",
    [{"id": "0" * 64}, {"stage": "a"}, {"config": {"size": 3}}, {"inputs": {"pool": "1" * 64}}, {"slug": "u"}],
)
def test_a_manifest_of_another_artifact_is_refused_whatever_its_checksum_says(
    artifact: Artifact, edit: dict[str, Any]
) -> None:
    dataclasses.replace(artifact.manifest, **edit).write(artifact.path)
    with pytest.raises(CorruptError, match=r"manifest\.json is the manifest of .*--repair"):
        Artifact.open(artifact.path)


def test_an_unreadable_manifest_is_left_out_with_one_warning(
    artifact: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    room = artifact.path.parent
    other = shutil.copytree(artifact.path, room / "other-000000000000")
    for _ in range(2):
        assert [listed.path for listed in published(room)] == [artifact.path]
    assert capsys.readouterr().err.count(f"left out: {other}/manifest.json is the manifest of {NAME}") == 1
    dataclasses.replace(artifact.manifest, schema=2).write(artifact.path)
    assert not list(published(room))
    said = f"left out: {artifact.path}/manifest.json has schema 2, this version reads 1. Remove its folder, and run"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b'{"outputs": [', b"\xff", b"[" * 100_000, b"{}", b"[]", b'{"outputs": 1}'])
def test_a_damaged_record_means_not_finished(tmp_path: Path, text: bytes) -> None:
    work = Workdir.prepare(tmp_path)
    write(work, "a", "b")
    work.write_plan({"a": 1, "b": 1})
    (tmp_path / ".a.done").write_bytes(text)
    (tmp_path / "scratch/units.json").write_bytes(text)
    for opened in (Workdir(tmp_path), Workdir.prepare(tmp_path)):
        assert [opened.done(name) for name in ("a", "b")] == [False, True]
        assert [output.path for output in opened.outputs()] == ["b"]
        assert opened.plan() in (None, {}, {"outputs": 1})
    assert not (tmp_path / ".a.done").exists()
