from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import CorruptError
from pipeline.corpus.spill import Columns, ColumnWriter, Spill


def test_columns_come_back_whole_and_in_slices(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(1000, dtype=np.uint64),
        "b": np.zeros(0, np.int16),
        "c": np.arange(7, dtype=np.float32)[::-1],
    }
    with ColumnWriter(tmp_path / "x") as writer:
        for name, array in arrays.items():
            writer.add(name, array)
    columns = Columns(tmp_path / "x")
    for name, array in arrays.items():
        assert columns.length(name) == len(array)
        found = columns.read(name)
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()
    assert columns.read("a", 5, 8).tolist() == [5, 6, 7]
    assert columns.read("a", 8, 8).tolist() == []
    into = np.zeros(4, np.uint64)
    columns.read("a", 996, 1000, into=into[:4])
    assert into.tolist() == [996, 997, 998, 999]


def test_a_file_that_was_not_finished_is_refused(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def write() -> None:
        with ColumnWriter(tmp_path / "x") as writer:
            writer.add("a", np.arange(1000))
            raise KilledError

    with pytest.raises(KilledError):
        write()
    for content in (None, b"", b"\0" * 5, b"\0" * 100):
        if content is not None:
            (tmp_path / "x").write_bytes(content)
        with pytest.raises(CorruptError, match="x cannot be read"):
            Columns(tmp_path / "x")
    with pytest.raises(CorruptError):
        Columns(tmp_path / "nothing")


def test_a_file_that_was_cut_is_refused_when_read(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "s", np.int64)
    spill.append(np.arange(10))
    assert spill.read(2, 4).tolist() == [2, 3]
    with pytest.raises(CorruptError, match="too short"):
        spill.read(8, 12)
    spill.close()
    assert not (tmp_path / "s").exists()
