"""The vectors of one corpus by one encoder, in segments (:mod:`pipeline.core.segments`).

``rows.arrow`` has the papers and their corpus shards, ``vectors-00012.arrow`` the vectors of those in shard 12.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.csr import Groups, Ints, ranges
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.schema import schema_of
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.segments import SegmentStore
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.model import Storage

Stored = npt.NDArray[np.floating[Any]]
"""Vectors as on disk: float32 or float16."""

_UNIT = 1e-2
"""Tolerance of the length of a vector that was normalised before it was stored, also in half precision."""

ROWS = schema_of(row=pa.uint32(), shard=pa.uint16())
"""``rows.arrow``: the rows of a segment's papers, rising, and their corpus shards."""


class StoredBlock(NamedTuple):
    """Vectors, float32 ``[m, dimension]``, and their rows, rising, repeated for several vectors per paper."""

    rows: Rows
    vectors: Matrix


class VectorStore(SegmentStore):
    """Reads the vectors of a store.

    Memory: that of the segments, and the mapped files of one corpus shard.

    Args:
        folder: the store.
        segments: its artifacts.
        dimension: number of first components that are read; 0: all. Vectors of length 1 are normalised again.
    """

    absent = "vector"
    remedy = "Embed their pool: mdcr embed"

    def __init__(self, folder: Path, segments: Iterable[Artifact], dimension: int = 0) -> None:
        super().__init__(folder, segments)
        self._dimension = dimension

    @property
    def dimension(self) -> int:
        """Components of a vector; raises InputError if more are asked for, StageError without vectors."""
        for segment in self._segments:
            if len(segment.rows):
                return self._components(_opened(segment.artifact, int(segment.numbers[0]))[1])
        raise StageError(f"{self._folder} holds no vectors", "Embed a pool first: mdcr embed")

    def blocks(self, rows: npt.NDArray[np.integer], size: int) -> Iterator[StoredBlock]:
        """Yield the vectors of ``rows``, which must rise without repeats, ``size`` papers at a time.

        Raises:
            StageError: papers have no vector.
            CorruptError: a shard differs from its manifest, or from the others in dimension.
        """
        papers: Rows = np.asarray(rows, np.uint32)
        if np.any(papers[1:] <= papers[:-1]):
            raise ValueError("rows must rise")
        self.check(papers)
        open_shards: dict[tuple[int, int], tuple[Rows, Stored]] = {}
        for start in range(0, len(papers), size):
            yield self._block(papers[start : start + size], open_shards)

    def grouped(self, rows: npt.NDArray[np.integer]) -> Groups:
        """Return all vectors of ``rows``, which must rise without repeats; raises as :meth:`blocks`."""
        blocks = list(self.blocks(rows, max(1, len(rows))))
        owners = blocks[0].rows if blocks else np.empty(0, np.uint32)
        offsets = np.searchsorted(owners, np.append(np.asarray(rows, np.int64), np.iinfo(np.uint32).max))
        vectors = blocks[0].vectors if blocks else np.empty((0, self.dimension), np.float32)
        return Groups(offsets.astype(np.int64), vectors)

    def _components(self, stored: Stored) -> int:
        """Return the number of components that are read of stored vectors."""
        if self._dimension > stored.shape[1]:
            raise InputError(
                f"dimension must be at most {stored.shape[1]}, got {self._dimension}", "Leave it out for all"
            )
        return self._dimension or stored.shape[1]

    def _files(self, artifact: Artifact, table: pa.Table) -> tuple[Ints, Ints]:  # noqa: ARG002
        return np.unique(table.column("shard").chunk(0).to_numpy(), return_counts=True)

    def _block(self, rows: Rows, open_shards: dict[tuple[int, int], tuple[Rows, Stored]]) -> StoredBlock:
        """Return one block; its shards stay open for the next block."""
        pieces: dict[tuple[int, int], Ints] = {}
        for place in self.places(rows):
            key = place.segment, place.number
            open_shards[key] = open_shards.get(key) or _opened(self._segments[place.segment].artifact, place.number)
            starts, ends = (np.searchsorted(open_shards[key][0], place.rows, side) for side in ("left", "right"))
            pieces[key] = ranges(starts, ends - starts)
        for key in set(open_shards) - set(pieces):
            del open_shards[key]
        repeated = np.concatenate([open_shards[key][0][positions] for key, positions in pieces.items()])
        order = np.argsort(repeated, kind="stable")
        destination = np.empty_like(order)
        destination[order] = np.arange(len(order))
        dimension = open_shards[next(iter(pieces))][1].shape[1]
        vectors = np.empty((len(repeated), self._components(open_shards[next(iter(pieces))][1])), np.float32)
        start = 0
        for key, positions in pieces.items():
            stored = open_shards[key][1]
            if stored.shape[1] != dimension:
                raise CorruptError(
                    f"{self._folder} mixes vectors of {dimension} and {stored.shape[1]} components",
                    "Remove it and embed again",
                )
            vectors[destination[start : start + len(positions)]] = truncated(stored[positions], vectors.shape[1])
            start += len(positions)
        return StoredBlock(repeated[order], vectors)


