from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pipeline.core.artifact import NUMBER, Artifact, oldest_first, published
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.files import lock_file, locked
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from tests.core.letters import HERE, Units, contents, in_units, letters, make, write_letters


def stamps(folder: Path, names: str) -> list[tuple[int, int]]:
    return [((folder / name).stat().st_ino, (folder / name).stat().st_mtime_ns) for name in names]


@pytest.mark.parametrize(("owner", "name"), [(Path, "rename"), (Workdir, "clear_records")])
def test_killed_while_publishing_nothing_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """Before the folder has its name, or before its records are gone."""

    def cut(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, cut)
        make(tmp_path, letters("ab"))
    (folder,) = (path for path in (tmp_path / "room").iterdir() if path.is_dir())
    lock_file(tmp_path / "room" / folder.name.strip(".").removesuffix(".partial")).touch()  # what a kill leaves
    before = stamps(folder, "ab")
    made = make(tmp_path, letters("ab"))
    assert stamps(made.path, "ab") == before
    assert sorted(path.name for path in made.path.iterdir()) == ["a", "b", "manifest.json"]


def test_the_order_of_artifacts_is_that_of_their_making(tmp_path: Path) -> None:
    """Copies have it too, whatever the times of their files; those without a number are the oldest."""
    made = [make(tmp_path / "one", letters(word)).id for word in ("cc", "bb", "aa")]
    shutil.copytree(tmp_path / "one", tmp_path / "copy", copy_function=shutil.copy)
    for number, manifest in enumerate(sorted((tmp_path / "copy").rglob("manifest.json"))):
        os.utime(manifest, (number, number))
    assert [one.id for one in oldest_first(published(tmp_path / "copy" / "room"))] == made
    (tmp_path / "copy" / NUMBER).unlink()
    made.append(make(tmp_path / "copy", letters("a")).id)
    assert [one.id for one in oldest_first(published(tmp_path / "copy" / "room"))] == made
    last = Artifact.open(next((tmp_path / "copy" / "room").glob("a-*")))
    provenance = {name: value for name, value in last.manifest.provenance.items() if name not in ("number", "finished")}
    dataclasses.replace(last.manifest, provenance=provenance).write(last.path)
    assert [one.id for one in oldest_first(published(tmp_path / "copy" / "room"))] == [made[-1], *made[:-1]]


def test_builds_inputs_first_and_records_everything(tmp_path: Path) -> None:
    artifact = make(tmp_path, letters("xy", letters("ab")))
    assert artifact.file("x").read_text() == "abx"
    manifest = json.loads((artifact.path / "manifest.json").read_text())
    assert manifest["config"] == {"letters": "xy", "pause": 0.0}
    assert manifest["counts"] == {"bytes": 2}
    assert list(manifest["inputs"]) == ["before"]
    assert {"code", "packages", "python", "wall_seconds"} <= manifest["provenance"].keys()
    assert sorted(path.name for path in artifact.path.iterdir()) == ["manifest.json", "x", "y"]
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "room").iterdir()) == ["ab", "xy"]


def test_plan_names_what_changed_and_writes_nothing(tmp_path: Path) -> None:
    make(tmp_path, letters("ab"))
    before = sorted(tmp_path.rglob("*"))
    (step,) = Runner(tmp_path, HERE).plan([letters("ac")])
    assert not step.present
    assert step.changed == ('letters: "ab" -> "ac"',)
    assert [s.present for s in Runner(tmp_path, HERE).plan([letters("xy", letters("ab"))])] == [True, False]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_file_is_named_and_repaired_alone(tmp_path: Path) -> None:
    task = letters("xyz", letters("ab"))
    artifact, inner = make(tmp_path, task), make(tmp_path, letters("ab"))
    (artifact.path / "y").write_text("aby!")
    before = stamps(artifact.path, "xyz")
    with pytest.raises(CorruptError, match=r"/xyz-\w+ is damaged: y.*--repair"):
        make(tmp_path, task)
    repaired = make(tmp_path, task, repair=True)
    assert repaired.file("y").read_text() == "aby"
    assert repaired.manifest.order == artifact.manifest.order
    assert repaired.manifest.counts == artifact.manifest.counts
    assert repaired.manifest.provenance["made"] == ["y"]
    assert [a == b for a, b in zip(before, stamps(artifact.path, "xyz"), strict=True)] == [True, False, True]
    (inner.path / "b").write_text("B")  # same size: only a full check sees it
    assert make(tmp_path, task, repair=True).id == artifact.id
    assert (inner.path / "b").read_text() == "b"


def test_an_artifact_with_a_damaged_manifest_is_made_again(tmp_path: Path) -> None:
    artifact = make(tmp_path, letters("xyz"))
    (artifact.path / "manifest.json").write_bytes(b"\xff{")
    with pytest.raises(CorruptError, match=r"manifest\.json is damaged.*--repair"):
        make(tmp_path, letters("xyz"))
    assert make(tmp_path, letters("xyz"), repair=True).manifest.outputs == artifact.manifest.outputs


def test_a_repair_that_fails_keeps_the_intact_files(tmp_path: Path) -> None:
    artifact = make(tmp_path, letters("xyz"))
    before = stamps(artifact.path, "xyz")
    (artifact.path / "y").unlink()

    def fail(*_: object) -> NoReturn:
        raise InputError("no such model", "Choose another")

    with pytest.raises(InputError):
        make(tmp_path, dataclasses.replace(letters("xyz"), run=fail), repair=True)
    after = stamps(make(tmp_path, letters("xyz")).path, "xyz")
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_an_input_that_this_command_does_not_make_is_named_without_a_loop(tmp_path: Path) -> None:
    inner = make(tmp_path, letters("ab"))
    (inner.path / "a").write_text("A")
    with pytest.raises(CorruptError, match=r"/a does not match.*Run the command that makes it with --repair"):
        make(tmp_path, letters("xy", inner), repair=True)


