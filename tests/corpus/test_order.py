"""Rows and shards of any runs are those of one sort in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import files
from pipeline.corpus import order
from pipeline.corpus.order import REPEATED, order_papers


def write_run(path: Path, ids: list[str]) -> Path:
    schema = pa.schema([("paper_id", pa.large_string())])
    files.write_arrow(path, [pa.record_batch([pa.array(ids, pa.large_string())], schema=schema)], schema)
    return path


def expected_rows(runs: list[list[str]]) -> tuple[list[list[int]], int]:
    rows: dict[str, int] = {i: row for row, i in enumerate(sorted({i for run in runs for i in run}, key=str.encode))}
    seen: set[str] = set()
    found = []
    for run in runs:
        found.append([])
        for paper in run:
            found[-1].append(rows[paper] | (int(REPEATED) if paper in seen else 0))
            seen.add(paper)
    return found, len(rows)


def random_runs(kind: str, seed: int) -> list[list[str]]:
    chance = np.random.default_rng(seed)
    if kind == "apart":  # as of a release sorted by id
        ids = sorted(str(n) for n in chance.choice(10**6, 300, replace=False))
        return [ids[:90], ids[90:95], ids[95:250], ids[250:]]
    if kind == "repeated":
        return [sorted(str(n) for n in chance.integers(0, 25, size)) for size in (40, 3, 60, 90, 1)]
    if kind == "one id":
        return [["7"] * size for size in (30, 1, 12)]
    return [sorted((str(n) for n in chance.choice(900, size)), key=str.encode) for size in (200, 350, 1, 90)]


@pytest.mark.parametrize("kind", ["mixed", "apart", "repeated", "one id"])
@pytest.mark.parametrize("window", [1, 5, 10_000])
def test_rows_and_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, window: int) -> None:
    monkeypatch.setattr(order, "_SMALLEST_WINDOW", window)
    ids = random_runs(kind, seed=4)
    runs = [write_run(tmp_path / f"run-{i}", run) for i, run in enumerate(ids)]
    found = order_papers(runs, tmp_path, shard_rows=32, memory=1)
    rows, papers = expected_rows(ids)
    assert found.papers == papers
    assert [found.rows(i, 0, len(run)).tolist() for i, run in enumerate(ids)] == rows
    assert found.cuts.shape == (-(-papers // 32) + 1, len(runs))
    for shard, (starts, stops) in enumerate(zip(found.cuts[:-1], found.cuts[1:], strict=True)):
        inside = [row for run, s, e in zip(rows, starts, stops, strict=True) for row in run[s:e]]
        assert {(row & ~int(REPEATED)) // 32 for row in inside} == {shard}
    assert found.cuts[-1].tolist() == [len(run) for run in ids]
