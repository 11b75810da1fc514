"""Runs and relevance judgements as CSR arrays: one list for each query."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import csr
from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool

Offsets = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_BLOCK = 1 << 22
"""Entries of a run that are looked up at a time."""

_CONTRACT = "Sort by query, then score descending, then paper id descending, with ranks from 1"


@dataclass(frozen=True)
class Run:
    """Retrieved papers of every query, best first.

    Attributes:
        offsets: int64 ``[queries + 1]``; query ``i`` retrieved ``rows[offsets[i]:offsets[i + 1]]``.
        rows: uint32 ``[entries]``.
    """

    offsets: Offsets
    rows: Rows

    @classmethod
    def from_table(cls, table: pa.Table, queries: int) -> Run:
        """Check a table of schema :data:`pipeline.core.schema.RANKING` and take over its rows.

        Measures count ranks by position and do not look at scores, so the one total order must hold already.

        Of so many ``queries``, one without entries retrieved nothing.

        Raises:
            InputError: an entry breaks the contract; the message names it.
        """
        query, row = column(table, "query"), column(table, "row")
        score, rank = column(table, "score"), column(table, "rank")
        offsets = _offsets(query, queries, "ranking")
        expected = within(offsets) + 1
        _check_none(rank != expected, query, rank, "has a rank out of place")
        _check_none(~np.isfinite(score), query, rank, "has a score that is not finite")
        risen = (score[1:] > score[:-1]) | ((score[1:] == score[:-1]) & (row[1:] >= row[:-1]))
        risen &= query[1:] == query[:-1]
        _check_none(np.concatenate([[False], risen])[: len(query)], query, rank, "is below a worse one")
        _check_none(_repeated(query, row), query, rank, "repeats a paper of this query")
        return cls(offsets, row)

    def retrieved(self) -> Offsets:
        """Return how many papers each query retrieved, int64 ``[queries]``."""
        return np.diff(self.offsets)

    def among(self, kept: Mask) -> Run:
        """Return the papers that are ``kept``, bool ``[papers of the corpus]``."""
        inside = kept[self.rows]
        return Run(_shortened(self.offsets, inside), self.rows[inside])

    @functools.cached_property
    def depth(self) -> int:
        """Length of the longest list."""
        return int(self.retrieved().max(initial=0))


@dataclass(frozen=True)
class Qrels:
    """Papers relevant to each query: those with a grade of 1 or more.

    Attributes:
        offsets: int64 ``[queries + 1]``.
        rows: uint32 ``[positives]``.
        grades: int16 ``[positives]``, falling within a query.
        others: the other papers of the judgements, of the same queries: grade 0 is not relevant, a negative one is
            pooled but not judged, as in trec_eval. None: there are none.
    """

    offsets: Offsets
    rows: Rows
    grades: npt.NDArray[np.int16]
    others: Qrels | None = None

    @classmethod
    def from_table(cls, table: pa.Table, queries: int) -> Qrels:
        """Take judgements from a table of schema :data:`pipeline.core.schema.JUDGEMENTS`.

        Raises:
            InputError: a query is out of range or order, or has two judgements of one paper.
        """
        query, row, grade = column(table, "query"), column(table, "row"), column(table, "grade")
        _offsets(query, queries, "qrels")
        repeated = _repeated(query, row)
        if repeated.any():
            at = int(np.flatnonzero(repeated)[0])
            raise InputError(f"query {query[at]} has two judgements of row {row[at]}", "Keep one of them")
        order = np.lexsort((row, -grade.astype(np.int32), query))
        query, row, grade = query[order], row[order], grade[order]
        of_kind = [
            (csr.offsets_of(query[kept], queries), row[kept], grade[kept]) for kept in (grade >= 1, grade < 1)
        ]  # fmt: skip
        return cls(*of_kind[0], cls(*of_kind[1]) if len(of_kind[1][1]) else None)

    def positives(self) -> Offsets:
        """Return how many relevant papers each query has, int64 ``[queries]``."""
        return np.diff(self.offsets)

    def graded(self, least: int) -> Qrels:
        """Return the papers of a grade of ``least`` or more, without the other judgements."""
        return self._kept(self.grades >= least)

    def among(self, kept: Mask) -> Qrels:
        """Return the papers that are ``kept``, bool ``[papers of the corpus]``, without the other judgements."""
        return self._kept(kept[self.rows])

    def _kept(self, kept: Mask) -> Qrels:
        return Qrels(_shortened(self.offsets, kept), self.rows[kept], self.grades[kept])


def check_measurable(qrels: Qrels, run: Run) -> None:
    """Refuse a run and qrels of different queries, and a query without a relevant paper.

    No measure is defined for a query without a relevant paper; counting it as 0 would lower every mean.
    """
    judged, ranked = len(qrels.offsets) - 1, len(run.offsets) - 1
    if judged != ranked:
        raise InputError(f"the qrels have {judged:,} queries, the ranking {ranked:,}", "Rank the queries of this pool")
    without = np.flatnonzero(qrels.positives() == 0)
    if len(without):
        raise InputError(
            f"{len(without):,} queries have no relevant paper, first query {without[0]}",
            "Leave them out before measuring: they can be counted, not scored",
        )


def check_candidates(run: Run, pool: Pool) -> None:
    """Check that a run holds only what its pool lets each query retrieve (protocol 2).

    Raises:
        InputError: a row is not a candidate, or is excluded for its query; the message names the first.
    """
    offsets, excluded = pool.exclusions
    query = query_of(run.offsets)
    for broken, how in (
        (places(run.rows, pool.candidates) < 0, "is not a candidate of"),
        (places(pairs(query, run.rows), pairs(query_of(offsets), excluded)) >= 0, "is excluded for this query by"),
    ):
        if broken.any():
            entry = int(np.argmax(broken))
            raise InputError(
                f"row {run.rows[entry]}, ranked for query {query[entry]}, {how} {pool.artifact.name}",
                "Rank this pool, with its exclusions, before scoring",
            )


def select(run: Run, qrels: Qrels, queries: npt.NDArray[np.int64]) -> tuple[Run, Qrels]:
    """Return run and qrels of some queries, in the order given."""
    offsets, entries = _take(run.offsets, queries)
    return Run(offsets, run.rows[entries]), _judged(qrels, queries)


def _judged(qrels: Qrels, queries: npt.NDArray[np.int64]) -> Qrels:
    offsets, papers = _take(qrels.offsets, queries)
    others = None if qrels.others is None else _judged(qrels.others, queries)
    return Qrels(offsets, qrels.rows[papers], qrels.grades[papers], others)


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column as an array, without a copy where it has one chunk."""
    chunks = table.column(name)
    whole = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    values: npt.NDArray[Any] = whole.to_numpy()
    return values


