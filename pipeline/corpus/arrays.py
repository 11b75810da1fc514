"""Scratch arrays on disk that grow, and what is written from them: attributes and citation graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import Ints
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR
from pipeline.core.workdir import Workdir

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.uint32]


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

    def array(self) -> Array:
        """Return everything appended so far, read-only, by memory map."""
        self._handle.flush()
        return map_array(self.path, self.dtype)

    def close(self) -> None:
        """Close and remove the file."""
        self._handle.close()
        self.path.unlink(missing_ok=True)


def map_array(path: Path, dtype: npt.DTypeLike) -> Array:
    """Return a raw array file, read-only, by memory map."""
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def write_attributes(out: Workdir, parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Write the attributes of a corpus from the columns of one part after the other; return them by memory map."""
    types = {field.name: field.type.to_pandas_dtype() for field in ATTRIBUTES}
    arrays = {name: GrowingArray(out.scratch() / f"{name}.bin", dtype) for name, dtype in types.items()}
    for columns in parts:
        for name, array in arrays.items():
            array.append(np.asarray(columns[name]))
    out.arrow("attributes.arrow", pa.table([a.array() for a in arrays.values()], schema=ATTRIBUTES), ATTRIBUTES)
    for array in arrays.values():
        array.close()
    written = files.read_arrow(out.path / "attributes.arrow")
    return {name: written.column(name).to_numpy() for name in arrays}


class GrowingLists:
    """One direction of a citation graph, on disk, that grows by the neighbours of one paper after the other."""

    def __init__(self, scratch: Path, name: str) -> None:
        self._name, self.edges = name, 0
        self._ends = GrowingArray(scratch / f"{name}-indptr.bin", np.int64)
        self._rows = GrowingArray(scratch / f"{name}-indices.bin", np.uint32)
        self._ends.append(np.zeros(1, np.int64))

    def append(self, counts: Ints, rows: Rows) -> None:
        """Add papers: the number of neighbours of each, and their rows."""
        self._ends.append(self.edges + np.cumsum(counts))
        self._rows.append(rows)
        self.edges += len(rows)

    def counts(self) -> Ints:
        """Return the number of neighbours of each paper."""
        return np.diff(self._ends.array())

    def write(self, out: Workdir) -> None:
        """Write the graph as CSR and remove the scratch files."""
        out.arrow(f"{self._name}-indptr.arrow", pa.table([self._ends.array()], schema=INDPTR), INDPTR)
        out.arrow(f"{self._name}-indices.arrow", pa.table([self._rows.array()], schema=INDICES), INDICES)
        self._ends.close()
        self._rows.close()
