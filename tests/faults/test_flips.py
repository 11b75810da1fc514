"""Flipped bits and edited manifests: each is refused by name or harmless, never another figure, and repaired."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.core.manifest import MANIFEST
from tests.cli.run import flags, mdcr
from tests.faults.tally import KILLS, Tally
from tests.faults.workspace import contents, leftovers, release

MANIFEST_FLIPS = 24 if KILLS <= 10 else 6 * KILLS
FLIPS_OF_A_FILE = 1 if KILLS <= 10 else 5
REPAIRS = 10
"""One manifest in so many is repaired too."""

POOL = flags("--corpus tiny --size all --queries 20")
EVALUATE = ["eval", *POOL, *flags("--samples 1 --model bm25,lsa --workers 1 --json --quiet")]
FIGURES = [*EVALUATE, "--measures", "map"]
TUNED = [*FIGURES, "--model", "bm25,rrf(bm25,lsa)"]
TABLE = flags("show table --measures map --json --quiet")
READERS = {"corpora": [*FIGURES, "--seed", "14"], "runs": [*EVALUATE, "--measures", "f1,ndcg@7"]}
OTHER_READER = [*FIGURES, "--depth", "7"]
"""Commands that read the files of a folder, to make artifacts that are not there yet."""


class Workspace(NamedTuple):
    """A finished workspace: what made its corpus and its figures, what is in it, and what commands print there."""

    root: Path
    corpus: list[str]
    figures: Sequence[str]
    contents: dict[str, object]
    printed: dict[str, str]

    def copy(self, to: Path) -> Path:
        """Return a copy that shares all files with this one."""
        return shutil.copytree(self.root, to, copy_function=os.link)

    def files(self, pattern: str) -> list[str]:
        """Return the published files that match, by path; reports are exports, which no command reads."""
        return [name for name in self.contents if Path(name).match(pattern) and "runs/reports" not in name]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("flips")
    given = release(folder / "release", papers=240)
    corpus = ["corpus", "--source", "s2orc2020", "--input", str(given), *flags("--corpus tiny --workers 1")]
    return finished(folder / "root", corpus, [corpus, FIGURES], FIGURES)


@pytest.fixture(scope="module")
def tuned(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return the workspace with a tuning of BM25, and a fusion of that."""
    root = workspace.copy(tmp_path_factory.mktemp("tuned") / "root")
    return finished(root, workspace.corpus, [["tune", *POOL], TUNED], TUNED)


def finished(root: Path, corpus: list[str], commands: Sequence[Sequence[str]], figures: Sequence[str]) -> Workspace:
    """Run the commands that finish a workspace."""
    for command in commands:
        made = mdcr(root, *command)
        assert made.returncode == 0, made.stderr
    workspace = Workspace(root, corpus, figures, contents(root), {})
    for number, reader in enumerate((figures, TABLE, OTHER_READER, *READERS.values())):
        result = mdcr(workspace.copy(root.parent / str(number)), *reader)
        assert result.returncode == 0, result.stderr
        workspace.printed[" ".join(reader)] = result.stdout
    return workspace


