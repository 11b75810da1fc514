"""A segment of a vector store: the vectors a pool needed and the store did not have yet.

It is an artifact of the files ``rows.arrow`` (its papers) and ``vectors-00012.arrow`` (the vectors of those among them
that lie in corpus shard 12).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import StageError
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.spec import Storage

Stored = npt.NDArray[Any]

ROWS = pa.schema([pa.field("row", pa.uint32(), nullable=False), pa.field("shard", pa.uint16(), nullable=False)])
"""Papers of a segment, ``rows.arrow``: rising rows, with the corpus shard each lies in."""


class Shard(NamedTuple):
    """A shard of a segment, by memory map.

    Attributes:
        rows: uint32 ``[m]``, rising, repeated where a paper has several vectors.
        vectors: as stored, ``[m, dimension]``: float32, float16, or uint16 for the bits of bfloat16.
    """

    rows: Rows
    vectors: Stored


class Segment:
    """One published segment."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        table = artifact.arrow("rows.arrow")
        self.rows: Rows = table.column("row").chunk(0).to_numpy()
        self.shards: npt.NDArray[np.uint16] = table.column("shard").chunk(0).to_numpy()

    def open(self, number: int) -> Shard:
        """Open a shard, verified."""
        table = self.artifact.arrow(shard_name(number))
        column = table.column("vector").chunk(0)
        flat = column.flatten().to_numpy(zero_copy_only=True)
        return Shard(table.column("row").chunk(0).to_numpy(), flat.reshape(-1, column.type.list_size))


def shard_name(number: int) -> str:
    """Return the file name of the vectors of corpus shard ``number``."""
    return f"vectors-{number:05d}.arrow"


def shard_number(name: str) -> int:
    """Return the corpus shard whose vectors a file has."""
    return int(name.removeprefix("vectors-").removesuffix(".arrow"))


def write_rows(out: Workdir, rows: Rows, shards: npt.NDArray[np.integer]) -> None:
    """Write the list of a segment's papers.

    Args:
        out: the segment under construction.
        rows: uint32 ``[papers]``, rising.
        shards: corpus shard of each, ``[papers]``.
    """
    out.arrow("rows.arrow", pa.table([pa.array(rows, pa.uint32()), pa.array(shards, pa.uint16())], schema=ROWS), ROWS)


def read_rows(out: Workdir) -> tuple[Rows, npt.NDArray[np.uint16]]:
    """Return rows and shards of a segment under construction, whose list of papers is finished."""
    table = files.read_arrow(out.path / "rows.arrow")
    return table.column("row").chunk(0).to_numpy(), table.column("shard").chunk(0).to_numpy()


def write_shard(out: Workdir, number: int, rows: Rows, vectors: Matrix, storage: Storage, **counts: Any) -> None:
    """Write the vectors of one corpus shard as one batch, to be memory-mapped.

    Args:
        out: the segment under construction.
        number: which shard.
        rows: uint32 ``[m]``, rising, repeated for several vectors a paper.
        vectors: finite float32 ``[m, dimension]``.
        storage: data type on disk.
        counts: what its making counted.

    Raises:
        StageError: a component is too large for ``storage``.
    """
    stored = to_storage(rows, vectors, storage)
    schema = vectors_schema(stored.shape[1], storage)
    column = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), type=schema.field("vector").type)
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.uint32()), column], schema=schema)
    out.arrow(shard_name(number), [batch], schema, **counts)


def to_storage(rows: Rows, vectors: Matrix, storage: Storage) -> Stored:
    """Return vectors as they are stored, rounded to the nearest value; bfloat16 as its bits, uint16.

    Raises:
        StageError: a component is too large for it.
    """
    with np.errstate(over="ignore"):
        stored: Stored = _bits(vectors) if storage == "bfloat16" else vectors.astype(storage, copy=False)
    finite = np.isfinite(widen(stored)).all(axis=1)
    if not finite.all():
        raise StageError(
            f"the vector of row {rows[~finite][0]} has a component too large for {storage}", "Store it as float32"
        )
    return stored


def widen(stored: Stored) -> npt.NDArray[np.floating[Any]]:
    """Return stored vectors as numbers: float32 or float16 as they are, the bits of bfloat16 as float32."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored


def _bits(vectors: Matrix) -> npt.NDArray[np.uint16]:
    """Return the upper half of each float32, rounded half to even."""
    bits = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
