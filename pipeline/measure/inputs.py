"""Runs and relevance judgements as CSR arrays: a list for each query."""

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
"""Entries of a run in a block of look-ups."""

Queries = int | Pool
"""The queries of a table: a pool, whose errors name ids, or their number."""

_CONTRACT = "Sort by query, then score descending, then paper id descending, with ranks from 1"


@dataclass(frozen=True)
class RankedRun:
    """Retrieved papers of queries, best first: query ``i`` has uint32 ``rows[offsets[i]:offsets[i + 1]]``."""

    offsets: Offsets
    rows: Rows

    @classmethod
    def from_table(cls, table: pa.Table, queries: Queries) -> RankedRun:
        """Return a run from a table of schema :data:`pipeline.core.schema.RANKING`, after checking it.

        Measures count ranks by position and ignore scores, so the table must be in the one total order. Queries
        without entries retrieved nothing.

        Raises:
            InputError: an entry breaks the contract.
        """
        query, row = column(table, "query"), column(table, "row")
        score, rank = column(table, "score"), column(table, "rank")
        offsets = _offsets(query, queries, "ranking")
        expected = within(offsets) + 1
        _check_none(rank != expected, table, queries, "has a rank out of place")
        _check_none(~np.isfinite(score), table, queries, "has a score that is not finite")
        misplaced = (score[1:] > score[:-1]) | ((score[1:] == score[:-1]) & (row[1:] >= row[:-1]))
        misplaced &= query[1:] == query[:-1]
        _check_none(np.concatenate([[False], misplaced])[: len(query)], table, queries, "is below a worse one")
        _check_none(_repeated(query, row), table, queries, "repeats a paper of this query")
        return cls(offsets, row)

    def retrieved(self) -> Offsets:
        """Return the number of papers that each query retrieved, int64 ``[queries]``."""
        return np.diff(self.offsets)

    def among(self, included: Mask) -> RankedRun:
        """Return the run of the papers ``included``, bool ``[papers of the corpus]``."""
        mask = included[self.rows]
        return RankedRun(_select_offsets(self.offsets, mask), self.rows[mask])

    @functools.cached_property
    def depth(self) -> int:
        """Length of the longest list."""
        return int(self.retrieved().max(initial=0))


@dataclass(frozen=True)
class Qrels:
    """Relevant papers of queries: those of grade 1 or more.

    Attributes:
        offsets: int64 ``[queries + 1]``.
        rows: uint32 ``[positives]``.
        grades: int16 ``[positives]``, descending within a query.
        others: other judgements of the same queries, or None. As in trec_eval, grade 0 is not relevant, and a negative
            grade is pooled but not judged.
    """

    offsets: Offsets
    rows: Rows
    grades: npt.NDArray[np.int16]
    others: Qrels | None = None

    @classmethod
    def from_table(cls, table: pa.Table, queries: Queries) -> Qrels:
        """Return qrels from a table of schema :data:`pipeline.core.schema.JUDGEMENTS`.

        Raises:
            InputError: a query is out of range or order, or has two judgements of one paper.
        """
        query, row, grade = column(table, "query"), column(table, "row"), column(table, "grade")
        _offsets(query, queries, "qrels")
        repeated = _repeated(query, row)
        if repeated.any():
            entry = int(np.flatnonzero(repeated)[0])
            raise InputError(
                f"{_query(queries, query[entry])} has two judgements of {_paper(queries, row[entry])}",
                "Keep one of them",
            )
        order = np.lexsort((row, -grade.astype(np.int32), query))
        query, row, grade = query[order], row[order], grade[order]
        by_relevance = [
            (csr.offsets_of(query[mask], _number(queries)), row[mask], grade[mask]) for mask in (grade >= 1, grade < 1)
        ]  # fmt: skip
        return cls(*by_relevance[0], cls(*by_relevance[1]) if len(by_relevance[1][1]) else None)

    def positives(self) -> Offsets:
        """Return the number of relevant papers of each query, int64 ``[queries]``."""
        return np.diff(self.offsets)

    def graded(self, min_grade: int) -> Qrels:
        """Return the papers of grade ``min_grade`` or more, without other judgements."""
        return self._select(self.grades >= min_grade)

    def among(self, included: Mask) -> Qrels:
        """Return the papers ``included``, bool ``[papers of the corpus]``, without other judgements."""
        return self._select(included[self.rows])

    def _select(self, mask: Mask) -> Qrels:
        return Qrels(_select_offsets(self.offsets, mask), self.rows[mask], self.grades[mask])


