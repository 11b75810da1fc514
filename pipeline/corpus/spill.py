"""Arrays that grow on disk: appended in blocks, read back by memory map, written as one-column Arrow files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.workdir import Workdir


class Spill:
    """A raw array file of one dtype.

    Appends go through the file, not through a memory map, so that a full disk is an error and no dead process.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._handle = path.open("wb", buffering=2**20)

    def append(self, values: npt.NDArray[np.generic]) -> None:
        """Add values at the end."""
        self._handle.write(np.ascontiguousarray(values, self.dtype).data)

    def array(self) -> npt.NDArray[np.generic]:
        """Return everything appended so far, read-only, by memory map."""
        self._handle.flush()
        if self.path.stat().st_size == 0:
            return np.empty(0, self.dtype)
        return np.memmap(self.path, self.dtype, mode="r")

    def close(self, *, remove: bool = True) -> None:
        """Close the file and, by default, remove it."""
        self._handle.close()
        if remove:
            self.path.unlink(missing_ok=True)


def write_columns(out: Workdir, name: str, schema: pa.Schema, columns: list[npt.NDArray[np.generic]]) -> None:
    """Write arrays as the one record batch of an Arrow file, without a second copy in memory."""
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)
    out.arrow(name, [batch], schema)
