"""Parts of a release read by several processes: the corpus of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Assignment, run_assignment
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.corpus import corpus_task

HERE = Resources(memory=2**30, workers=1)


def test_parts_of_several_processes_make_the_same_corpus(tmp_path: Path) -> None:
    release = Synthetic(3_000, 5)
    parts = list(release.parts())
    task = corpus_task("tiny", release)
    whole = Runner(tmp_path / "whole", HERE).make(task)
    seen: list[str] = []

    def first_half(assignment: Assignment) -> list[dict[str, object]]:
        seen.extend(assignment.units)
        chosen = sorted(seen)[: len(seen) // 2 + 1]
        run_assignment(assignment.only(chosen))
        return [dict(run_assignment(assignment))]

    made = Runner(tmp_path / "executor", HERE, executor=first_half).make(task)
    assert len(seen) == len(parts)
    assert made.manifest.outputs == whole.manifest.outputs
    assert made.manifest.counts == whole.manifest.counts


@pytest.mark.parametrize("text", [b"", b'{"read": 1', b"\xff"])
def test_a_damaged_record_of_a_part_means_that_it_is_read_again(tmp_path: Path, text: bytes) -> None:
    task = corpus_task("tiny", Synthetic(1_500, 5))
    whole = Runner(tmp_path / "whole", HERE).make(task)

    def damage(assignment: Assignment) -> list[dict[str, object]]:
        made = [dict(run_assignment(assignment))]
        (assignment.out.path / min(assignment.units)).write_bytes(text)
        return made

    made = Runner(tmp_path / "damaged", HERE, executor=damage).make(task)
    assert (made.manifest.outputs, made.manifest.counts) == (whole.manifest.outputs, whole.manifest.counts)
