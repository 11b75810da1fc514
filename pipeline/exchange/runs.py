"""Read runs of other tools for a pool.

An unknown query or document is an error with its location, unless the user allows it; then it is dropped and counted.
So is a document twice in a query. Ranks in the file are ignored: as in trec_eval 10, scores as float64 decide, then
document ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Ints, Keys, pack
from pipeline.core.errors import InputError
from pipeline.core.order import tied_share, without_rises
from pipeline.core.schema import RANKING
from pipeline.core.text import unescape
from pipeline.corpus.pool import Pool
from pipeline.exchange.entries import MEMORY, Entries, read_entries
from pipeline.measure.inputs import query_of

_MAX_SHOWN = 3
"""Maximum number of unknown ids in a message."""

DECODE = "Decode the ids, or write percent-encoded in the second column of the file"
"""Remedy for ids of a file of another tool that match only when decoded."""


def read_run(
    path: Path, pool: Pool, depth: int, *, allow_unknown: bool = False, memory: int = MEMORY
) -> tuple[pa.Table, dict[str, int]]:
    """Return the ranking of a run file. Entries may be in any order.

    Entries that the pool excludes (the query itself, papers with its title) are dropped before ranks are assigned.
    ``allow_unknown`` drops entries whose query or document the pool lacks.

    Returns:
        The ranking, schema :data:`pipeline.core.schema.RANKING`, and counts: entries ``read``, ``unknown_queries`` and
        ``unknown_documents`` (dropped entries), ``excluded``, ``beyond_depth`` and ``tied``;
        read == entries + unknown + excluded + beyond_depth.

    Raises:
        InputError: the file cannot be read, needs more than ``memory`` bytes, or has a bad entry.
    """
    entries = read_entries(path, memory)
    query = _query_positions(pool, entries.queries)
    row = _candidate_rows(pool, entries.documents)
    unknown_query, unknown_document = np.flatnonzero(query < 0), np.flatnonzero((query >= 0) & (row < 0))
    if not allow_unknown:
        _check_known(entries, "query", entries.queries, unknown_query, pool, _query_positions)
        _check_known(entries, "document", entries.documents, unknown_document, pool, _candidate_rows)
    counts = {"read": len(row), "unknown_queries": len(unknown_query), "unknown_documents": len(unknown_document)}
    known = np.flatnonzero((query >= 0) & (row >= 0))
    keys = pack(query[known], row[known])
    check_distinct(entries, known, keys)
    offsets, excluded = pool.exclusions
    is_ranked = ~np.isin(keys, pack(query_of(offsets), excluded))
    counts["excluded"] = int(np.count_nonzero(~is_ranked))
    ranking, counts["beyond_depth"] = rank_entries(keys[is_ranked], entries.scores[known][is_ranked], depth)
    tied = tied_share(ranking.column("query").to_numpy(), ranking.column("score").to_numpy())
    return ranking, counts | {"tied": round(tied * ranking.num_rows)}


def _query_positions(pool: Pool, ids: Sequence[str]) -> Ints:
    """Return the position of each query, int64 ``[ids]``; -1: unknown."""
    position_of = {query_id: position for position, query_id in enumerate(pool.query_ids())}
    return np.fromiter((position_of.get(query_id, -1) for query_id in ids), np.int64, len(ids))


def _candidate_rows(pool: Pool, ids: Sequence[str]) -> Ints:
    """Return the row of each candidate, int64 ``[ids]``; -1: unknown."""
    distinct = list(dict.fromkeys(ids))
    rows = pool.corpus.rows_of(distinct)
    row_of = dict(zip(distinct, np.where(np.isin(rows, pool.candidates), rows, -1).tolist(), strict=True))
    return np.fromiter(map(row_of.__getitem__, ids), np.int64, len(ids))


def _check_known(
    entries: Entries,
    role: str,
    ids: Sequence[str],
    unknown: Ints,
    pool: Pool,
    find: Callable[[Pool, Sequence[str]], Ints],
) -> None:
    if len(unknown):
        shown = ", ".join(f"{ids[entry]!r} ({entries.locate(entry)})" for entry in unknown[:_MAX_SHOWN].tolist())
        decoded = find(pool, [unescape(ids[entry]) for entry in unknown.tolist()]) >= 0
        remedy = "Select the pool that the run ranks (--size, --field, --samples=1), or drop them with --allow-unknown"
        raise InputError(
            f"{len(unknown):,} of {len(ids):,} entries name a {role} that {pool.artifact.name} does not have: {shown}",
            f"{np.count_nonzero(decoded):,} match when percent-decoded. {DECODE}" if decoded.any() else remedy,
        )


def check_distinct(entries: Entries, known: Ints, keys: Keys) -> None:
    """Raise InputError if a query has a document twice; ``keys`` are the packed pairs of the entries ``known``."""
    _, first_positions = np.unique(keys, return_index=True)
    if len(first_positions) == len(keys):
        return
    repeats = np.setdiff1d(np.arange(len(keys)), first_positions)
    later = int(known[repeats[0]])
    earlier = int(known[np.argmax(keys == keys[repeats[0]])])
    raise InputError(
        f"{entries.locate(later)} repeats {entries.locate(earlier)}: query {entries.queries[later]!r}, document "
        f"{entries.documents[later]!r} (repeated entries: {len(repeats):,})",
        "Keep one entry for each query and document",
    )


def rank_entries(keys: Keys, scores: npt.NDArray[np.float64], depth: int) -> tuple[pa.Table, int]:
    """Return the ranking of the ``depth`` best entries of each query in the total order, and the number of others.

    Scores that are equal as float32 alone keep the order of float64: a later one is lowered by the smallest step.
    """
    query, row = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    order = np.lexsort((row, scores))[::-1]
    order = order[np.argsort(query[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order]) + 1
    order, rank = order[rank <= depth], rank[rank <= depth]
    columns = [query[order], row[order], without_rises(query[order], scores[order].astype(np.float32), row[order])]
    return pa.table([*columns, rank.astype(np.uint16)], schema=RANKING), len(keys) - len(order)
