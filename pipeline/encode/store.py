"""The vectors of one corpus by one encoder: a store of segments, one a pool, each with the papers no other has.

A paper is embedded once, whatever number of pools it is in. A segment is an artifact: ``rows.arrow`` (its papers) and
``vectors-00012.arrow`` (the vectors of those among them that lie in corpus shard 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import digest
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.spec import Storage
from pipeline.encode.views import WHOLE, View

Stored = npt.NDArray[Any]
"""Vectors as on disk: float32, float16, or uint16 for the bits of bfloat16."""

ROWS = pa.schema([pa.field("row", pa.uint32(), nullable=False), pa.field("shard", pa.uint16(), nullable=False)])
"""Papers of a segment, ``rows.arrow``: rising rows, with the corpus shard each lies in."""


class Shard(NamedTuple):
    """A shard of a segment, memory-mapped.

    Attributes:
        rows: uint32 ``[m]``, rising, repeated where a paper has several vectors.
        vectors: as stored, ``[m, dimension]``.
    """

    rows: Rows
    vectors: Stored


class Segment:
    """One published segment.

    Attributes:
        rows: uint32 ``[papers]``, rising.
        shards: uint16 ``[papers]``, the corpus shard of each.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        table = artifact.arrow("rows.arrow")
        self.rows: Rows = table.column("row").chunk(0).to_numpy()
        self.shards: npt.NDArray[np.uint16] = table.column("shard").chunk(0).to_numpy()

    @property
    def content(self) -> list[str]:
        """Its identity and the checksums of its files."""
        manifest = self._artifact.manifest
        return [manifest.id, *sorted(output.sha256 for output in manifest.outputs)]

    def open(self, number: int) -> Shard:
        """Open a shard, verified."""
        table = self._artifact.arrow(shard_name(number))
        column = table.column("vector").chunk(0)
        flat = column.flatten().to_numpy(zero_copy_only=True)
        return Shard(table.column("row").chunk(0).to_numpy(), flat.reshape(-1, column.type.list_size))


class Block(NamedTuple):
    """The vectors of some papers.

    Attributes:
        rows: uint32 ``[m]``, the paper of each vector, rising, repeated where a paper has several.
        vectors: float32 ``[m, dimension]``.
    """

    rows: Rows
    vectors: Matrix


class Grouped(NamedTuple):
    """The vectors of some papers, each paper's together.

    Attributes:
        offsets: int64 ``[papers + 1]``: paper ``i`` has the vectors from ``offsets[i]`` to ``offsets[i + 1]``.
        vectors: float32 ``[offsets[-1], dimension]``.
    """

    offsets: npt.NDArray[np.int64]
    vectors: Matrix


