from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.core import files
from pipeline.core.errors import StageError
from pipeline.core.workdir import Workdir
from pipeline.corpus.graph import CitationGraph
from pipeline.sources.base import RAW_PAPERS


@pytest.mark.parametrize("memory", [2**30, 1_000])
@pytest.mark.parametrize("twice", [1, 190])
def test_two_papers_with_one_key_are_refused(tmp_path: Path, memory: int, twice: int) -> None:
    keys = [*range(200)]
    keys[twice] = 0
    schema = pa.schema([pa.field("key", pa.uint64()), RAW_PAPERS.field("outbound")])
    shards = []
    for start in range(0, len(keys), 16):
        part = keys[start : start + 16]
        columns = [pa.array(part, pa.uint64()), pa.array([[] for _ in part], RAW_PAPERS.field("outbound").type)]
        shards.append(tmp_path / f"shard-{start}")
        files.write_arrow(shards[-1], [pa.record_batch(columns, schema=schema)], schema)
    with pytest.raises(StageError, match=rf"two paper ids share one 64-bit key \(row {twice}\)"):
        CitationGraph(shards, tmp_path, 1, memory).write(Workdir.prepare(tmp_path / "out"))