def check_candidates(run: RankedRun, pool: Pool) -> None:
    """Check that a run contains only candidates of its pool that are not excluded for the query (protocol 2).

    Raises:
        InputError: a row is not a candidate, or is excluded for its query.
    """
    offsets, excluded = pool.exclusions
    query = query_of(run.offsets)
    for invalid, problem in (
        (positions_in(run.rows, pool.candidates) < 0, "is not a candidate of"),
        (
            positions_in(csr.pack(query, run.rows), csr.pack(query_of(offsets), excluded)) >= 0,
            "is excluded for this query by",
        ),
    ):
        if invalid.any():
            entry = int(np.argmax(invalid))
            raise InputError(
                f"{_paper(pool, run.rows[entry])}, ranked for {_query(pool, query[entry])}, {problem} "
                f"{pool.artifact.name}",
                "Rank this pool, with its exclusions, before scoring",
            )


def select(run: RankedRun, qrels: Qrels, queries: npt.NDArray[np.int64]) -> tuple[RankedRun, Qrels]:
    """Return run and qrels of the given queries, in their order."""
    offsets, entries = _take(run.offsets, queries)
    return RankedRun(offsets, run.rows[entries]), _judged(qrels, queries)


def _judged(qrels: Qrels, queries: npt.NDArray[np.int64]) -> Qrels:
    offsets, papers = _take(qrels.offsets, queries)
    others = None if qrels.others is None else _judged(qrels.others, queries)
    return Qrels(offsets, qrels.rows[papers], qrels.grades[papers], others)


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column as an array, without copying if it has one chunk."""
    chunks = table.column(name)
    array = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    values: npt.NDArray[Any] = array.to_numpy()
    return values


def query_of(offsets: Offsets) -> npt.NDArray[np.int64]:
    """Return the query of each entry of CSR lists, int64 ``[entries]``."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def within(offsets: Offsets) -> npt.NDArray[np.int64]:
    """Return the index of each entry within its list, from 0, int64 ``[entries]``."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def ranks_of(run: RankedRun, query: npt.NDArray[Any], row: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the ranks of papers in the lists of their queries, from 1, int64 ``[papers]``; 0 if not retrieved."""
    wanted_pairs = csr.pack(query, row)
    order = np.argsort(wanted_pairs)
    wanted_pairs, ranks = wanted_pairs[order], np.zeros(len(wanted_pairs), np.int64)
    queries, rank = query_of(run.offsets), within(run.offsets) + 1
    for start in range(0, len(run.rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        position = positions_in(csr.pack(queries[block], run.rows[block]), wanted_pairs)
        ranks[order[position[position >= 0]]] = rank[block][position >= 0]
    return ranks


def positions_in(values: npt.NDArray[Any], rising: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the positions of values in a rising array, int64, or -1."""
    position, present = csr.find_sorted(rising, values)
    return np.where(present, position, -1)


def _select_offsets(offsets: Offsets, mask: Mask) -> Offsets:
    """Return the offsets of lists after selecting entries by a mask."""
    counts: Offsets = np.concatenate([[0], np.cumsum(mask)])
    return counts[offsets]


def _take(offsets: Offsets, queries: npt.NDArray[np.int64]) -> tuple[Offsets, Offsets]:
    """Return the offsets of the concatenated lists of queries, and the positions of their entries."""
    lengths = np.diff(offsets)[queries]
    return np.concatenate([[0], np.cumsum(lengths)]), csr.ranges(offsets[queries], lengths)


def _number(queries: Queries) -> int:
    return queries if isinstance(queries, int) else len(queries.query_rows)


def _query(queries: Queries, position: int) -> str:
    return f"query {position}" if isinstance(queries, int) else f"query {queries.query_ids()[position]!r}"


def _paper(queries: Queries, row: int) -> str:
    if isinstance(queries, int) or row >= len(queries.corpus):
        return f"row {row}"
    return f"paper {queries.corpus.ids(np.array([row]))[0]!r}"


def _offsets(query: npt.NDArray[Any], queries: Queries, name: str) -> Offsets:
    number = _number(queries)
    if len(query) and int(query.max()) >= number:
        raise InputError(
            f"query {int(query.max())} of the {name} must be one of {number:,} queries, from 0",
            "Use the pool they were made for",
        )
    unsorted = np.flatnonzero(query[1:] < query[:-1])
    if len(unsorted):
        raise InputError(f"the {name} are not sorted by query (entry {unsorted[0] + 1})", _CONTRACT)
    return csr.offsets_of(query, number)


def _repeated(query: npt.NDArray[Any], row: npt.NDArray[Any]) -> Mask:
    """Return whether entries repeat the (query, row) of an earlier entry, bool ``[entries]``."""
    packed = csr.pack(query, row)
    ordered = np.sort(packed)
    repeated = np.zeros(len(packed), dtype=bool)
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(packed, kind="stable")
        repeated[order[1:]] = packed[order[1:]] == packed[order[:-1]]
    return repeated


def _check_none(invalid: Mask, table: pa.Table, queries: Queries, how: str) -> None:
    if invalid.any():
        entry = int(np.flatnonzero(invalid)[0])
        query, rank = (int(column(table, name)[entry]) for name in ("query", "rank"))
        raise InputError(f"entry {entry} of the ranking ({_query(queries, query)}, rank {rank}) {how}", _CONTRACT)
