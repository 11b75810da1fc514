"""The contract of retrieval engines, and the ranking that they return.

Engines rank candidates for queries in the one total order (:mod:`pipeline.core.order`) of **canonical scores**: the
score of a pair depends on its two stored vectors alone, not on engine, block, tile or thread
(:mod:`pipeline.retrieve.canonical` defines it). So all exact engines return the same bytes; engine, threads and memory
are execution, not identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Keys, pack
from pipeline.core.errors import InputError
from pipeline.core.order import Rows, Scores
from pipeline.core.schema import RANKING

Metric = Literal["l2", "inner_product", "cosine"]
Vectors = npt.NDArray[np.floating]
VectorBlock = tuple[Rows, Vectors]
"""Consecutive candidates: rows uint32 ``[m]``, rising over all blocks, and vectors float16 or float32 ``[m, d]``.
Engines may keep both without copying while they read later blocks, so they must not change."""

Exclusions = tuple[npt.NDArray[np.int64], Rows]
"""CSR of the rows removed from the rankings of queries before ranks are counted: offsets int64 ``[queries + 1]``, rows
rising within a query (:attr:`pipeline.corpus.pool.Pool.exclusions`)."""

Done = Callable[[int], None]

MAX_DEPTH = 65_535
"""Maximum depth: ranks are uint16."""

LARGEST_BLOCK = 131_072
"""Maximum candidates of a block."""

SMALLEST_BLOCK = 2_048


@dataclass(frozen=True)
class Ranking:
    """Entries in final order: by query, then rank from 1 (schema :data:`pipeline.core.schema.RANKING`).

    Arrays have ``[n]`` entries: position of the query, row of the candidate, and score, higher is better; squared L2
    distances are negated.
    """

    query: Rows
    row: Rows
    score: Scores
    rank: npt.NDArray[np.uint16]

    @classmethod
    def from_counts(cls, counts: npt.NDArray[np.int64], row: Rows, score: Scores) -> Ranking:
        """Return a ranking of entries in final order, ``counts[q]`` of them for query ``q``."""
        ends = np.cumsum(counts)
        rank = np.arange(1, len(row) + 1) - np.repeat(ends - counts, counts)
        query = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        return cls(query, row, score, rank.astype(np.uint16))

    def of(self, entries: npt.NDArray[np.bool_]) -> Ranking:
        """Return chosen entries, bool ``[n]``, with their ranks."""
        return Ranking(self.query[entries], self.row[entries], self.score[entries], self.rank[entries])

    def __len__(self) -> int:
        return len(self.row)

    def table(self) -> pa.Table:
        """Return the ranking as an Arrow table."""
        return pa.table([self.query, self.row, self.score, self.rank], schema=RANKING)


def ignored(_count: int) -> None:
    """Report no progress."""


def block_rows(dimension: int, memory: int) -> int:
    """Return the candidates of a block: their vectors, as stored and as float32, take half of ``memory``."""
    return int(np.clip(memory // 2 // (8 * dimension + 16), SMALLEST_BLOCK, LARGEST_BLOCK))


def check_depth(depth: int) -> None:
    """Raise InputError for a depth that a ranking cannot hold."""
    if not 1 <= depth <= MAX_DEPTH:
        raise InputError(f"depth {depth} is out of range", f"Choose 1 to {MAX_DEPTH}")


def pairs(rows: Exclusions) -> Keys:
    """Return a CSR of rows as keys of (query, row), rising."""
    return pack(np.repeat(np.arange(len(rows[0]) - 1), np.diff(rows[0])), rows[1])
