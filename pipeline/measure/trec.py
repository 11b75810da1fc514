"""TREC run and qrels files: written with the ids of the corpus, and read back.

trec_eval ignores the order of a file and its ranks: it sorts by score, as float32, then by document id, both falling.
A corpus numbers its papers in the byte order of their ids, so that is our total order exactly, provided scores keep
every float32 digit and ids stand as they are. An id with white space would break the columns, and an escaped one would
sort elsewhere: such ids are refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.schema import JUDGEMENTS, RANKING
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import column

_BLOCK = 1 << 18
"""Lines written at a time."""

_MAX_RANK = 2**16 - 1


class Run(NamedTuple):
    """A run that was read: its ranking, and how many entries were removed because the pool excludes them."""

    ranking: pa.Table
    excluded: int


def run_lines(ranking: pa.Table, pool: Pool, tag: str) -> Iterator[bytes]:
    """Yield a ranking as blocks of lines ``query Q0 document rank score tag``, UTF-8.

    Args:
        ranking: schema :data:`pipeline.core.schema.RANKING`.
        pool: the pool it ranks.
        tag: name of the run, without white space.

    Raises:
        InputError: an id or the tag is empty or holds white space.
    """
    _refuse_white_space([tag], "run tag")
    query_ids = _query_ids(pool)
    for part in _slices(ranking):
        documents = _document_ids(part, pool)
        score = pc.cast(part.column("score").combine_chunks(), pa.large_string())
        rank = pc.cast(part.column("rank").combine_chunks(), pa.large_string())
        yield _joined(query_ids.take(part.column("query").combine_chunks()), "Q0", documents, rank, score, tag)


def qrels_lines(pool: Pool) -> Iterator[bytes]:
    """Yield the judgements of a pool as blocks of lines ``query 0 document grade``, UTF-8.

    Raises:
        InputError: an id is empty or holds white space.
    """
    query_ids = _query_ids(pool)
    for part in _slices(pool.qrels):
        grade = pc.cast(part.column("grade").combine_chunks(), pa.large_string())
        yield _joined(query_ids.take(part.column("query").combine_chunks()), "0", _document_ids(part, pool), grade)


def write(path: Path, blocks: Iterator[bytes]) -> None:
    """Write what :func:`run_lines` or :func:`qrels_lines` yields, atomically."""
    with files.disk_errors(path), files.replacing(path) as temporary, temporary.open("wb") as sink:
        sink.writelines(blocks)


def read_run(path: Path, pool: Pool) -> Run:
    """Read somebody's run of a pool, in whatever order its lines are.

    Scores are rounded to float32 and entries sorted in the one total order, as trec_eval does; entries that the pool
    excludes (the query itself, papers of its title) are removed before ranks are counted (protocol 2).

    Raises:
        InputError: the file cannot be read; a line has not six columns or no finite score, names a query or paper that
            is not of the pool, or names a paper twice for one query.
    """
    pairs, values = _read(path, pool, columns=6, value=4)
    with np.errstate(over="ignore"):
        scores = values.astype(np.float32)
    if not np.isfinite(scores).all():
        raise InputError(f"{path} line {int(np.flatnonzero(~np.isfinite(scores))[0]) + 1} has no finite score")
    removed = np.isin(pairs, _exclusion_pairs(pool))
    pairs, scores = pairs[~removed], scores[~removed]
    query, row = _unpack(pairs)
    order = np.lexsort((row, scores))[::-1]
    order = order[np.argsort(query[order], kind="stable")]
    query, row, scores = query[order], row[order], scores[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
    if rank.max(initial=0) > _MAX_RANK:
        raise InputError(f"{path} ranks {rank.max():,} papers for one query", f"Cut it at {_MAX_RANK:,} or fewer")
    return Run(pa.table([query, row, scores, rank.astype(np.uint16)], schema=RANKING), int(removed.sum()))


def read_qrels(path: Path, pool: Pool) -> pa.Table:
    """Read judgements of a pool's queries and candidates as a table of schema ``JUDGEMENTS``, sorted.

    Raises:
        InputError: the file cannot be read; a line has not four columns or no whole grade, names a query or paper that
            is not of the pool, or judges a pair twice.
    """
    pairs, values = _read(path, pool, columns=4, value=3)
    with np.errstate(invalid="ignore"):
        grades = values.astype(np.int16)
    if (grades != values).any():
        raise InputError(f"{path} line {int(np.flatnonzero(grades != values)[0]) + 1} has no whole grade")
    order = np.argsort(pairs)
    query, row = _unpack(pairs[order])
    return pa.table([query, row, grades[order]], schema=JUDGEMENTS)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, _BLOCK):
        yield table.slice(start, _BLOCK)


def _query_ids(pool: Pool) -> pa.LargeStringArray:
    ids = pool.query_ids()
    _refuse_white_space(ids, "query id")
    return pa.array(ids, pa.large_string())


def _document_ids(part: pa.Table, pool: Pool) -> pa.LargeStringArray:
    rows, place = np.unique(column(part, "row"), return_inverse=True)
    ids = pool.corpus.ids(rows)
    _refuse_white_space(ids, "paper id")
    return pa.array(ids, pa.large_string()).take(pa.array(place))


def _refuse_white_space(ids: Sequence[str], what: str) -> None:
    for each in ids:
        if each.split() != [each]:
            raise InputError(
                f"the {what} {each!r} is empty or holds white space, which separates the columns of a TREC file",
                "Rename it; an escaped id would change the order of ties",
            )


def _joined(*columns: pa.Array | str) -> bytes:
    """Return the columns as lines, without a Python object for each."""
    text = pa.large_string()
    parts = [pa.scalar(column, text) if isinstance(column, str) else column for column in columns]
    lines = pc.binary_join_element_wise(*parts, pa.scalar(" ", text))
    lines = pc.binary_join_element_wise(lines, pa.scalar("", text), pa.scalar("\n", text))
    _, offsets, characters = lines.buffers()
    end = np.frombuffer(offsets, np.int64)[len(lines)]
    return bytes(characters.slice(0, int(end)))


def _read(path: Path, pool: Pool, columns: int, value: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Return (query, row) of each line as one uint64, and its value."""
    place_of = {query_id: place for place, query_id in enumerate(pool.query_ids())}
    number_of: dict[str, int] = {}
    queries, documents, values = array("q"), array("q"), array("d")
    for number, line in _numbered_lines(path):
        parts = line.split()
        if len(parts) != columns:
            raise InputError(f"{path} line {number} has {len(parts)} columns, not {columns}", f"It reads {line!r}")
        if parts[0] not in place_of:
            raise InputError(f"{path} line {number} names query {parts[0]!r}, which the pool does not have")
        queries.append(place_of[parts[0]])
        documents.append(number_of.setdefault(parts[2], len(number_of)))
        values.append(_number(parts[value], path, number))
    rows = _candidate_rows(path, list(number_of), pool)[np.frombuffer(documents, np.int64)]
    pairs = _pack(np.frombuffer(queries, np.int64), rows)
    _, first = np.unique(pairs, return_index=True)
    if len(first) < len(pairs):
        repeated = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        raise InputError(f"{path} line {repeated + 1} repeats a query and document", "Keep one of them")
    return pairs, np.frombuffer(values, np.float64)


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from enumerate(lines, 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})", "Give a TREC file in UTF-8") from error


def _number(text: str, path: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{path} line {line} has {text!r} where a number belongs") from None


def _candidate_rows(path: Path, ids: list[str], pool: Pool) -> npt.NDArray[np.int64]:
    rows = pool.corpus.rows_of(ids)
    unknown = np.flatnonzero(~np.isin(rows, pool.candidates))
    if len(unknown):
        named = ", ".join(repr(ids[i]) for i in unknown[:3])
        raise InputError(f"{path} names {len(unknown):,} papers that are no candidates of the pool, such as {named}")
    return rows


def _exclusion_pairs(pool: Pool) -> npt.NDArray[np.uint64]:
    offsets, rows = pool.exclusions
    return _pack(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), rows)


def _pack(query: npt.NDArray[np.integer], row: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    return query.astype(np.uint64) << np.uint64(32) | row.astype(np.uint64)


def _unpack(pairs: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    return (pairs >> np.uint64(32)).astype(np.uint32), (pairs & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
