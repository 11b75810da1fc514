from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import Manifest
from pipeline.core.workdir import Workdir

SCHEMA = pa.schema([pa.field("row", pa.uint32())])


def _publish(folder: Path, work: Workdir) -> Artifact:
    Manifest("0" * 64, "test", 1, "t", {}, {}, tuple(work.outputs()), {}).write(folder)
    work.clear_records()
    return Artifact.open(folder)


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
    work = Workdir.prepare(tmp_path)
    for name in ("a", "b"):
        with work.file(name) as (path, written):
            path.write_bytes(name.encode() * 10)
            written.rows = 10
    artifact = _publish(tmp_path, work)
    assert artifact.file("a").read_bytes() == b"a" * 10
    (tmp_path / "b").write_bytes(b"b" * 9 + b"c")
    assert artifact.complete()
    assert artifact.damaged() == ["b"]
    with pytest.raises(CorruptError, match=r"/b does not match.*--repair"):
        artifact.file("b")
    (tmp_path / "a").unlink()
    assert not artifact.complete()
    with pytest.raises(CorruptError, match="/a is missing"):
        artifact.file("a")


def test_a_folder_without_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no artifact"):
        Artifact.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(CorruptError, match="is damaged"):
        Artifact.open(tmp_path)
