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
from tests.cli.run import Result, flags, mdcr, one_line_error
from tests.faults.tally import KILLS, Tally
from tests.faults.workspace import contents, leftovers, release

FLIPS = {"data": 1, "manifests": 2} if KILLS <= 10 else {"data": 5, "manifests": KILLS // 2}
"""Of each file; after the first, it is repaired."""

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


@pytest.mark.parametrize("kind", FLIPS)
def test_flipped_bits(kind: str, workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    chance = random.Random(kind)
    for name in workspace.files("*"):
        for number in range(FLIPS[kind] if name.endswith(MANIFEST) == (kind == "manifests") else 0):
            damaged = flip(workspace.root / name, chance)
            attack(workspace, name, damaged, tmp_path, tally)
            if number == 0:
                repair(workspace, name, damaged, tmp_path, tally)


def test_flipped_bits_in_a_tuning(tuned: Workspace, tmp_path: Path, tally: Tally) -> None:
    """What was chosen on validation queries decides figures: damaged, it is an error, or it is repaired."""
    systems = {row["system"] for row in rows(tuned.printed[" ".join(TUNED)])}
    assert systems == {"bm25", "bm25:k1=0.9,b=0.4", "rrf(bm25,lsa)"}
    (tuning,) = tuned.files(f"runs/tunings/*/{MANIFEST}")
    damaged = flip(tuned.root / tuning, random.Random(3))
    attack(tuned, tuning, damaged, tmp_path, tally)
    repair(tuned, tuning, damaged, tmp_path, tally)
    root = damage(tuned, tuning, b"{", tmp_path)
    assert mdcr(root, *TUNED).returncode == 2
    assert mdcr(root, *FIGURES, "--model", "lsa,bm25:k1=0.9,b=0.4").returncode == 0, "no system uses the tuning"


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
    "a key less": edited(lambda values: values.pop("stage")),
    "another config": edited(lambda values: values["config"].update(seed=99)),
    "other counts": edited(lambda values: values["counts"].update(positives=1, queries=1, kept=1)),
    "an output outside": edited(lambda values: values["outputs"][0].update(path="../../../escaped")),
    "rows that are text": edited(lambda values: values["outputs"][0].update(rows="many")),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_edited_manifests(mutation: str, workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    manifests = workspace.files(f"*/{MANIFEST}")
    every = 1 if KILLS > 10 else len(manifests)
    for name in manifests[list(MUTATIONS).index(mutation) % every :: every]:
        damaged = MUTATIONS[mutation]((workspace.root / name).read_bytes())
        attack(workspace, name, damaged, tmp_path, tally)
    repair(workspace, name, damaged, tmp_path, tally)


@pytest.mark.parametrize("room", ["runs/rankings", "runs/scores"])
def test_swapped_artifacts(room: str, workspace: Workspace, tmp_path: Path, tally: Tally) -> None:
    root = workspace.copy(tmp_path / "swapped")
    first, second = sorted((root / room).iterdir())
    first.rename(root / "third")
    second.rename(first)
    (root / "third").rename(second)
    tally.count("tried")
    for reader in (FIGURES, TABLE, READERS["runs"]):
        ends_well(mdcr(root, *reader), workspace.printed[" ".join(reader)], (first.name, second.name))
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


def attack(workspace: Workspace, name: str, damaged: bytes, folder: Path, tally: Tally) -> None:
    """Run the commands that read a damaged file."""
    tally.count("tried")
    root, refused = damage(workspace, name, damaged, folder), False
    for reader in (workspace.figures, TABLE, READERS.get(name.split("/")[0], OTHER_READER)):
        result = mdcr(root, *reader)
        ends_well(result, workspace.printed[" ".join(reader)], (Path(name).parent.name,))
        assert result.returncode == 0 or Path(name).name in result.stderr, name
        refused = refused or result.returncode != 0
    tally.count("refused" if refused else "harmless")
    shutil.rmtree(root)


def ends_well(result: Result, printed: str, folders: Sequence[str]) -> None:
    """Check that a command printed the figures that it prints undisturbed, or names a folder that it cannot use."""
    named = any(folder in result.stderr for folder in folders)
    if result.returncode:
        assert result.returncode in (1, 2)
        assert named, result.stderr
        one_line_error(result, result.returncode)
    else:
        found, whole = rows(result.stdout), rows(printed)
        assert found == whole or (named and all(row in whole for row in found))


def repair(workspace: Workspace, name: str, damaged: bytes, folder: Path, tally: Tally) -> None:
    """Repair a damaged file: everything is as before, and files of other folders are not written again."""
    root = damage(workspace, name, damaged, folder)
    apart = [file for file in workspace.contents if Path(file).parent != Path(name).parent]
    kept = [file for file in apart if not file.endswith((MANIFEST, ".name"))]
    inodes = {file: (root / file).stat().st_ino for file in kept}
    result = mdcr(root, *workspace.figures, "--repair")
    if result.returncode and name.startswith("corpora/"):  # refused: the release has to be read again
        mdcr(root, *workspace.corpus, "--repair")
        result = mdcr(root, *workspace.figures, "--repair")
    assert (result.returncode, result.stdout) == (0, workspace.printed[" ".join(workspace.figures)]), (name, result)
    assert contents(root) == workspace.contents, name
    assert not leftovers(root)
    assert inodes == {file: (root / file).stat().st_ino for file in kept}, name
    tally.count("repaired")
    shutil.rmtree(root)


def damage(workspace: Workspace, name: str, damaged: bytes, folder: Path) -> Path:
    """Return a copy of the workspace, in the folder, with one file replaced."""
    root = workspace.copy(folder / "damaged")
    (root / name).unlink()
    (root / name).write_bytes(damaged)
    return root


def rows(printed: str) -> list[dict[str, Any]]:
    """Return the figures a command printed as JSON; tests against a baseline depend on what else is there."""
    figures: list[dict[str, Any]] = json.loads(printed)["rows"]
    return [{name: row[name] for name in ("system", "pools", "measure", "value", "low", "high")} for row in figures]
