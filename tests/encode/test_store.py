"""Reading a store of several segments against a dictionary of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.encode.model import Storage
from pipeline.encode.store import VectorStore, write_rows, write_shard

Vectors = Mapping[int, Sequence[Sequence[float]]]
"""Vectors of each row."""


def write_segment(
    root: Path, name: str, vectors: Vectors, shard_rows: int = 10, storage: Storage = "float32"
) -> Artifact:
    rows = np.array(sorted(vectors), np.uint32)

    def run(inputs, out, resources):
        write_rows(out, rows, rows // shard_rows)
        for shard in np.unique(rows // shard_rows).tolist():
            here = [row for row in rows.tolist() if row // shard_rows == shard]
            owners = np.repeat(np.array(here, np.uint32), [len(vectors[row]) for row in here])
            matrix = np.array([vector for row in here for vector in vectors[row]], np.float32)
            write_shard(out, shard, owners, matrix, storage)
        return {}

    return Runner(root, Resources()).make(Task("embed", 1, "store", name, {"name": name}, {}, run))


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_random_segments_against_a_dictionary(tmp_path: Path, storage: Storage) -> None:
    chance = np.random.default_rng(7)
    vectors_of: dict[int, list[list[float]]] = {}
    for number in range(5):
        rows = chance.choice(100, 25, replace=False).tolist()
        vectors = {row: chance.integers(-9, 9, (1, 3)).tolist() for row in rows}
        write_segment(tmp_path, f"s{number}", vectors, storage=storage)
        vectors_of = vectors | vectors_of
    store = VectorStore.open(tmp_path / "store")
    assert store.dimension == 3
    assert store.missing(np.arange(100)).tolist() == [row for row in range(100) if row not in vectors_of]
    for count in (1, 10, len(vectors_of)):
        rows = np.sort(chance.choice(sorted(vectors_of), count, replace=False))
        for size in (1, 7, 64):
            blocks = list(store.blocks(rows, size))
            assert [len(block.rows) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
            assert np.concatenate([block.rows for block in blocks]).tolist() == rows.tolist()
            expected = [vector for row in rows.tolist() for vector in vectors_of[row]]
            np.testing.assert_array_equal(np.concatenate([block.vectors for block in blocks]), expected)


def test_several_vectors_a_paper(tmp_path: Path) -> None:
    write_segment(tmp_path, "a", {1: [[1, 1], [1, 2], [1, 3]], 4: [[4, 1]], 12: [[12, 1], [12, 2]]})
    write_segment(tmp_path, "b", {2: [[2, 1], [2, 2]], 3: [[3, 1]], 4: [[0, 0]], 13: [[13, 1]]})
    store = VectorStore.open(tmp_path / "store")
    block = next(store.blocks(np.array([1, 2, 4, 12, 13]), 10))
    assert block.rows.tolist() == [1, 1, 1, 2, 2, 4, 12, 12, 13]
    assert block.vectors.tolist() == [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [4, 1], [12, 1], [12, 2], [13, 1]]
    assert [block.rows.tolist() for block in store.blocks(np.array([1, 3, 12]), 2)] == [[1, 1, 1, 3], [12, 12]]


def test_absent_vectors_and_mixed_dimensions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="3 of 3 papers have no vector"):
        next(VectorStore.open(tmp_path / "store").blocks(np.arange(3), 2))
    write_segment(tmp_path, "a", {1: [[1, 1]]})
    write_segment(tmp_path, "b", {2: [[2, 1, 1]]})
    with pytest.raises(CorruptError, match="vectors of 2 and 3 components"):
        list(VectorStore.open(tmp_path / "store").blocks(np.array([1, 2]), 2))


def test_a_component_too_large_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="row 7 has a component too large for float16"):
        write_segment(tmp_path, "a", {3: [[1, 1]], 7: [[1e5, 1]]}, storage="float16")
