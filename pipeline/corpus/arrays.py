"""Scratch arrays on disk that grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import CorruptError

Array = npt.NDArray[Any]


class GrowingArray:
    """A raw array file of one dtype that grows.

    Appends go through the file, not through a memory map, so that a full disk raises an error instead of a signal.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._handle = path.open("wb", buffering=2**20)

    def append(self, values: Array) -> None:
        """Add values at the end."""
        self._handle.write(np.ascontiguousarray(values, self.dtype).data)

    def read(self, start: int, stop: int) -> Array:
        """Return ``array[start:stop]`` of what was appended so far."""
        self._handle.flush()
        return read_array(self.path, self.dtype, start, stop)

    def array(self) -> Array:
        """Return everything appended so far, read-only, by memory map."""
        self._handle.flush()
        if self.path.stat().st_size == 0:
            return np.empty(0, self.dtype)
        return np.memmap(self.path, self.dtype, mode="r")

    def close(self) -> None:
        """Close and remove the file."""
        self._handle.close()
        self.path.unlink(missing_ok=True)


def read_array(path: Path, dtype: npt.DTypeLike, start: int, stop: int) -> Array:
    """Return ``array[start:stop]`` of a raw array file. CorruptError if the file is shorter."""
    array = np.fromfile(path, dtype, stop - start, offset=start * np.dtype(dtype).itemsize)
    if len(array) < stop - start:
        raise CorruptError(f"{path} is too short", "Run the command again with --repair")
    return array
