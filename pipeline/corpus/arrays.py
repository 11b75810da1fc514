"""Growing scratch arrays on disk, from which the attributes and the citation graph of a corpus are written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import Keys
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR
from pipeline.core.workdir import Workdir

Array = npt.NDArray[Any]
_SHIFT = np.uint64(32)


class GrowingColumns:
    """Columns of numbers of a schema, one raw file each, written by appending.

    Appends use the files, not memory maps, so that a full disk raises an error instead of a signal.
    """

    def __init__(self, scratch: Path, name: str, schema: pa.Schema) -> None:
        self._schema, self._paths = schema, [scratch / f"{name}.{field.name}.bin" for field in schema]
        self._handles = [path.open("wb", buffering=2**20) for path in self._paths]

    def append(self, *columns: Array) -> None:
        """Add rows at the end, given as one array a column."""
        for handle, values, field in zip(self._handles, columns, self._schema, strict=True):
            handle.write(np.ascontiguousarray(values, field.type.to_pandas_dtype()).data)

    def arrays(self) -> list[Array]:
        """Return all rows as read-only memory maps, and write no more."""
        for handle in self._handles:
            handle.close()
        types = [field.type.to_pandas_dtype() for field in self._schema]
        pairs = zip(self._paths, types, strict=True)
        return [np.memmap(path, kind, mode="r") if path.stat().st_size else np.empty(0, kind) for path, kind in pairs]

    def publish(self, out: Workdir, name: str) -> None:
        """Write the rows as one batch of an Arrow file, and remove the scratch files."""
        out.arrow(name, pa.table(self.arrays(), schema=self._schema), self._schema)
        for path in self._paths:
            path.unlink()


def write_attributes(out: Workdir, blocks: Iterable[Iterable[Array]]) -> dict[str, Array]:
    """Write the attributes of a corpus from blocks of columns, in row order; return them as memory maps."""
    columns = GrowingColumns(out.scratch(), "attributes", ATTRIBUTES)
    for block in blocks:
        columns.append(*block)
    columns.publish(out, "attributes.arrow")
    written = files.read_arrow(out.path / "attributes.arrow")
    return {name: written.column(name).to_numpy() for name in ATTRIBUTES.names}


def write_graph(out: Workdir, name: str, papers: int, pairs: Iterable[Keys]) -> int:
    """Write one direction of a citation graph as CSR and return its number of edges.

    Args:
        out: receives ``NAME-indptr.arrow`` and ``NAME-indices.arrow``.
        name: ``outgoing`` or ``incoming``.
        papers: number of papers.
        pairs: blocks of rising pairs of rows (:func:`pipeline.core.csr.pack`): a paper and its neighbour. Repeated
            pairs count once.
    """
    offsets = GrowingColumns(out.scratch(), f"{name}-indptr", INDPTR)
    neighbours = GrowingColumns(out.scratch(), f"{name}-indices", INDICES)
    known, edges, last = 0, 0, np.array([2**64 - 1], np.uint64)
    for block in pairs:
        block = block[block != np.concatenate([last, block[:-1]])]
        if len(block):
            owner, end = block >> _SHIFT, int(block[-1] >> _SHIFT) + 1
            offsets.append(edges + np.searchsorted(owner, np.arange(known, end, dtype=np.uint64)))
            neighbours.append(block.astype(np.uint32))
            known, edges, last = end, edges + len(block), block[-1:]
    offsets.append(np.full(papers + 1 - known, edges))
    offsets.publish(out, f"{name}-indptr.arrow")
    neighbours.publish(out, f"{name}-indices.arrow")
    return edges
