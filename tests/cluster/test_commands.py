"""The words of ``mdcr submit``, and what it refuses; slices made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.arguments import parser
from pipeline.cli.batch import _commands, without
from pipeline.cluster import slurm
from pipeline.cluster.batch import Batch
from tests.cli.run import flags, mdcr, one_line_error
from tests.cluster.world import EMBED, SELECTION, SHARDS, World, whole


def test_words_without_some_options() -> None:
    words = flags("--stage eval --nodes=4 --model bm25:k1=1.2,b=0.75 --json --nested --time 01:00:00")
    left = without(words, ("--stage", "--nodes", "--time"), ("--json",))
    assert left == ["--model", "bm25:k1=1.2,b=0.75", "--nested"]


def test_the_same_command_is_the_same_batch(tmp_path: Path) -> None:
    one, same, other = (Batch.of(tmp_path, "embed", ["mdcr", *words]) for words in ("ab", "ab", "ba"))
    assert one.folder == same.folder != other.folder
    one.write()
    (found,) = Batch.all(tmp_path)
    assert (found.command, found.rounds, found.finished) == (["mdcr", "a", "b"], [], False)


def test_each_job_takes_the_options_it_is_given() -> None:
    top, _ = parser()
    words = flags("submit --stage eval --nodes 4 --depth 9 --bm25-engine lucene --measures map --measure-engine ranx")
    words += flags("--model bm25,lsa --strict --memory 2G --field all")
    options = top.parse_args(words)
    options.words = words
    commands = _commands(options)
    for name, missing in (("embed", {"depth", "bm25_engine"}), ("index", {"depth"}), ("search", set[str]())):
        job = vars(top.parse_args(commands.stage(name, "--slice", "0/4")[3:]))
        assert not {"nodes", "stage", "measures", "measure_engine", *missing} & job.keys()
        assert all(job[each] == getattr(options, each) for each in {"model", "strict", "memory", "field"})
    assert vars(top.parse_args(commands.collect()[3:])).items() >= {"depth": 9, "nodes": 4, "measures": "map"}.items()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "--stage", "corpus", *SELECTION], "--stage 'corpus' cannot be submitted"),
        (["submit", "--stage", "embed", "--repair", *SELECTION], "--repair cannot be submitted"),
        (["submit", "--stage", "embed", "--recipe", "no.toml", *SELECTION], "there is no recipe no.toml"),
        (["embed", *EMBED, "--slice", "4/4"], "--slice '4/4' is not a slice"),
        (["corpus", "--source", "synthetic", "--engine", "slurm"], "--engine 'slurm' cannot build a corpus"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.setattr(slurm, "available", lambda: True)
    assert message in World(tmp_path).run(*words, code=2).stderr


def test_options_are_written_in_full_on_a_machine_with_slurm(tmp_path: Path) -> None:
    assert "--node" in mdcr(tmp_path, "submit", "--stage", "embed", "--node", "4", *SELECTION).stderr
    result = mdcr(tmp_path, "submit", "--stage", "embed", *SELECTION, env={"PATH": str(tmp_path)})
    assert "sbatch is not on this machine. Run this on a login node" in one_line_error(result)


def test_a_plan_and_slices_by_hand(tmp_path: Path) -> None:
    world = World(tmp_path / "slices")
    plan = world.run("submit", "--stage", "eval", "--dry-run", *SELECTION).stdout
    assert all(words in plan for words in ("make embed", "in slices", "make score"))
    assert not (world.root / "runs").exists()
    assert "Run it with --slice plan first" in world.run("embed", *EMBED, "--slice", "0/2", code=2).stderr
    for part, units in (("plan", 0), ("1/2", SHARDS // 2), ("0/2", SHARDS)):
        world.run("embed", *EMBED, "--slice", part)
        assert world.units() == units
    world.run("eval", *SELECTION)
    assert world.tables() == whole(tmp_path / "whole")
    assert not world.leftovers()
