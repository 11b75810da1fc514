"""The citation graph is what a dictionary of ids gives, whatever is held at a time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import files
from pipeline.core.errors import StageError
from pipeline.core.workdir import Workdir
from pipeline.corpus import graph
from pipeline.corpus.extract import CITED
from pipeline.corpus.graph import CitationGraph


def write_shards(folder: Path, keys: list[int], cited: list[list[int]], rows: int) -> list[Path]:
    schema = pa.schema([pa.field("key", pa.uint64()), CITED])
    shards = []
    for start in range(0, max(len(keys), 1), rows):
        part = slice(start, start + rows)
        shards.append(folder / f"shard-{start}")
        batch = pa.record_batch([pa.array(keys[part], pa.uint64()), pa.array(cited[part], CITED.type)], schema=schema)
        files.write_arrow(shards[-1], [batch], schema)
    return shards


def csr(out: Workdir, name: str) -> list[list[int]]:
    paths = [out.path / f"{name}-{kind}.arrow" for kind in ("indptr", "indices")]
    offsets, rows = (files.read_arrow(path).column(0).to_numpy() for path in paths)
    return [rows[a:b].tolist() for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    ("papers", "memory", "workers"), [(700, 2**30, 2), (700, 3_000, 1), (700, 1, 3), (1, 1, 1), (0, 1, 1)]
)
def test_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, papers: int, memory: int, workers: int
) -> None:
    monkeypatch.setattr(graph, "_BLOCK_BITS", 4)
    rng = np.random.default_rng(8)
    keys = np.unique(rng.integers(0, 2**64, 2 * papers, dtype=np.uint64))[:papers].tolist()
    keys[: papers // 2] = range(papers // 2)  # small keys, and 0 among them
    row_of = {key: row for row, key in enumerate(keys)}
    candidates = [*keys, 2**64 - 1, 2**40]
    cited = [sorted({candidates[i] for i in rng.integers(0, len(candidates), rng.integers(0, 40))}) for _ in keys]
    out = Workdir.prepare(tmp_path / "out")
    counts = CitationGraph(write_shards(tmp_path, keys, cited, 64), tmp_path, workers, memory).write(out)
    outgoing = [sorted(row_of[key] for key in listed if key in row_of) for listed in cited]
    assert csr(out, "outgoing") == outgoing
    incoming = [[citing for citing, rows in enumerate(outgoing) if row in rows] for row in range(len(keys))]
    assert csr(out, "incoming") == incoming
    assert counts == {"references": sum(map(len, cited)), "references_in_corpus": sum(map(len, outgoing))}
    assert not list(tmp_path.glob("rows-*"))


@pytest.mark.parametrize("memory", [2**30, 1_000])
@pytest.mark.parametrize("twice", [1, 190])
def test_two_papers_with_one_key_are_refused(tmp_path: Path, memory: int, twice: int) -> None:
    keys = [*range(200)]
    keys[twice] = 0
    shards = write_shards(tmp_path, keys, [[] for _ in keys], 16)
    with pytest.raises(StageError, match=rf"two paper ids share one 64-bit key \(row {twice}\)"):
        CitationGraph(shards, tmp_path, 1, memory).write(Workdir.prepare(tmp_path / "out"))