def truncated(vectors: npt.NDArray[np.floating[Any]], dimension: int) -> npt.NDArray[np.floating[Any]]:
    """Return the first components of vectors ``[n, d]``, those of length 1 normalised again (Kusupati et al. 2022)."""
    if dimension == vectors.shape[1]:
        return vectors
    unit = np.abs(np.linalg.norm(vectors.astype(np.float32), axis=1) - 1) < _UNIT
    vectors = np.ascontiguousarray(vectors[:, :dimension], np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    vectors[unit] /= np.maximum(lengths[unit], np.finfo(np.float32).tiny)[:, None]
    return vectors


def _opened(segment: Artifact, shard: int) -> tuple[Rows, Stored]:
    """Verify and open a shard: (rising rows, repeated for several vectors per paper; vectors as stored)."""
    return read_vectors(segment.arrow(shard_name(shard)))


def read_vectors(table: pa.Table) -> tuple[Rows, Stored]:
    """Return rows and vectors ``[m, dimension]`` of a table of one batch, without copying."""
    column = table.column("vector").chunk(0)
    flat = column.flatten().to_numpy(zero_copy_only=True)
    return table.column("row").chunk(0).to_numpy(), flat.reshape(-1, column.type.list_size)


def vectors_batch(
    rows: Rows, vectors: Stored, storage: Storage = "float32", counts: Mapping[str, Any] | None = None
) -> pa.RecordBatch:
    """Return rows and vectors in the type on disk as one batch, with counts in its metadata."""
    schema = vectors_schema(vectors.shape[1], storage)
    if counts is not None:
        schema = schema.with_metadata({"counts": json.dumps(counts)})
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.uint32()), column], schema=schema)


def shard_name(shard: int) -> str:
    """Return the file name of the vectors of corpus shard ``shard``."""
    return f"vectors-{shard:05d}.arrow"


def shard_number(name: str) -> int:
    """Return the corpus shard in a file name."""
    return int(name.removeprefix("vectors-").removesuffix(".arrow"))


def write_rows(out: Workdir, rows: Rows, shards: npt.NDArray[np.integer]) -> None:
    """Write the papers of a segment, rising rows ``[papers]``, and the corpus shard of each."""
    out.arrow("rows.arrow", pa.table([pa.array(rows, pa.uint32()), pa.array(shards, pa.uint16())], schema=ROWS), ROWS)


def read_rows(out: Workdir) -> tuple[Rows, npt.NDArray[np.uint16]]:
    """Return rows and shards of a segment under construction."""
    table = files.read_arrow(out.path / "rows.arrow")
    return table.column("row").chunk(0).to_numpy(), table.column("shard").chunk(0).to_numpy()


def write_shard(out: Workdir, shard: int, rows: Rows, vectors: Matrix, storage: Storage, **counts: Any) -> None:
    """Write the vectors of one corpus shard, rounded to nearest, as one batch, to be memory-mapped.

    Args:
        out: the segment under construction.
        shard: the corpus shard.
        rows: uint32 ``[m]``, rising, repeated for several vectors per paper.
        vectors: finite float32 ``[m, dimension]``.
        storage: data type on disk.
        counts: recorded with the file.

    Raises:
        StageError: a component is too large for ``storage``.
    """
    with np.errstate(over="ignore"):
        stored: Stored = vectors.astype(storage, copy=False)
    finite = np.isfinite(stored).all(axis=1)
    if not finite.all():
        raise StageError(
            f"the vector of row {rows[~finite][0]} has a component too large for {storage}", "Store it as float32"
        )
    batch = vectors_batch(rows, stored, storage)
    out.arrow(shard_name(shard), [batch], batch.schema, **counts)
