"""The store of one encoder's vectors of one corpus: segments, each made for a pool, each holding what was missing then.

A paper is embedded once, whatever number of pools it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact, published
from pipeline.core.errors import CorruptError, StageError
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.segment import Segment, Shard, widen


class Block(NamedTuple):
    """Some vectors.

    Attributes:
        rows: uint32 ``[m]``, the paper of each vector: rising, repeated where a paper has several.
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
    """Reads the vectors of a store; what several segments hold is read from the first of them by name.

    It keeps 8 bytes a stored paper in memory, and maps the files of one corpus shard at a time.

    Args:
        folder: where the store is.
        segments: those of its artifacts that are to be read.

    Raises:
        CorruptError: a segment's list of rows differs from its manifest.
    """

    def __init__(self, folder: Path, segments: Iterable[Artifact]) -> None:
        self._folder = folder
        self._segments = [Segment(artifact) for artifact in segments]

    @classmethod
    def open(cls, folder: Path) -> VectorStore:
        """Open the store in ``folder`` with all segments published there."""
        return cls(folder, published(folder))

    @property
    def dimension(self) -> int:
        """Components of a vector.

        Raises:
            StageError: the store holds no vectors.
        """
        for segment in self._segments:
            if len(segment.rows):
                return int(segment.open(int(segment.shards[0])).vectors.shape[1])
        raise StageError(f"{self._folder} holds no vectors", "Embed a pool first: mdcr embed")

    def missing(self, rows: npt.NDArray[np.integer]) -> Rows:
        """Return those of ``rows`` whose paper has no vector here."""
        return np.asarray(rows, np.uint32)[self._owners(rows) < 0]

    def covers(self, rows: npt.NDArray[np.integer]) -> bool:
        """Whether every paper of ``rows`` was embedded."""
        return not self.missing(rows).size

    def blocks(self, rows: npt.NDArray[np.integer], size: int) -> Iterator[Block]:
        """Yield the vectors of the papers at ``rows``, ``size`` papers at a time, in rising order of row.

        Args:
            rows: rising rows of the corpus, each once.
            size: papers of a block; the last one has the rest.

        Raises:
            StageError: papers have no vector.
            CorruptError: a shard differs from its manifest, or from the others in dimension.
        """
        asked: Rows = np.asarray(rows, np.uint32)
        if np.any(asked[1:] <= asked[:-1]):
            raise ValueError("rows have to rise")
        owners = self._owners(asked)
        if np.any(owners < 0):
            raise StageError(
                f"{np.count_nonzero(owners < 0):,} of {len(asked):,} papers have no vector in {self._folder} "
                f"(the first: row {asked[owners < 0][0]})",
                "Embed their pool: mdcr embed; if a folder was removed there by hand, remove the whole store first",
            )
        opened: dict[tuple[int, int], Shard] = {}
        for start in range(0, len(asked), size):
            yield self._block(asked[start : start + size], owners[start : start + size], opened)

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

    @property
    def segments(self) -> list[Segment]:
        """The segments, by name."""
        return list(self._segments)

    def _owners(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the number of the segment each row is read from, -1 where there is none."""
        owners = np.full(len(rows), -1, np.int32)
        for number, segment in enumerate(self._segments):
            if len(segment.rows):
                place = np.searchsorted(segment.rows, rows)
                found = segment.rows[np.minimum(place, len(segment.rows) - 1)] == rows
                owners[found & (owners < 0)] = number
        return owners

    def _block(self, rows: Rows, owners: npt.NDArray[np.int32], opened: dict[tuple[int, int], Shard]) -> Block:
        """Gather one block; of the shards opened, those it used stay open for the next."""
        pieces: list[tuple[Shard, npt.NDArray[np.int64]]] = []
        used: set[tuple[int, int]] = set()
        for owner in np.unique(owners).tolist():
            segment = self._segments[owner]
            mine = rows[owners == owner]
            shards = segment.shards[np.searchsorted(segment.rows, mine)]
            for number in np.unique(shards).tolist():
                key = (owner, number)
                used.add(key)
                if key not in opened:
                    opened[key] = segment.open(number)
                pieces.append((opened[key], _locate(opened[key].rows, mine[shards == number])))
        for key in set(opened) - used:
            del opened[key]
        return self._gather(pieces)

    def _gather(self, pieces: list[tuple[Shard, npt.NDArray[np.int64]]]) -> Block:
        found = np.concatenate([shard.rows[source] for shard, source in pieces])
        order = np.argsort(found, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        dimension = pieces[0][0].vectors.shape[1]
        vectors = np.empty((len(found), dimension), np.float32)
        start = 0
        for shard, source in pieces:
            if shard.vectors.shape[1] != dimension:
                raise CorruptError(
                    f"{self._folder} mixes vectors of {dimension} and {shard.vectors.shape[1]} components",
                    "Remove it and embed again",
                )
            target = place[start : start + len(source)]
            vectors[_span(target)] = widen(shard.vectors[_span(source)])
            start += len(source)
        return Block(found[order], vectors)


def _locate(held: Rows, wanted: Rows) -> npt.NDArray[np.int64]:
    """Return the positions in ``held`` (rising, with repeats) of all entries of ``wanted`` (rising)."""
    starts = np.searchsorted(held, wanted, "left")
    lengths = np.searchsorted(held, wanted, "right") - starts
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    positions: npt.NDArray[np.int64] = np.repeat(starts, lengths) + within
    return positions


def _span(positions: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Return rising positions as a slice where they are consecutive: it is copied as a whole."""
    if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions
