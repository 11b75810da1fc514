"""The words of ``mdcr submit``, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.cli.batch import without
from pipeline.cluster import slurm
from pipeline.cluster.batch import Batch
from tests.cluster.world import EMBED, SELECTION, SHARDS, World
from tests.encode.stub import stub

__all__ = ["stub"]


def test_words_without_some_options() -> None:
    words = [
        "--stage",
        "eval",
        "--nodes=4",
        "--model",
        "bm25:k1=1.2,b=0.75",
        "--json",
        "--nested",
        "--time",
        "01:00:00",
    ]
    assert without(words, ("--stage", "--nodes", "--time"), ("--json",)) == [
        "--model",
        "bm25:k1=1.2,b=0.75",
        "--nested",
    ]


def test_the_same_command_is_the_same_batch(tmp_path: Path) -> None:
    one, same, other = (Batch.of(tmp_path, "embed", ["mdcr", *words]) for words in ("ab", "ab", "ba"))
    assert one.folder == same.folder != other.folder
    one.write()
    (found,) = Batch.all(tmp_path)
    assert (found.command, found.rounds, found.finished) == (["mdcr", "a", "b"], [], False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "--stage", "corpus", *SELECTION], "--stage 'corpus' cannot be submitted"),
        (["submit", "--stage", "embed", "--repair", *SELECTION], "--repair cannot be submitted"),
        (["submit", "--stage", "embed", "--recipe", "no.toml", *SELECTION], "there is no recipe no.toml"),
        (["embed", *EMBED, "--slice", "4/4"], "--slice '4/4' is no slice"),
        (["corpus", "--source", "synthetic", "--engine", "slurm"], "--engine 'slurm' cannot build a corpus"),
    ],
)
def test_refusals(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stub: None,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(slurm, "available", lambda: True)
    assert main([*words, "--root", str(World(tmp_path).root)]) == 2
    assert message in capsys.readouterr().err


def test_a_machine_without_slurm_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["submit", "--stage", "embed", *SELECTION, "--root", str(tmp_path)]) == 2
    assert "sbatch is not on this machine. Run this on a login node" in capsys.readouterr().err


def test_slices_by_hand(tmp_path: Path) -> None:
    whole, world = World(tmp_path / "whole"), World(tmp_path / "slices")
    whole.run("embed", *EMBED)
    assert "Run it with --slice plan first" in world.run("embed", *EMBED, "--slice", "0/2", code=2)
    world.run("embed", *EMBED, "--slice", "plan")
    assert world.units() == 0
    world.run("embed", *EMBED, "--slice", "1/2")
    assert world.units() == SHARDS // 2
    world.run("embed", *EMBED, "--slice", "0/2")
    assert world.units() == SHARDS
    world.run("embed", *EMBED)
    assert world.artifacts() == whole.artifacts()
    assert not world.leftovers()


def test_options_of_submit_are_written_in_full() -> None:
    with pytest.raises(SystemExit):
        main(["submit", "--stage", "embed", "--node", "4", *SELECTION])


def test_a_plan_before_anything_is_submitted(tmp_path: Path) -> None:
    world = World(tmp_path)
    shown = world.run("submit", "--stage", "eval", "--dry-run", *SELECTION)
    assert "make embed" in shown
    assert "in slices" in shown
    assert "make score" in shown
    assert not (world.root / "runs").exists()
