from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.progress import say
from pipeline.core.publish import _acquire
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Facts, Inputs, Job, Task
from pipeline.core.workdir import Workdir


@dataclass(frozen=True)
class Letters:
    letters: str
    pause: float = 0.0


def write_letters(config: Letters, inputs: Inputs, out: Workdir) -> Counts:
    """A stage that writes one file a letter, with what its input says in front."""
    prefix = "".join(inputs["before"].file(o.path).read_text() for o in inputs["before"].outputs()) if inputs else ""
    made = []
    for letter in config.letters:
        if not out.done(letter):
            with out.file(letter) as (path, written):
                time.sleep(config.pause)
                path.write_text(prefix + letter)
                written.counts = {"bytes": 1}
            made.append(letter)
    out.note(made=made)
    return {"bytes": sum(out.counts(letter)["bytes"] for letter in config.letters)}


def letters(text: str, before: Task | None = None, pause: float = 0.0) -> Task:
    config = Letters(text, pause)
    inputs: dict[str, Task | Artifact] = {} if before is None else {"before": before}
    return Task("letters", 1, "room", text, config, inputs, lambda i, out, _: write_letters(config, i, out))


def runner(root: Path, *, repair: bool = False) -> Runner:
    return Runner(root, Resources(memory=2**30, workers=1), repair=repair)


def test_killed_while_publishing_nothing_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(Exception):
        pass

    clear = Workdir.clear_records

    def cut(self: Workdir) -> None:
        clear(self)
        raise KilledError

    monkeypatch.setattr(Workdir, "clear_records", cut)
    with pytest.raises(KilledError):
        runner(tmp_path).make(letters("ab"))
    monkeypatch.undo()
    (partial,) = (tmp_path / "room").glob(".*.partial")
    inode = (partial / "a").stat().st_ino
    artifact = runner(tmp_path).make(letters("ab"))
    assert (artifact.path / "a").stat().st_ino == inode
    assert not partial.exists()


def test_builds_inputs_first_and_records_everything(tmp_path: Path) -> None:
    artifact = runner(tmp_path).make(letters("xy", letters("ab")))
    assert artifact.file("x").read_text() == "abx"
    manifest = json.loads((artifact.path / "manifest.json").read_text())
    assert manifest["config"] == {"letters": "xy", "pause": 0.0}
    assert manifest["counts"] == {"bytes": 2}
    assert list(manifest["inputs"]) == ["before"]
    assert {"code", "packages", "python", "wall_seconds"} <= manifest["provenance"].keys()
    assert sorted(p.name for p in artifact.path.iterdir()) == ["manifest.json", "x", "y"]
    assert sorted(p.name.split("-")[0] for p in (tmp_path / "room").iterdir()) == ["ab", "xy"]


def test_plan_names_what_changed_and_writes_nothing(tmp_path: Path) -> None:
    runner(tmp_path).make(letters("ab"))
    before = sorted(p for p in tmp_path.rglob("*"))
    (step,) = runner(tmp_path).plan([letters("ac")])
    assert not step.present
    assert step.changed == ('letters: "ab" -> "ac"',)
    assert [s.present for s in runner(tmp_path).plan([letters("xy", letters("ab"))])] == [True, False]
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_a_damaged_file_is_named_and_repaired_alone(tmp_path: Path) -> None:
    inner, outer = letters("ab"), letters("xyz", letters("ab"))
    artifact = runner(tmp_path).make(outer)
    (artifact.path / "y").write_text("aby!")
    stamps = {name: _stamp(artifact.path / name) for name in "xyz"}
    with pytest.raises(CorruptError, match=r"/xyz-\w+ is damaged: y.*--repair"):
        runner(tmp_path).make(letters("xyz", letters("ab")))
    repaired = runner(tmp_path, repair=True).make(letters("xyz", letters("ab")))
    assert repaired.file("y").read_text() == "aby"
    assert repaired.manifest.provenance["made"] == ["y"]
    assert repaired.manifest.provenance["rebuilt_with_other_bytes"] == []
    assert repaired.manifest.counts == artifact.manifest.counts
    assert [stamps[name] == _stamp(artifact.path / name) for name in "xyz"] == [True, False, True]
    below = runner(tmp_path).make(inner)
    (below.path / "b").write_text("B")  # same size: only a full check sees it
    fixed = runner(tmp_path, repair=True).make(letters("xyz", letters("ab")))
    assert fixed.id == artifact.id
    assert (below.path / "b").read_text() == "b"