def test_a_lock_that_its_holder_removes_is_opened_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else two builders could each hold a file of that name."""
    path, entered, leave = tmp_path / "a", threading.Event(), threading.Event()

    def build() -> None:
        with locked(path):
            entered.set()
            leave.wait()

    waiting = threading.Thread(target=build)
    with locked(path):
        waiting.start()
        while "another process is building a" not in capsys.readouterr().err:
            time.sleep(0.01)
    assert entered.wait(30)
    assert lock_file(path).exists()
    leave.set()
    waiting.join()
    assert not lock_file(path).exists()


CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


def _repair_until(root: Path, task: Task, event: int) -> bool:
    """Repair in a process that dies before its n-th change of a file below ``root``; whether it died."""
    process = os.fork()
    if process == 0:
        seen = 0

        def count(name: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            changes = name in CHANGES or (name == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
            if changes and str(arguments[0]).startswith(str(root)):
                seen += 1
                if seen == event:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            make(root, task, repair=True)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0


@pytest.mark.parametrize("victim", ["manifest.json", "index/1"])
def test_a_repair_killed_at_any_moment_is_finished_by_the_next_run(tmp_path: Path, victim: str) -> None:
    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        if not out.done("index"):
            with out.folder("index") as (folder, _):
                for name in ("0", "1"):
                    (folder / name).write_text(name)
        return write_letters("xyz", inputs, out)

    task = dataclasses.replace(letters("xyz"), run=run)
    artifact, whole, kills = make(tmp_path, task), contents(tmp_path), 0
    before = stamps(artifact.path, "xyz")
    while True:
        (artifact.path / victim).write_text("damaged")
        kills += 1
        if not _repair_until(tmp_path, task, kills):
            break
        make(tmp_path, task, repair=True).verify()
        assert victim == "manifest.json" or stamps(artifact.path, "xyz") == before
        left = contents(tmp_path)
        left.pop(f"room/.{artifact.name}.lock", None)  # its holder died, so nobody waits for it
        assert left == whole
    assert kills > 20


@pytest.mark.parametrize("task", [letters("ab"), in_units("ab")], ids=["whole", "units"])
def test_an_error_publishes_nothing_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    def fail(*_: object) -> NoReturn:
        raise InputError("no such year", "Choose another")

    monkeypatch.setattr(Units, "work", fail)
    with pytest.raises(InputError):
        make(tmp_path, task if task.units else dataclasses.replace(task, run=fail))
    assert list((tmp_path / "room").iterdir()) == []


ONE = 'make(Path(sys.argv[1]), letters("abcdefgh", letters("xyz", pause=0.03), pause=0.03))'
BY_UNITS = ONE.replace("letters", "in_units")
IMPORTS = """
import os, signal, sys
from pathlib import Path
from pipeline.core.runner import Runner
from pipeline.core.workdir import Workdir
from tests.core.letters import HERE, letters, make, in_units
"""
LOST = """
with Workdir(Path(sys.argv[1])).file("b") as (path, _):
    path.write_text("half of")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(root: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS + script, str(root)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_a_lost_process_was_writing_is_not_published(tmp_path: Path) -> None:
    """A node of a cluster dies: others do its part, in the same folder."""

    def run(inputs: Inputs, out: Workdir, _: Resources) -> Counts:
        assert start(out.path, LOST).wait() == -signal.SIGKILL
        assert len(list(out.path.glob("*.tmp"))) == 1
        return write_letters("abc", inputs, out)

    artifact = make(tmp_path, dataclasses.replace(letters("abc"), run=run))
    assert sorted(path.name for path in artifact.path.iterdir()) == ["a", "b", "c", "manifest.json"]


@pytest.mark.parametrize("script", [ONE, BY_UNITS], ids=["whole", "units"])
def test_killed_at_any_moment_it_goes_on_and_publishes_the_same_bytes(tmp_path: Path, script: str) -> None:
    assert start(tmp_path / "whole", script).wait() == 0
    root = tmp_path / "killed"
    for finished in (2, 7):
        process = start(root, script)
        while len(list(root.rglob("?"))) < finished:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert start(root, script).wait() == 0
    assert contents(root) == contents(tmp_path / "whole")


@pytest.mark.parametrize("script", [ONE, BY_UNITS], ids=["whole", "units"])
def test_of_two_builders_one_builds_and_the_other_waits(tmp_path: Path, script: str) -> None:
    processes = [start(tmp_path, script) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("letters: abcdefgh" in text for text in said) == 1
    assert sum("another process is building" in text for text in said) >= 1
    assert not list((tmp_path / "room").glob(".*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_is_said_and_nothing_is_half_published(small_disk: Path) -> None:
    def fill(_i: Inputs, out: Workdir, _r: Resources) -> Counts:
        for name in "abc":
            with out.file(name) as (path, _):
                path.write_bytes(bytes(24_000))
        return {}

    with pytest.raises(StageError, match=r"disk is full.*nothing was published.*again"):
        make(small_disk, dataclasses.replace(letters("ab"), run=fill))
    assert not [path for path in (small_disk / "room").iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize("slug", ["../x", "a/b", "", ".hidden", "line\nend", "\u202e", "x" * 201])
def test_an_artifact_is_never_named_by_a_path(slug: str) -> None:
    with pytest.raises(InputError, match="cannot be part of a folder's name"):
        letters(slug)