class VectorStore:
    """Reads the vectors of a store; a paper that several segments hold is read from the first of them by name.

    It keeps 8 bytes a stored paper in memory, and maps the files of one corpus shard at a time.

    Args:
        folder: the store.
        segments: the artifacts to read.
        view: how its vectors are compared.

    Raises:
        CorruptError: a segment's list of rows differs from its manifest.
    """

    def __init__(self, folder: Path, segments: Iterable[Artifact], view: View = WHOLE) -> None:
        self._folder, self._view = folder, view
        self._segments = [Segment(artifact) for artifact in segments]

    @classmethod
    def open(cls, folder: Path) -> VectorStore:
        """Open the store in ``folder`` with all segments published there."""
        return cls(folder, published(folder))

    @property
    def content(self) -> str:
        """A digest of the identities of all segments and the checksums of their files."""
        return digest([segment.content for segment in self._segments])

    @property
    def dimension(self) -> int:
        """Components of a vector.

        Raises:
            StageError: the store holds no vectors.
        """
        for segment in self._segments:
            if len(segment.rows):
                return self._view.components(int(segment.open(int(segment.shards[0])).vectors.shape[1]))
        raise StageError(f"{self._folder} holds no vectors", "Embed a pool first: mdcr embed")

    @property
    def rows(self) -> Rows:
        """Every paper of the store: uint32, rising."""
        return np.unique(np.concatenate([np.empty(0, np.uint32), *(segment.rows for segment in self._segments)]))

    def missing(self, rows: npt.NDArray[np.integer]) -> Rows:
        """Return the rows, of those given, whose papers have no vector."""
        return np.asarray(rows, np.uint32)[self._owners(rows) < 0]

    def covers(self, rows: npt.NDArray[np.integer]) -> bool:
        """Return whether every paper of ``rows`` has a vector."""
        return not self.missing(rows).size

    def blocks(self, rows: npt.NDArray[np.integer], size: int) -> Iterator[Block]:
        """Yield the vectors of the papers at ``rows``, ``size`` papers at a time, in rising order of row.

        Args:
            rows: rising rows of the corpus, each once.
            size: papers of a block.

        Raises:
            StageError: papers have no vector.
            CorruptError: a shard differs from its manifest, or from the others in dimension.
        """
        wanted: Rows = np.asarray(rows, np.uint32)
        if np.any(wanted[1:] <= wanted[:-1]):
            raise ValueError("rows must rise")
        owners = self._owners(wanted)
        if np.any(owners < 0):
            raise StageError(
                f"{np.count_nonzero(owners < 0):,} of {len(wanted):,} papers have no vector in {self._folder} "
                f"(the first: row {wanted[owners < 0][0]})",
                "Embed their pool: mdcr embed; if a folder was removed there by hand, remove the whole store first",
            )
        opened: dict[tuple[int, int], Shard] = {}
        for start in range(0, len(wanted), size):
            yield self._block(wanted[start : start + size], owners[start : start + size], opened)

    def grouped(self, rows: npt.NDArray[np.integer]) -> Grouped:
        """Return all vectors of the papers at ``rows`` at once, for queries: one or more of each.

        Args:
            rows: rising rows of the corpus, each once.

        Raises:
            StageError: papers have no vector.
        """
        blocks = list(self.blocks(rows, max(1, len(rows))))
        owners = blocks[0].rows if blocks else np.empty(0, np.uint32)
        offsets = np.searchsorted(owners, np.append(np.asarray(rows, np.int64), np.iinfo(np.uint32).max))
        vectors = blocks[0].vectors if blocks else np.empty((0, self.dimension), np.float32)
        return Grouped(offsets.astype(np.int64), vectors)

    def _owners(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the number of the segment each row is read from, -1 where there is none."""
        owners = np.full(len(rows), -1, np.int32)
        for number, segment in enumerate(self._segments):
            if len(segment.rows):
                place = np.searchsorted(segment.rows, rows)
                present = segment.rows[np.minimum(place, len(segment.rows) - 1)] == rows
                owners[present & (owners < 0)] = number
        return owners

    def _block(self, rows: Rows, owners: npt.NDArray[np.int32], opened: dict[tuple[int, int], Shard]) -> Block:
        """Read one block; the shards it used stay open for the next one."""
        pieces: list[tuple[Shard, npt.NDArray[np.int64]]] = []
        used: set[tuple[int, int]] = set()
        for owner in np.unique(owners).tolist():
            segment = self._segments[owner]
            own_rows = rows[owners == owner]
            shards = segment.shards[np.searchsorted(segment.rows, own_rows)]
            for number in np.unique(shards).tolist():
                key = (owner, number)
                used.add(key)
                if key not in opened:
                    opened[key] = segment.open(number)
                pieces.append((opened[key], _locate(opened[key].rows, own_rows[shards == number])))
        for key in set(opened) - used:
            del opened[key]
        return self._gather(pieces)

    def _gather(self, pieces: list[tuple[Shard, npt.NDArray[np.int64]]]) -> Block:
        owners = np.concatenate([shard.rows[source] for shard, source in pieces])
        order = np.argsort(owners, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        dimension = pieces[0][0].vectors.shape[1]
        vectors = np.empty((len(owners), self._view.components(dimension)), np.float32)
        start = 0
        for shard, source in pieces:
            if shard.vectors.shape[1] != dimension:
                raise CorruptError(
                    f"{self._folder} mixes vectors of {dimension} and {shard.vectors.shape[1]} components",
                    "Remove it and embed again",
                )
            target = place[start : start + len(source)]
            vectors[_span(target)] = self._view(widen(shard.vectors[_span(source)]))
            start += len(source)
        return Block(owners[order], vectors)


def _locate(rows: Rows, wanted: Rows) -> npt.NDArray[np.int64]:
    """Return the positions in ``rows`` (rising, with repeats) of all entries of ``wanted`` (rising)."""
    starts = np.searchsorted(rows, wanted, "left")
    lengths = np.searchsorted(rows, wanted, "right") - starts
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    positions: npt.NDArray[np.int64] = np.repeat(starts, lengths) + within
    return positions


def _span(positions: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Return consecutive positions as a slice, which copies faster."""
    if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


def shard_name(number: int) -> str:
    """Return the file name of the vectors of corpus shard ``number``."""
    return f"vectors-{number:05d}.arrow"


def shard_number(name: str) -> int:
    """Return the corpus shard whose vectors a file has."""
    return int(name.removeprefix("vectors-").removesuffix(".arrow"))


def write_rows(out: Workdir, rows: Rows, shards: npt.NDArray[np.integer]) -> None:
    """Write the papers of a segment.

    Args:
        out: the segment under construction.
        rows: uint32 ``[papers]``, rising.
        shards: corpus shard of each, ``[papers]``.
    """
    out.arrow("rows.arrow", pa.table([pa.array(rows, pa.uint32()), pa.array(shards, pa.uint16())], schema=ROWS), ROWS)


def read_rows(out: Workdir) -> tuple[Rows, npt.NDArray[np.uint16]]:
    """Return rows and shards of a segment under construction."""
    table = files.read_arrow(out.path / "rows.arrow")
    return table.column("row").chunk(0).to_numpy(), table.column("shard").chunk(0).to_numpy()


def write_shard(out: Workdir, number: int, rows: Rows, vectors: Matrix, storage: Storage, **counts: Any) -> None:
    """Write the vectors of one corpus shard as one batch, to be memory-mapped.

    Args:
        out: the segment under construction.
        number: the corpus shard.
        rows: uint32 ``[m]``, rising, repeated for several vectors a paper.
        vectors: finite float32 ``[m, dimension]``.
        storage: data type on disk.
        counts: recorded with the file.

    Raises:
        StageError: a component is too large for ``storage``.
    """
    stored = to_storage(rows, vectors, storage)
    schema = vectors_schema(stored.shape[1], storage)
    column = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), type=schema.field("vector").type)
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.uint32()), column], schema=schema)
    out.arrow(shard_name(number), [batch], schema, **counts)


def to_storage(rows: Rows, vectors: Matrix, storage: Storage) -> Stored:
    """Return vectors in the type on disk, rounded to nearest.

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
