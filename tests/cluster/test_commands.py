"""The words of ``mdcr submit`` and of its jobs; slices made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.arguments import parser
from pipeline.cluster import batch, slurm
from pipeline.cluster.batch import Batch
from tests.cli.run import flags, mdcr, one_line_error
from tests.cluster.world import EMBED, SELECTION, SHARDS, World, whole


def test_the_same_command_is_the_same_batch(tmp_path: Path) -> None:
    one, same, other = (Batch.for_command(tmp_path, "embed", ["mdcr", *words]) for words in ("ab", "ab", "ba"))
    assert one.folder == same.folder != other.folder
    one.write()
    (read,) = Batch.all(tmp_path)
    assert (read.command, read.rounds, read.finished) == (["mdcr", "a", "b"], [], False)


def test_each_job_takes_the_options_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[tuple[list[str], batch.Commands]] = []
    monkeypatch.setattr(slurm, "available", lambda: True)
    monkeypatch.setattr(batch, "start", lambda made, commands, *_: submitted.append((made.command, commands)))
    words = flags("--depth 9 --bm25-engine lucene --measures map --measure-engine ranx --memory 2G --size all")
    words += flags("--queries 8 --min-abstract-chars 1 --strict --model bm25:k1=1.2,b=0.75,stub")
    World(tmp_path).run("submit", "--stage", "eval", "--nodes=4", "--time", "01:00:00", *words)
    ((command, commands),) = submitted
    assert command == ["mdcr", "submit", "--stage", "eval", *words]
    top, _ = parser()
    for name, missing in (("embed", {"depth", "bm25_engine"}), ("index", {"depth"}), ("search", set[str]())):
        job = vars(top.parse_args(commands.stage(name, "--slice", "0/4")[3:]))
        assert not {"nodes", "stage", "measures", "measure_engine", *missing} & job.keys()
        assert (job["model"], job["strict"], job["memory"]) == (words[-1], True, "2G")
    assert vars(top.parse_args(commands.collect()[3:])).items() >= {"depth": 9, "nodes": 4, "measures": "map"}.items()


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
