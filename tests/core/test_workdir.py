from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import folder_name, identity
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Manifest
from pipeline.core.workdir import Workdir

SCHEMA = pa.schema([pa.field("row", pa.uint32())])


IDENTITY = identity("test", 1, {"size": 2.5e-07}, {"pool": "0" * 64})
NAME = folder_name("t", IDENTITY)


def _publish(work: Workdir) -> Artifact:
    outputs, counts = tuple(work.outputs()), {"positives": 12, "reasons": {"no text": 0.5}}
    Manifest(IDENTITY, "test", 1, "t", {"size": 2.5e-07}, {"pool": "0" * 64}, outputs, counts).write(work.path)
    work.clear_records()
    return Artifact.open(work.path)


def test_finished_files_survive_and_unfinished_ones_go(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path)
    work.arrow("a.arrow", pa.table({"row": pa.array([1, 2], pa.uint32())}), SCHEMA, tokens=7)
    with pytest.raises(RuntimeError, match="killed"), work.file("b.arrow") as (path, _):
        path.write_bytes(b"half")
        raise RuntimeError("killed")
    (tmp_path / "c.arrow").write_bytes(b"no record")
    (tmp_path / ".d.arrow.123.tmp").write_bytes(b"torn")
    (tmp_path / "e").mkdir()

    again = Workdir.prepare(tmp_path)
    assert again.done("a.arrow")
    assert again.counts("a.arrow") == {"tokens": 7}
    assert not again.done("b.arrow")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.arrow.done", "a.arrow"]


def test_a_finished_file_that_changed_is_made_again(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path)
    with work.file("a") as (path, _):
        path.write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"abd")
    assert not Workdir.prepare(tmp_path).done("a")


def test_folders_are_recorded_file_by_file(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path)
    with work.folder("index") as (folder, _):
        (folder / "deep").mkdir()
        (folder / "deep" / "x").write_bytes(b"1")
        (folder / "y").write_bytes(b"22")
    assert [(o.path, o.bytes) for o in work.outputs()] == [("index/deep/x", 1), ("index/y", 2)]
    assert Workdir.prepare(tmp_path).done("index")


def test_an_artifact_names_its_damaged_file(tmp_path: Path) -> None:
    work = Workdir.prepare(tmp_path / NAME)
    for name in ("a", "b"):
        with work.file(name) as (path, written):
            path.write_bytes(name.encode() * 10)
            written.rows = 10
    artifact, folder = _publish(work), work.path
    assert artifact.file("a").read_bytes() == b"a" * 10
    (folder / "b").write_bytes(b"b" * 9 + b"c")
    assert artifact.complete()
    assert artifact.damaged() == ["b"]
    with pytest.raises(CorruptError, match=r"/b does not match.*--repair"):
        artifact.file("b")
    (folder / "a").unlink()
    assert not artifact.complete()
    with pytest.raises(CorruptError, match="/a is missing"):
        artifact.file("a")


def test_a_folder_without_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no artifact"):
        Artifact.open(tmp_path)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    work = Workdir.prepare(tmp_path / NAME)
    with work.file("a") as (path, _):
        path.write_bytes(b"a" * 10)
    return _publish(work)


def test_no_flipped_bit_of_a_manifest_is_accepted(artifact: Artifact) -> None:
    manifest = artifact.path / MANIFEST
    whole = manifest.read_bytes()
    generator = random.Random(19)
    for position in generator.sample(range(8 * len(whole)), 300):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        manifest.write_bytes(flipped)
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
    other = room / "other-000000000000"
    shutil.copytree(artifact.path, other)
    assert [each.path for each in published(room)] == [each.path for each in published(room)] == [artifact.path]
    assert capsys.readouterr().err.count(f"left out: {other}/manifest.json is the manifest of {NAME}") == 1


@pytest.mark.parametrize("text", [b"", b'{"outputs": [', b"\xff", b"[" * 100_000, b"{}", b"[]", b'{"outputs": 1}'])
def test_a_damaged_record_means_not_finished(tmp_path: Path, text: bytes) -> None:
    work = Workdir.prepare(tmp_path)
    for name in ("a", "b"):
        with work.file(name) as (path, _):
            path.write_bytes(b"abc")
    work.write_plan({"a": 1, "b": 1})
    (tmp_path / ".a.done").write_bytes(text)
    (tmp_path / "scratch/units.json").write_bytes(text)
    for opened in (Workdir(tmp_path), Workdir.prepare(tmp_path)):
        assert opened.done("b")
        assert not opened.done("a")
        assert [output.path for output in opened.outputs()] == ["b"]
        assert opened.plan() in (None, {}, {"outputs": 1})
    assert not (tmp_path / ".a.done").exists()


def test_no_flipped_bit_of_a_record_is_accepted(tmp_path: Path) -> None:
    with Workdir.prepare(tmp_path).file("a") as (path, written):
        path.write_bytes(b"abc")
        written.rows, written.counts = 3, {"tokens": 17}
    record = tmp_path / ".a.done"
    whole, before = record.read_bytes(), Workdir(tmp_path).outputs()
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        record.write_bytes(flipped)
        assert Workdir(tmp_path).outputs() in ([], before)