def _stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def test_a_damaged_manifest_is_repaired_and_intact_files_stay(tmp_path: Path) -> None:
    artifact = runner(tmp_path).make(letters("xyz"))
    stamps = {name: _stamp(artifact.path / name) for name in "xyz"}
    (artifact.path / "manifest.json").write_bytes(b"\xff{")
    with pytest.raises(CorruptError, match=r"manifest\.json is damaged.*--repair"):
        runner(tmp_path).make(letters("xyz"))
    repaired = runner(tmp_path, repair=True).make(letters("xyz"))
    assert repaired.manifest.outputs == artifact.manifest.outputs
    assert {name: _stamp(artifact.path / name) for name in "xyz"} == stamps


def test_an_input_that_this_command_does_not_make_is_named_without_a_loop(tmp_path: Path) -> None:
    inner = runner(tmp_path).make(letters("ab"))
    task = dataclasses.replace(letters("xy", letters("ab")), inputs={"before": inner})
    (inner.path / "a").write_text("A")
    with pytest.raises(CorruptError, match=r"/a does not match.*Run the command that makes it with --repair"):
        runner(tmp_path, repair=True).make(task)


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
            runner(root, repair=True).make(task)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0


def test_a_lock_that_another_process_removes_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / ".a.lock"
    with lock.open("a") as handle:
        lock.unlink()
        monkeypatch.setattr(Path, "exists", lambda _: True)  # it is removed right after this was asked
        assert not _acquire(handle, lock)


@pytest.mark.parametrize("victim", ["y", "manifest.json", "index/1"])
def test_a_repair_killed_at_any_moment_never_loses_the_artifact(tmp_path: Path, victim: str) -> None:
    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        if not out.done("index"):
            with out.folder("index") as (folder, _):
                for name in ("0", "1"):
                    (folder / name).write_text(name)
        return write_letters(Letters("xyz"), inputs, out)

    task = dataclasses.replace(letters("xyz"), run=run)
    artifact = runner(tmp_path).make(task)
    whole = _bytes(tmp_path)
    kills = 0
    while True:
        (artifact.path / victim).write_text("damaged")
        kills += 1
        if not _repair_until(tmp_path, task, kills):
            break
        assert (artifact.path / "manifest.json").is_file()
        runner(tmp_path, repair=True).make(task).verify()
        left = _bytes(tmp_path)
        left.pop(f"room/.{artifact.name}.lock", None)  # its holder died, so nobody waits for it
        assert left == whole
    assert kills > 30


def test_an_error_publishes_nothing_and_leaves_no_litter(tmp_path: Path) -> None:
    def fail(_i: Inputs, _o: Workdir, _r: Resources) -> Counts:
        raise InputError("no such year", "Choose another")

    task = dataclasses.replace(letters("ab"), run=fail)
    with pytest.raises(InputError):
        runner(tmp_path).make(task)
    assert [p.name for p in (tmp_path / "room").iterdir()] == []


SCRIPT = """
import sys
from pathlib import Path
from tests.core.test_runner import letters, runner
runner(Path(sys.argv[1])).make(letters("abcdefgh", letters("xyz", pause=0.05), pause=0.05))
"""


GROUP = """
import sys
from pathlib import Path
from tests.core.test_runner import letters, runner, together
inner = letters("xyz", pause=0.03)
runner(Path(sys.argv[1])).make_all([together(text, inner, pause=0.03) for text in ("abc", "def", "ghi")])
"""

