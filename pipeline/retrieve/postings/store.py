"""The terms of papers, kept for every pool to come: segments, each made for a pool, each holding what was missing then.

A paper is analysed once, whatever number of pools it is in. What is kept of it is the bag of its terms, not postings: a
pool of a hundredth of the corpus reads a hundredth of the store, and turning bags into postings takes less
time than searching them does.

A segment is an artifact of the files ``rows.arrow`` (its papers) and, for every :data:`BLOCK_PAPERS` of them,
``bags-00012.arrow`` and ``vocabulary-00012.arrow`` (the terms that the numbers in the bags mean, block by block).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.order import Rows
from pipeline.core.schema import CANDIDATES
from pipeline.core.workdir import Workdir
from pipeline.retrieve.postings.types import Entries, Offsets

BLOCK_PAPERS = 65_536
"""Papers of a block; the last block of a segment has the rest."""

BAGS = pa.schema(
    [
        pa.field("entries", pa.large_list(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
        pa.field("tokens", pa.uint32(), nullable=False),
    ]
)
"""Bags of a block, in the order of its papers (:mod:`pipeline.retrieve.postings.entries`), and their lengths."""

VOCABULARY = pa.schema([pa.field("term", pa.large_string(), nullable=False)])
"""Terms of a block by number."""


class Bags(NamedTuple):
    """The terms of some texts.

    Attributes:
        offsets: int64 ``[texts + 1]``, where each text's entries start.
        entries: uint32 ``[offsets[-1]]``, see :mod:`pipeline.retrieve.postings.entries`.
        lengths: uint32 ``[texts]``, tokens of each.
        vocabulary: the terms by number, large strings.
    """

    offsets: Offsets
    entries: Entries
    lengths: npt.NDArray[np.uint32]
    vocabulary: pa.Array


class Piece(NamedTuple):
    """Papers whose bags lie in one block.

    Attributes:
        rows: uint32 ``[n]``, rising.
        members: int64 ``[n]``, position of each among the bags.
        bags: those of the whole block, by memory map.
    """

    rows: Rows
    members: npt.NDArray[np.int64]
    bags: Bags


def write_rows(out: Workdir, rows: Rows) -> None:
    """Write the list of a segment's papers, uint32, rising."""
    out.arrow("rows.arrow", pa.table([rows], schema=CANDIDATES), CANDIDATES)


def read_rows(out: Workdir) -> Rows:
    """Return the papers of a segment under construction."""
    rows: Rows = files.read_arrow(out.path / "rows.arrow").column("row").chunk(0).to_numpy()
    return rows


def has_block(out: Workdir, number: int) -> bool:
    """Whether both files of a block are finished."""
    return out.done(_bags_name(number)) and out.done(_vocabulary_name(number))


def block_tokens(out: Workdir, number: int) -> int:
    """Return how many tokens a finished block holds."""
    return int(out.counts(_bags_name(number))["tokens"])


def write_block(out: Workdir, number: int, bags: Bags) -> None:
    """Write one block of a segment."""
    vocabulary = pa.table([bags.vocabulary], schema=VOCABULARY)
    out.arrow(_vocabulary_name(number), vocabulary, VOCABULARY)
    offsets, entries, lengths = map(pa.array, bags[:3])
    lists = pa.LargeListArray.from_arrays(offsets, entries, type=BAGS.field("entries").type)
    out.arrow(_bags_name(number), pa.table([lists, lengths], schema=BAGS), BAGS, tokens=int(bags.lengths.sum()))


def _bags_name(number: int) -> str:
    return f"bags-{number:05d}.arrow"


def _vocabulary_name(number: int) -> str:
    return f"vocabulary-{number:05d}.arrow"


class _Segment:
    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._sound: set[int] = set()
        self.rows: Rows = artifact.arrow("rows.arrow").column("row").chunk(0).to_numpy()

    def bags(self, number: int) -> Bags:
        from pipeline.retrieve.postings.entries import sound

        lists, lengths = (column.chunk(0) for column in self._artifact.arrow(_bags_name(number)).columns)
        if len(lists) != min(BLOCK_PAPERS, len(self.rows) - number * BLOCK_PAPERS):
            raise self._corrupt(number, f"holds the terms of {len(lists):,} other papers")
        vocabulary = self._artifact.arrow(_vocabulary_name(number)).column("term").chunk(0)
        bags = Bags(lists.offsets.to_numpy(), lists.values.to_numpy(), lengths.to_numpy(), vocabulary)
        if number not in self._sound:  # once: kernels rely on it, and a file that a fault wrote has a fitting checksum
            if not sound(bags.offsets, bags.entries, bags.lengths, len(vocabulary)):
                raise self._corrupt(number, "holds numbers that mean no terms")
            self._sound.add(number)
        return bags

    def _corrupt(self, number: int, how: str) -> CorruptError:
        return CorruptError(
            f"{_bags_name(number)} of {self._artifact.path} {how}", "Remove that folder and run the same command again"
        )


class TermStore:
    """Reads the terms of a store; what several segments hold is read from the first of them by name.

    Args:
        folder: where the store is.
        segments: those of its artifacts that are to be read.
    """

    def __init__(self, folder: Path, segments: Iterable[Artifact]) -> None:
        self._folder = folder
        self._segments = [_Segment(artifact) for artifact in segments]

    @classmethod
    def open(cls, folder: Path) -> TermStore:
        """Open the store in ``folder`` with all segments published there."""
        return cls(folder, published(folder))

    def missing(self, rows: npt.NDArray[np.integer]) -> Rows:
        """Return those of ``rows`` whose paper was not analysed."""
        return np.asarray(rows, np.uint32)[self._find(rows)[0] < 0]

    def pieces(self, rows: npt.NDArray[np.integer]) -> Iterator[Piece]:
        """Yield the bags of the papers at ``rows``, block by block.

        Args:
            rows: rising rows of the corpus, each once.

        Raises:
            StageError: papers were not analysed.
            CorruptError: a file differs from its manifest, or holds what no analysis writes.
        """
        asked: Rows = np.asarray(rows, np.uint32)
        owners, places = self._find(asked)
        if np.any(owners < 0):
            raise StageError(
                f"{np.count_nonzero(owners < 0):,} of {len(asked):,} papers have no terms in {self._folder} "
                f"(the first: row {asked[owners < 0][0]})",
                "Index their pool: mdcr index; if a folder was removed there by hand, remove the whole store first",
            )
        for number, segment in enumerate(self._segments):
            mine = slice(None) if np.all(owners == number) else owners == number
            held, positions = asked[mine], places[mine]
            edges = np.searchsorted(positions, range(0, len(segment.rows) + BLOCK_PAPERS, BLOCK_PAPERS)).tolist()
            for block, (first, last) in enumerate(pairwise(edges)):
                if last > first:
                    members = positions[first:last] - block * BLOCK_PAPERS
                    yield Piece(held[first:last], members, segment.bags(block))

    def _find(self, rows: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int32], Offsets]:
        """Return the number of the segment each row is read from, -1 where there is none, and its position there."""
        owners, places = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
        for number, segment in enumerate(self._segments):
            if len(segment.rows):
                place = np.minimum(np.searchsorted(segment.rows, rows), len(segment.rows) - 1)
                new = (segment.rows[place] == rows) & (owners < 0)
                owners[new], places[new] = number, place[new]
        return owners, places
