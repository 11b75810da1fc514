"""Arrays on disk: files of named columns that are read in slices, arrays that grow, one-batch Arrow files.

The passes read what they need by explicit reads, not by memory maps: what a process holds is then what it asked for,
however large the file. Only :func:`write_columns` maps whole arrays, while it writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.errors import CorruptError
from pipeline.core.workdir import Workdir

Array = npt.NDArray[Any]


class ColumnWriter:
    """Writes arrays one after the other into a file that :class:`Columns` reads; none needs to be kept for it."""

    def __init__(self, path: Path) -> None:
        self._handle = path.open("wb", buffering=0)
        self._index: dict[str, tuple[str, int, int]] = {}
        self._end = 0

    def __enter__(self) -> ColumnWriter:
        return self

    def add(self, name: str, values: Array | pa.Buffer, dtype: npt.DTypeLike | None = None) -> None:
        """Write one array."""
        array = np.ascontiguousarray(np.frombuffer(values, dtype) if isinstance(values, pa.Buffer) else values)
        self._index[name] = (array.dtype.str, self._end, len(array))
        _write(self._handle, array)
        self._end += array.nbytes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            index = json.dumps(self._index).encode()
            self._handle.write(index + len(index).to_bytes(8, "little"))
        self._handle.close()


class Columns:
    """The arrays of a file, by name; slices of them are read when asked for.

    Raises:
        CorruptError: the file has no index: it was not finished.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as handle:
                size = handle.seek(-8, 2)
                length = int.from_bytes(handle.read(8), "little")
                handle.seek(max(0, size - length))
                self._index: dict[str, tuple[str, int, int]] = json.loads(handle.read(length))
        except (OSError, ValueError) as error:
            raise CorruptError(f"{path} cannot be read ({error})", "Run the command again with --repair") from error

    def length(self, name: str) -> int:
        """Return the number of elements of an array."""
        return self._index[name][2]

    def read(self, name: str, start: int = 0, stop: int | None = None, into: Array | None = None) -> Array:
        """Return ``array[start:stop]``, read into a given array if there is one."""
        kind, offset, length = self._index[name]
        stop = length if stop is None else stop
        array = np.empty(stop - start, np.dtype(kind)) if into is None else into
        read_at(self.path, offset + start * array.itemsize, array)
        return array


class Spill:
    """A raw array file of one dtype that grows.

    Appends go through the file, not through a memory map, so that a full disk is an error and no dead process.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._handle = path.open("wb", buffering=2**20)

    def append(self, values: npt.NDArray[np.generic]) -> None:
        """Add values at the end."""
        self._handle.write(np.ascontiguousarray(values, self.dtype).data)

    def read(self, start: int, stop: int) -> Array:
        """Return ``array[start:stop]`` of what was appended so far."""
        self._handle.flush()
        array = np.empty(stop - start, self.dtype)
        read_at(self.path, start * self.dtype.itemsize, array)
        return array

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


def write_columns(out: Workdir, name: str, schema: pa.Schema, columns: Sequence[npt.NDArray[np.generic]]) -> None:
    """Write arrays as the one record batch of an Arrow file, without a second copy in memory."""
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)
    out.arrow(name, [batch], schema)


def read_at(path: Path, offset: int, array: Array) -> None:
    """Fill an array with what a file holds from ``offset`` on.

    Raises:
        CorruptError: the file ends before.
    """
    if array.nbytes == 0:
        return
    left = array.data.cast("B")
    with path.open("rb", buffering=0) as handle:
        handle.seek(offset)
        while left:  # one call reads at most 2 GiB
            read = handle.readinto(left)
            if not read:
                raise CorruptError(f"{path} is too short", "Run the command again with --repair")
            left = left[read:]


def _write(handle: IO[bytes], array: Array) -> None:
    if array.nbytes == 0:
        return
    left = array.data.cast("B")
    while left:  # one call writes at most 2 GiB
        left = left[handle.write(left) :]