LOST = """
import os, signal, sys
from pathlib import Path
from pipeline.core.workdir import Workdir
with Workdir(Path(sys.argv[1])).file("b") as (path, _):
    path.write_text("half of")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_lost_process_was_writing_is_not_published(tmp_path: Path) -> None:
    """A node of a cluster dies: others do its part, in the same folder."""
    task = letters("abc")

    def run(inputs: Inputs, out: Workdir, _: Resources) -> Counts:
        lost = subprocess.run([sys.executable, "-c", LOST, str(out.path)], check=False)
        assert lost.returncode == -signal.SIGKILL
        assert len(list(out.path.glob("*.tmp"))) == 1
        return write_letters(task.config, inputs, out)

    artifact = runner(tmp_path).make(dataclasses.replace(task, run=run))
    assert sorted(path.name for path in artifact.path.iterdir()) == ["a", "b", "c", "manifest.json"]


def _start(root: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("script", [SCRIPT, GROUP], ids=["one", "group"])
def test_killed_at_any_moment_it_goes_on_and_publishes_the_same_bytes(tmp_path: Path, script: str) -> None:
    assert _start(tmp_path / "whole", script).wait() == 0
    root = tmp_path / "killed"
    for finished in (1, 5, 9):
        process = _start(root, script)
        while len(list(root.rglob("?"))) < finished:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert _start(root, script).wait() == 0
    assert _bytes(root) == _bytes(tmp_path / "whole")


@pytest.mark.parametrize(("script", "made"), [(SCRIPT, "letters: abcdefgh"), (GROUP, "together: 3")])
def test_of_two_builders_one_builds_and_the_other_waits(tmp_path: Path, script: str, made: str) -> None:
    processes = [_start(tmp_path, script) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(made in text for text in said) == 1
    assert sum("another process is building" in text for text in said) >= 1
    assert not list((tmp_path / "room").glob(".*"))


def _bytes(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_is_said_and_nothing_is_half_published(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:

        def fill(_i: Inputs, out: Workdir, _r: Resources) -> Counts:
            for name in ("a", "b", "c"):
                if not out.done(name):
                    with out.file(name) as (path, _):
                        path.write_bytes(bytes(24_000))
            return {}

        task = dataclasses.replace(letters("ab"), run=fill)
        with pytest.raises(StageError, match=r"disk is full.*nothing was published.*again"):
            runner(small).make(task)
        assert not [p for p in (small / "room").iterdir() if not p.name.startswith(".")]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@dataclass(frozen=True)
class Together:
    """The letters of every job, a unit a letter."""

    pause: float = 0.0
    sequential = False
    accelerated = False

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        return dict.fromkeys(out.path.name.removeprefix(".").partition("-")[0], 1)

    def devices(self, resources: Resources) -> list[str]:
        return [resources.device]

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        say(f"together: {len(jobs)}")
        for inputs, out, units in jobs:
            write_letters(Letters("".join(units), self.pause), inputs, out)
        return {}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:
        return {"bytes": sum(out.counts(letter)["bytes"] for letter in out.plan() or {})}


def together(text: str, before: Task | None = None, pause: float = 0.0) -> Task:
    return dataclasses.replace(letters(text, before, pause), run=None, units=Together(pause))


def test_what_can_be_made_together_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = letters("ab")
    tasks = [letters("out", together("uv", inner)), together("xyz", inner), together("uv", inner), letters("pq")]
    made = runner(tmp_path / "together").make_all([*tasks, together("k", inner, pause=0.001)])
    assert re.findall(r"together: \d", capsys.readouterr().err) == ["together: 2", "together: 1"]
    for task, artifact in zip(tasks, made, strict=False):
        alone = runner(tmp_path / "alone").make(task)
        assert (alone.id, alone.name, alone.manifest.counts) == (artifact.id, artifact.name, artifact.manifest.counts)
    alone = {name: content for name, content in _bytes(tmp_path / "together").items() if "/k-" not in name}
    assert alone == _bytes(tmp_path / "alone")
    runner(tmp_path / "together").make_all([*tasks, together("l", inner)])
    assert capsys.readouterr().err.count("together: 1") == 3  # two made alone before, then what was missing


def test_a_group_that_fails_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Facts:
        raise InputError("no such year", "Choose another")

    monkeypatch.setattr(Together, "work", fail)
    with pytest.raises(InputError):
        runner(tmp_path).make_all([together("ab"), together("cd")])
    assert [p.name for p in (tmp_path / "room").iterdir()] == []


@pytest.mark.parametrize("slug", ["../x", "a/b", "", ".hidden", "line\nend", "\u202e", "x" * 201])
def test_an_artifact_is_never_named_by_a_path(slug: str) -> None:
    with pytest.raises(InputError, match="cannot be part of a folder's name"):
        letters(slug)


@dataclass(frozen=True)
class Drawn:
    size: int
    field: str | None = None
    sample: int = 1


def test_work_is_of_one_kind_for_the_fields_and_samples_of_one_pool_size() -> None:
    def ranked(pool: Drawn, depth: str = "a") -> Task:
        pools = Task("pool", 1, "pools", "p", pool, {}, lambda *_: {})
        return Task("search", 1, "rankings", "r", Letters(depth), {"pool": pools}, lambda *_: {})

    usual = ranked(Drawn(1_000))
    assert usual.kind == ranked(Drawn(1_000, "Art", 2)).kind
    assert usual.id != ranked(Drawn(1_000, "Art", 2)).id
    assert usual.kind != ranked(Drawn(2_000)).kind
    assert usual.kind != ranked(Drawn(1_000), "b").kind
    assert usual.kind != usual.inputs["pool"].kind  # type: ignore[union-attr]
