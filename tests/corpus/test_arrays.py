from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import CorruptError
from pipeline.corpus.arrays import GrowingArray


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
