"""What every retrieval engine promises, and the ranking all of them return.

An engine ranks candidates for queries by the one total order (:mod:`pipeline.core.order`) on **canonical scores**: the
score of a pair is a function of its two stored vectors alone, never of the engine, the block, the tile or the thread
that read it (:mod:`pipeline.retrieve.canonical` states it). So every exact engine returns the same bytes, and which one
ran, on how many threads and in how much memory is execution, not identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.order import Rows, Scores
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING

Metric = Literal["l2", "inner_product", "cosine"]
Vectors = npt.NDArray[np.floating]
Block = tuple[Rows, Vectors]
"""Candidates that follow one another: rows uint32 ``[m]``, rising over all blocks, and vectors float16 or float32
``[m, d]``. Engines may keep both, uncopied, while further blocks are read: nobody writes to them afterwards."""

Exclusions = tuple[npt.NDArray[np.int64], Rows]
"""CSR of the rows removed from each query's ranking before ranks are counted: offsets int64 ``[queries + 1]``, rows
rising within a query (what :attr:`pipeline.corpus.pool.Pool.exclusions` gives)."""

Done = Callable[[int], None]

MAX_SUBSETS = 64
"""Pools that one pass can rank: a bit each."""

MAX_DEPTH = 65_535
"""The largest depth: ranks are uint16."""

LARGEST_BLOCK = 131_072
"""Candidates read at once where memory allows. The survivors of each block are scored, so larger blocks score fewer;
beyond this, fresh memory costs more than that saves (at 768 dimensions)."""

SMALLEST_BLOCK = 2_048


class Subset(NamedTuple):
    """One of several pools that are searched with the same queries in one pass.

    Attributes:
        candidates: its rows, rising; None where every candidate is one of it.
        excluded: what is removed from its rankings.
    """

    candidates: Rows | None
    excluded: Exclusions


@dataclass(frozen=True)
class Ranking:
    """Entries in final order: by query, then rank from 1 (schema :data:`pipeline.core.schema.RANKING`).

    Attributes:
        query: uint32 ``[n]``, position of the query.
        row: uint32 ``[n]``, row of the candidate.
        score: float32 ``[n]``, higher is better; a squared L2 distance stands negated.
        rank: uint16 ``[n]``.
    """

    query: Rows
    row: Rows
    score: Scores
    rank: npt.NDArray[np.uint16]

    @classmethod
    def from_counts(cls, counts: npt.NDArray[np.int64], row: Rows, score: Scores) -> Ranking:
        """Number entries that are in final order already, ``counts[q]`` of them for query ``q``."""
        ends = np.cumsum(counts)
        rank = np.arange(1, len(row) + 1) - np.repeat(ends - counts, counts)
        query = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        return cls(query, row, score, rank.astype(np.uint16))

    def of(self, queries: npt.NDArray[np.bool_]) -> Ranking:
        """Return the entries of some queries, bool ``[queries]``; the others are left without results."""
        kept = queries[self.query]
        return Ranking(self.query[kept], self.row[kept], self.score[kept], self.rank[kept])

    def __len__(self) -> int:
        return len(self.row)

    def table(self) -> pa.Table:
        """Return the ranking as an Arrow table."""
        return pa.table([self.query, self.row, self.score, self.rank], schema=RANKING)


def ignored(_count: int) -> None:
    """Report no progress."""


class DenseEngine(ABC):
    """An exact nearest-neighbour search that reads its candidates once."""

    def search(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        *,
        metric: Metric,
        depth: int,
        excluded: Exclusions,
        resources: Resources,
    ) -> Ranking:
        """Return the ``depth`` best candidates of every query.

        Args:
            queries: float16 or float32 ``[q, d]``.
            blocks: candidates, read once and in order.
            metric: ``l2`` (negated squared distance), ``inner_product`` or ``cosine`` (0 where a vector is zero).
            depth: 1 to :data:`MAX_DEPTH`; a query has fewer entries where fewer candidates remain.
            excluded: rows removed from each query's ranking.
            resources: memory in bytes for everything but ``queries`` and the block at hand, threads, device.

        Raises:
            InputError: wrong shapes, rows that do not rise, vectors that are not finite or too large for float32.
        """
        subsets = [Subset(None, excluded)]
        return self.search_pools(queries, blocks, subsets, metric=metric, depth=depth, resources=resources)[0]

    @abstractmethod
    def search_pools(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return what :meth:`search` would for each of several pools, from one pass over their union.

        Args:
            queries: float16 or float32 ``[q, d]``, the same for every pool.
            blocks: the candidates of all pools, read once and in order.
            subsets: the pools, at most :data:`MAX_SUBSETS`.
            metric: as of :meth:`search`.
            depth: as of :meth:`search`.
            resources: as of :meth:`search`.
            done: progress callback; receives the number of candidates processed since the last call.
        """


def block_rows(dimension: int, memory: int) -> int:
    """Return how many candidates to read at once: their vectors, as stored and as float32, take half of ``memory``."""
    return int(np.clip(memory // 2 // (8 * dimension + 16), SMALLEST_BLOCK, LARGEST_BLOCK))


def check_depth(depth: int) -> None:
    """Refuse a depth that a ranking cannot hold."""
    if not 1 <= depth <= MAX_DEPTH:
        raise InputError(f"depth {depth} is out of range", f"Choose 1 to {MAX_DEPTH}")


def no_exclusions(queries: int) -> Exclusions:
    """Return the exclusions of queries that have none."""
    return np.zeros(queries + 1, np.int64), np.empty(0, np.uint32)