def test_flipped_bits_in_data(workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    chance = random.Random(1)
    lost = []
    for name in (file for file in workspace.files("*") if not file.endswith(MANIFEST)):
        for number in range(FLIPS_OF_A_FILE):
            damaged = flip(workspace.root / name, chance)
            lost += attack(workspace, name, damaged, tmp_path, tally)
            if number == 0:
                lost += repair(workspace, name, damaged, tmp_path, tally)
    assert not lost, "\n".join(lost)


def test_flipped_bits_in_manifests(workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    chance = random.Random(2)
    manifests = workspace.files(f"*/{MANIFEST}")
    lost = []
    for number in range(MANIFEST_FLIPS):
        name = manifests[number % len(manifests)]
        damaged = flip(workspace.root / name, chance)
        lost += attack(workspace, name, damaged, tmp_path, tally)
        if number % REPAIRS == 0:
            lost += repair(workspace, name, damaged, tmp_path, tally)
    assert not lost, "\n".join(lost)


def test_flipped_bits_in_a_tuning(tuned: Workspace, tmp_path: Path, tally: Tally) -> None:
    """What was chosen on validation queries decides figures: damaged, it is an error, or it is repaired."""
    chance = random.Random(3)
    lost = []
    systems = {row["system"] for row in rows(tuned.printed[" ".join(TUNED)])}
    assert systems == {"bm25", "bm25:k1=0.9,b=0.4", "rrf(bm25,lsa)"}
    (tuning,) = tuned.files(f"runs/tunings/*/{MANIFEST}")
    damaged = flip(tuned.root / tuning, chance)
    lost += attack(tuned, tuning, damaged, tmp_path, tally)
    lost += repair(tuned, tuning, damaged, tmp_path, tally)
    assert not lost, "\n".join(lost)
    refused = mdcr(damage(tuned, tuning, b"{", tmp_path / "refused"), *TUNED)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_a_tuning_that_no_system_uses_may_be_damaged(tuned: Workspace, tmp_path: Path) -> None:
    (name,) = tuned.files(f"runs/tunings/*/{MANIFEST}")
    root = damage(tuned, name, b"{", tmp_path / "root")
    assert mdcr(root, *FIGURES, "--model", "lsa,bm25:k1=0.9,b=0.4").returncode == 0


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Return what edits a manifest as a person would, with valid JSON."""

    def edit(manifest: bytes) -> bytes:
        values = json.loads(manifest)
        change(values)
        return json.dumps(values, indent=1).encode()

    return edit


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "half of it": lambda manifest: manifest[: len(manifest) // 2],
    "nested 100,000 deep": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "a number of 5,000 digits": lambda manifest: manifest.replace(b'"schema": 1', b'"schema": ' + b"1" * 5_000),
    "another schema": edited(lambda values: values.update(schema=2)),
    "a key less": edited(lambda values: values.pop("stage")),
    "another id": edited(lambda values: values.update(id="0" * 64)),
    "another config": edited(lambda values: values["config"].update(seed=99)),
    "an input more": edited(lambda values: values["inputs"].update(other="0" * 64)),
    "other counts": edited(lambda values: values["counts"].update(positives=1, queries=1, kept=1)),
    "no outputs": edited(lambda values: values.update(outputs=[])),
    "an output outside": edited(lambda values: values["outputs"][0].update(path="../../../escaped")),
    "rows that are text": edited(lambda values: values["outputs"][0].update(rows="many")),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_edited_manifests(mutation: str, workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    manifests = workspace.files(f"*/{MANIFEST}")
    every = 1 if KILLS > 10 else len(manifests)
    lost = []
    for name in manifests[list(MUTATIONS).index(mutation) % every :: every]:
        damaged = MUTATIONS[mutation]((workspace.root / name).read_bytes())
        lost += attack(workspace, name, damaged, tmp_path, tally)
    lost += repair(workspace, name, damaged, tmp_path, tally)
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("room", ["runs/rankings", "runs/scores"])
def test_swapped_artifacts(room: str, workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    root = workspace.copy(tmp_path / "swapped")
    first, second = sorted((root / room).iterdir())
    first.rename(root / "third")
    second.rename(first)
    (root / "third").rename(second)
    tally.count("tried")
    for reader in (FIGURES, TABLE, READERS["runs"]):
        result = mdcr(root, *reader)
        if result.returncode == 0:
            assert rows(result.stdout) == rows(workspace.printed[" ".join(reader)])
        else:
            assert first.name in result.stderr or second.name in result.stderr
            assert "Traceback" not in result.stderr
    tally.count("refused")
    repaired = mdcr(root, *FIGURES, "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert contents(root).items() >= workspace.contents.items()  # a reader has made scores of other measures
    tally.count("repaired")


def flip(path: Path, chance: random.Random) -> bytes:
    """Return the content of a file with one bit flipped."""
    damaged = bytearray(path.read_bytes())
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def attack(workspace: Workspace, name: str, damaged: bytes, folder: Path, tally: Tally) -> list[str]:
    """Run the commands that read a damaged file. Return a line for each that fails the contract."""
    tally.count("tried")
    root = damage(workspace, name, damaged, folder / f"{random.getrandbits(64):x}")
    codes, lost = set(), []
    for reader in (workspace.figures, TABLE, READERS.get(name.split("/")[0], OTHER_READER)):
        code, problem = outcome(root, reader, name, workspace.printed[" ".join(reader)])
        codes.add(code)
        if problem:
            lost.append(f"{name}, {' '.join(reader)}: {problem}")
    if not lost:
        tally.count("refused" if codes - {0} else "harmless")
    shutil.rmtree(root)
    return lost


def outcome(root: Path, reader: Sequence[str], name: str, printed: str) -> tuple[int, str]:
    """Return the exit code of a command that may meet a damaged file, and what is wrong with how it ended."""
    try:
        result = mdcr(root, *reader)
    except Exception as error:  # noqa: BLE001 - what a user would see as a traceback
        return 70, f"raised {error!r:.200}"
    path = Path(name)
    named = path.name in result.stderr and path.parent.name in result.stderr
    if result.returncode == 0:
        fewer = named and all(row in rows(printed) for row in rows(result.stdout))
        return 0, "" if fewer or rows(result.stdout) == rows(printed) else "printed other figures"
    said = [line for line in result.stderr.splitlines() if line.startswith("mdcr: ")]
    if result.returncode not in (1, 2) or len(said) != 1 or result.stdout:
        return result.returncode, f"ended with {result.returncode}: {result.stderr[-300:]}"
    return result.returncode, "" if named else f"does not name the file: {said[0]:.300}"


def repair(workspace: Workspace, name: str, damaged: bytes, folder: Path, tally: Tally) -> list[str]:
    """Repair a damaged file. Return what is not as before."""
    root = damage(workspace, name, damaged, folder / f"{random.getrandbits(64):x}")
    apart = [file for file in workspace.contents if Path(file).parent != Path(name).parent]
    others = {file: (root / file).stat().st_ino for file in apart}
    lost = []
    try:
        result = mdcr(root, *workspace.figures, "--repair")
        if result.returncode and name.startswith("corpora/"):  # refused: the release has to be read again
            commands = ([*workspace.corpus, "--repair"], [*workspace.figures, "--repair"])
            result = [mdcr(root, *command) for command in commands][-1]
        if result.returncode or result.stdout != workspace.printed[" ".join(workspace.figures)]:
            lost.append(f"{name}: --repair ended with {result.returncode}: {result.stderr[-300:]}")
        elif contents(root) != workspace.contents or leftovers(root):
            lost.append(f"{name}: --repair left other files")
        rewritten = [
            file
            for file, inode in others.items()
            if not file.endswith((MANIFEST, ".name")) and (root / file).stat().st_ino != inode
        ]
        if rewritten:
            lost.append(f"{name}: --repair rewrote {', '.join(rewritten)}")
    except Exception as error:  # noqa: BLE001 - what a user would see as a traceback
        lost.append(f"{name}: --repair raised {error!r:.200}")
    if not lost:
        tally.count("repaired")
    shutil.rmtree(root)
    return lost


def damage(workspace: Workspace, name: str, damaged: bytes, to: Path) -> Path:
    """Return a copy of the workspace with one file replaced."""
    root = workspace.copy(to)
    (root / name).unlink()
    (root / name).write_bytes(damaged)
    return root


def rows(printed: str) -> list[dict[str, Any]]:
    """Return the figures a command printed as JSON; tests against a baseline depend on what else is there."""
    figures: list[dict[str, Any]] = json.loads(printed)["rows"]
    return [{name: row[name] for name in ("system", "pools", "measure", "value", "low", "high")} for row in figures]
