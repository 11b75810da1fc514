"""Growing scratch arrays on disk, from which the attributes and the citation graph of a corpus are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import Ints
from pipeline.core.order import Rows
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR
from pipeline.core.workdir import Workdir

Array = npt.NDArray[Any]


class GrowingArray:
    """A raw array file of one dtype, written by appending.

    Appends use the file, not a memory map, so that a full disk raises an error instead of a signal.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._handle = path.open("wb", buffering=2**20)

    def append(self, values: Array) -> None:
        """Add values at the end."""
        self._handle.write(np.ascontiguousarray(values, self.dtype).data)

    def array(self) -> Array:
        """Return all appended values as a read-only memory map."""
        self._handle.flush()
        return map_array(self.path, self.dtype)

    def close(self) -> None:
        """Close and remove the file."""
        self._handle.close()
        self.path.unlink(missing_ok=True)


def map_array(path: Path, dtype: npt.DTypeLike) -> Array:
    """Return a raw array file as a read-only memory map."""
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def write_attributes(out: Workdir, blocks: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Write the attributes of a corpus from blocks of columns, in row order; return them as memory maps."""
    types = {field.name: field.type.to_pandas_dtype() for field in ATTRIBUTES}
    arrays = {name: GrowingArray(out.scratch() / f"{name}.bin", dtype) for name, dtype in types.items()}
    for block in blocks:
        for name, array in arrays.items():
            array.append(np.asarray(block[name]))
    columns = [array.array() for array in arrays.values()]
    out.arrow("attributes.arrow", pa.table(columns, schema=ATTRIBUTES), ATTRIBUTES)
    for array in arrays.values():
        array.close()
    written = files.read_arrow(out.path / "attributes.arrow")
    return {name: written.column(name).to_numpy() for name in arrays}


class GrowingLists:
    """One direction of a citation graph on disk, written by appending the neighbours of papers in row order."""

    def __init__(self, scratch: Path, name: str) -> None:
        self._name, self.edges = name, 0
        self._indptr = GrowingArray(scratch / f"{name}-indptr.bin", np.int64)
        self._indices = GrowingArray(scratch / f"{name}-indices.bin", np.uint32)
        self._indptr.append(np.zeros(1, np.int64))

    def append(self, counts: Ints, neighbours: Rows) -> None:
        """Add papers: their numbers of neighbours, and the concatenated rows of those."""
        self._indptr.append(self.edges + np.cumsum(counts))
        self._indices.append(neighbours)
        self.edges += len(neighbours)

    def counts(self) -> Ints:
        """Return the number of neighbours of each paper, int64 ``[papers]``."""
        return np.diff(self._indptr.array())

    def write(self, out: Workdir) -> None:
        """Write the graph as CSR and remove the scratch files."""
        out.arrow(f"{self._name}-indptr.arrow", pa.table([self._indptr.array()], schema=INDPTR), INDPTR)
        out.arrow(f"{self._name}-indices.arrow", pa.table([self._indices.array()], schema=INDICES), INDICES)
        self._indptr.close()
        self._indices.close()