def pairs(query: npt.NDArray[Any], row: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return each (query, row) as one uint64 that sorts like the pair."""
    packed: npt.NDArray[np.uint64] = query.astype(np.uint64) << np.uint64(32) | row.astype(np.uint64)
    return packed


def query_of(offsets: Offsets) -> npt.NDArray[np.int64]:
    """Return the query of each entry of CSR lists, int64 ``[entries]``."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def within(offsets: Offsets) -> npt.NDArray[np.int64]:
    """Return the number of each entry within its list, from 0, int64 ``[entries]``."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def ranks_of(run: Run, query: npt.NDArray[Any], row: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the rank of each paper in the list of its query, from 1, int64 ``[papers]``; 0: not retrieved."""
    asked = pairs(query, row)
    order = np.argsort(asked)
    asked, ranks = asked[order], np.zeros(len(asked), np.int64)
    listed, rank = query_of(run.offsets), within(run.offsets) + 1
    for start in range(0, len(run.rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        place = places(pairs(listed[part], run.rows[part]), asked)
        ranks[order[place[place >= 0]]] = rank[part][place >= 0]
    return ranks


def places(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where each value is in a rising array, int64; -1 where it is absent."""
    place, there = csr.places(known, values)
    return np.where(there, place, -1)


def _shortened(offsets: Offsets, kept: Mask) -> Offsets:
    """Return the offsets of lists of which some entries are kept."""
    counts: Offsets = np.concatenate([[0], np.cumsum(kept)])
    return counts[offsets]


def _take(offsets: Offsets, queries: npt.NDArray[np.int64]) -> tuple[Offsets, Offsets]:
    """Return the offsets of some lists put one behind the other, and the positions of their entries."""
    lengths = np.diff(offsets)[queries]
    return np.concatenate([[0], np.cumsum(lengths)]), csr.ranges(offsets[queries], lengths)


def _offsets(query: npt.NDArray[Any], queries: int, what: str) -> Offsets:
    if len(query) and int(query.max()) >= queries:
        raise InputError(
            f"the {what} name query {int(query.max())}, but there are only {queries:,} queries",
            "Use the pool they were made for",
        )
    fallen = np.flatnonzero(query[1:] < query[:-1])
    if len(fallen):
        raise InputError(f"the {what} are not sorted by query (entry {fallen[0] + 1})", _CONTRACT)
    return csr.offsets_of(query, queries)


def _repeated(query: npt.NDArray[Any], row: npt.NDArray[Any]) -> Mask:
    """Return which entries repeat the (query, row) of an earlier entry."""
    packed = pairs(query, row)
    ordered = np.sort(packed)
    repeated = np.zeros(len(packed), dtype=bool)
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(packed, kind="stable")
        repeated[order[1:]] = packed[order[1:]] == packed[order[:-1]]
    return repeated


def _check_none(broken: Mask, query: npt.NDArray[Any], rank: npt.NDArray[Any], how: str) -> None:
    if broken.any():
        at = int(np.flatnonzero(broken)[0])
        raise InputError(f"entry {at} of the ranking (query {query[at]}, rank {rank[at]}) {how}", _CONTRACT)
