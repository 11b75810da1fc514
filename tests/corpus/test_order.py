"""Rows and shards of any runs are those of one sort in memory; the arrays they are kept in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import files
from pipeline.core.errors import CorruptError
from pipeline.corpus import merge
from pipeline.corpus.arrays import GrowingArray
from pipeline.corpus.merge import REPEATED, order_papers


def write_run(path: Path, ids: list[str]) -> Path:
    schema = pa.schema([("paper_id", pa.large_string())])
    files.write_arrow(path, [pa.record_batch([pa.array(ids, pa.large_string())], schema=schema)], schema)
    return path


def expected_rows(runs: list[list[str]]) -> tuple[list[list[int]], int]:
    row_of = {i: row for row, i in enumerate(sorted({i for run in runs for i in run}, key=str.encode))}
    rows, seen = [], set[str]()
    for run in runs:
        rows.append([])
        for paper in run:
            rows[-1].append(row_of[paper] | (int(REPEATED) if paper in seen else 0))
            seen.add(paper)
    return rows, len(row_of)


def random_runs(kind: str, seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    if kind == "apart":  # as of a release sorted by id
        ids = sorted(str(n) for n in rng.choice(10**6, 300, replace=False))
        return [ids[:90], ids[90:95], ids[95:250], ids[250:]]
    if kind == "repeated":
        return [sorted(str(n) for n in rng.integers(0, 25, size)) for size in (40, 3, 60, 90, 1)]
    if kind == "one id":
        return [["7"] * size for size in (30, 1, 12)]
    return [sorted((str(n) for n in rng.choice(900, size)), key=str.encode) for size in (200, 350, 1, 90)]


@pytest.mark.parametrize("kind", ["mixed", "apart", "repeated", "one id"])
@pytest.mark.parametrize("window", [1, 5, 10_000])
def test_rows_and_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, window: int) -> None:
    monkeypatch.setattr(merge, "_SMALLEST_WINDOW", window)
    ids = random_runs(kind, seed=4)
    runs = [write_run(tmp_path / f"run-{i}", run) for i, run in enumerate(ids)]
    ordered = order_papers(runs, tmp_path, shard_rows=32, memory=1)
    rows, papers = expected_rows(ids)
    assert ordered.papers == papers
    assert [ordered.rows(i, 0, len(run)).tolist() for i, run in enumerate(ids)] == rows
    assert ordered.cuts.shape == (-(-papers // 32) + 1, len(runs))
    for shard, (starts, stops) in enumerate(zip(ordered.cuts[:-1], ordered.cuts[1:], strict=True)):
        inside = [row for run, s, e in zip(rows, starts, stops, strict=True) for row in run[s:e]]
        assert {(row & ~int(REPEATED)) // 32 for row in inside} == {shard}
    assert ordered.cuts[-1].tolist() == [len(run) for run in ids]


def test_a_growing_array_is_read_in_slices_and_refused_when_cut(tmp_path: Path) -> None:
    growing = GrowingArray(tmp_path / "a", np.int64)
    assert growing.array().tolist() == []
    growing.append(np.arange(4, dtype=np.int32))
    growing.append(np.arange(4, 10))
    assert growing.read(2, 5).tolist() == [2, 3, 4]
    assert growing.array().tolist() == list(range(10))
    with pytest.raises(CorruptError, match="too short"):
        growing.read(8, 12)
    growing.close()
    assert not (tmp_path / "a").exists()
