"""Read runs of other tools for a pool: TREC, JSON, ranx and Parquet, plain or gzip.

A malformed line, a score that is not a finite number, or a document twice in a query is an error with its location.
So is an unknown query or document, unless the user allows it; then it is dropped and counted. Ranks in the file are
ignored: as in trec_eval, float32 scores decide, then document ids.
"""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.csr import Ints, Keys, pack
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.order import tied_share
from pipeline.core.schema import RANKING
from pipeline.core.text import number as decimal
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import query_of
from pipeline.measure.trec import unescape
from pipeline.sources.content import read_blocks, read_lines

MEMORY = 2**31
"""Default of the approximate memory for reading a run, in bytes."""

_MEMORY_FACTORS = {"trec": 8, "json": 20, "lz4": 20}
"""Approximate maximum memory of a run, as a multiple of its text. JSON is first read as tuples."""

_ROW_BYTES = 128
"""Approximate memory of a row of a Parquet file, in bytes."""

_MAX_SHOWN = 3
"""Maximum number of unknown ids in a message."""

COLUMNS = {
    "query": ("query_id", "q_id", "qid", "query-id", "query"),
    "document": ("doc_id", "docno", "docid", "corpus-id", "paper_id", "document"),
    "score": ("score",),
}
"""Accepted names of the columns of a Parquet file."""


@dataclass(frozen=True)
class Entries:
    """The entries of a run file, in file order.

    Attributes:
        path: the file.
        queries: query id of each entry.
        documents: document id of each entry.
        scores: float32 ``[n]``, finite.
        locate: returns the location of an entry, such as ``my.run:7``.
        escaped: whether ids are percent-encoded, as in TREC files.
    """

    path: Path
    queries: Sequence[str]
    documents: Sequence[str]
    scores: npt.NDArray[np.float32]
    locate: Callable[[int], str]
    escaped: bool = False


def read_run(
    path: Path, pool: Pool, depth: int, *, allow_unknown: bool = False, memory: int = MEMORY
) -> tuple[pa.Table, dict[str, int]]:
    """Return the ranking of a run file. Entries may be in any order.

    The file name ending determines the format: ``.json``, ``.lz4``, ``.parquet``, otherwise TREC. Entries that the pool
    excludes (the query itself, papers with its title) are dropped before ranks are assigned. ``allow_unknown`` drops
    entries whose query or document the pool lacks.

    Returns:
        The ranking, schema :data:`pipeline.core.schema.RANKING`, and counts: entries ``read``, ``unknown_queries`` and
        ``unknown_documents`` (dropped entries), ``excluded``, ``beyond_depth`` and ``tied``;
        read == entries + unknown + excluded + beyond_depth.

    Raises:
        InputError: the file cannot be read, needs more than ``memory`` bytes, or has a bad entry.
    """
    entries = read_entries(path, memory)
    query = _resolve(entries.queries, functools.partial(_query_positions, pool), entries.escaped)
    row = _resolve(entries.documents, functools.partial(_candidate_rows, pool), entries.escaped)
    unknown_query, unknown_document = np.flatnonzero(query < 0), np.flatnonzero((query >= 0) & (row < 0))
    if not allow_unknown:
        _check_known(entries, "query", entries.queries, unknown_query, pool)
        _check_known(entries, "document", entries.documents, unknown_document, pool)
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


def read_entries(path: Path, memory: int = MEMORY) -> Entries:
    """Return the entries of a run file, of any pool.

    Raises:
        InputError: it cannot be read, has no entry, or has a score that is not a finite float32 number.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    reader = {"json": _json, "lz4": _ranx, "parquet": _parquet, "parq": _parquet}.get(kind, _trec)
    try:
        entries = reader(path, memory)
    except CorruptError as error:
        raise InputError(error.what, "Write the run again") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", "Give a run: TREC, .json, .lz4 (ranx) or .parquet") from error
    except (OSError, EOFError, ValueError, ArithmeticError, RuntimeError, LookupError) as error:
        raise InputError(
            f"{path} cannot be read as a run ({str(error)[:200]})",
            "Give a TREC run, or a file that ends in .json, .lz4 (ranx) or .parquet; .gz may follow",
        ) from error
    if not len(entries.scores):
        raise InputError(f"the run {path} must have an entry, got none", "Write the run again")
    return _check_finite(entries)


def entries_of(run: Mapping[str, Mapping[str, float]]) -> Entries:
    """Return the entries of scores by query and document.

    Raises:
        InputError: an id is not a string, or a score is not a number.
    """
    return _check_finite(_from_nested(Path("run"), _as_object({query: dict(scores) for query, scores in run.items()})))


def _check_finite(entries: Entries) -> Entries:
    bad = np.flatnonzero(~np.isfinite(entries.scores))
    if len(bad):
        raise InputError(
            f"{entries.locate(int(bad[0]))}: a score must be a finite float32 number ({len(bad):,} are not)",
            "Remove the entry, or give it a finite score",
        )
    return entries


def _trec(path: Path, memory: int) -> Entries:
    queries, documents, scores, numbers = list[str](), list[str](), array("d"), array("q")
    ids: dict[str, str] = {}  # one string object for each distinct id
    size = 0
    for number, line in read_lines(path):
        size += len(line or b"")
        _check_size(path, size * _MEMORY_FACTORS["trec"], memory)
        try:
            query, _, document, _, score, _ = (line or b"").decode().split()
            scores.append(decimal(score))
        except ValueError as error:
            raise InputError(
                f"{path}:{number} must be 'query Q0 document rank score tag' in UTF-8, got {(line or b'')[:80]!r}",
                "Write six columns with white space between them; %20 stands for a space in an id",
            ) from error
        queries.append(ids.setdefault(query, query))
        documents.append(ids.setdefault(document, document))
        numbers.append(number)
    return Entries(path, queries, documents, _float32(scores), lambda entry: f"{path}:{numbers[entry]}", escaped=True)


class _Object(list[tuple[str, Any]]):
    """A JSON object whose keys may repeat."""


def _json(path: Path, memory: int) -> Entries:
    data = bytearray()
    for block in read_blocks(path):
        data += block
        _check_size(path, len(data) * _MEMORY_FACTORS["json"], memory)
    return _from_nested(path, json.loads(data, object_pairs_hook=_Object))


def _ranx(path: Path, memory: int) -> Entries:
    """Return the entries of a ranx file: CBOR, compressed twice."""
    import cbor2
    import lz4.frame  # type: ignore[import-untyped]

    with lz4.frame.open(path) as inner, lz4.frame.open(inner) as outer:
        data = outer.read(memory // _MEMORY_FACTORS["lz4"] + 1)
    _check_size(path, len(data) * _MEMORY_FACTORS["lz4"], memory)
    return _from_nested(path, _as_object(cbor2.loads(data)))


def _check_size(path: Path, needed: int, memory: int) -> None:
    if needed > memory:
        raise InputError(
            f"the run {path} needs more than {memory / 2**20:,.0f} MiB of memory",
            "Give the command more with --memory, or divide the run by queries",
        )


def _as_object(value: Any) -> Any:
    return _Object((name, _as_object(member)) for name, member in value.items()) if isinstance(value, dict) else value


def _from_nested(path: Path, run: Any) -> Entries:
    """Return the entries of ``{query: {document: score}}``."""
    queries, documents, scores = list[str](), list[str](), array("d")
    for query, scored in _members(path, run, "the run"):
        for document, score in _members(path, scored, f"query {query!r}"):
            if not isinstance(score, int | float) or isinstance(score, bool):
                raise _shape_error(f"{path}: the score of query {query!r}, document {document!r}", "a number", score)
            queries.append(query)
            documents.append(document)
            scores.append(float(score))

    for text in {*queries, *documents}:
        text.encode()  # fails on lone surrogates

    def locate(entry: int) -> str:
        return f"{path}: query {queries[entry]!r}, document {documents[entry]!r}"

    return Entries(path, queries, documents, _float32(scores), locate)


def _members(path: Path, value: Any, description: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, _Object) or not all(isinstance(name, str) for name, _ in value):
        raise _shape_error(f"{path}: {description}", "an object, as in {query: {document: score}}", value)
    yield from value


def _shape_error(subject: str, expected: str, got: Any) -> InputError:
    return InputError(f"{subject} must be {expected}, got {got!r:.60}", "Write the run again")


def _parquet(path: Path, memory: int) -> Entries:
    if path.suffix == ".gz":
        raise InputError(f"{path} must be Parquet without gzip around it", "Unpack it: Parquet is compressed inside")
    _check_size(path, pq.read_metadata(path).num_rows * _ROW_BYTES, memory)
    names = pq.read_schema(path).names
    columns = []
    for role, spellings in COLUMNS.items():
        matches = [name for name in names if name.lower() in spellings]
        if len(matches) != 1:
            raise InputError(
                f"{path} must have one column for the {role}, got {', '.join(names)}",
                f"Name it {spellings[0]}" + (f", one of {', '.join(spellings)}" if len(spellings) > 1 else ""),
            )
        columns += matches
    table = pq.read_table(path, columns=columns).select(columns)
    for column in table.columns[:2]:
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            raise InputError(f"{path}: ids must be strings or integers, got {column.type}", "Write them as strings")

    def locate(entry: int) -> str:
        return f"{path} row {entry + 1}"

    for column in table.columns:
        if column.null_count:
            entry = column.is_null().to_pylist().index(True)
            raise InputError(f"{locate(entry)}: an entry must be complete, got a missing value", "Remove it or fill it")
    queries, documents = (column.cast(pa.large_string()).to_pylist() for column in table.columns[:2])
    return Entries(path, queries, documents, _float32(table.column(2).cast(pa.float64()).to_numpy()), locate)


def _float32(scores: Iterable[float]) -> npt.NDArray[np.float32]:
    """Return scores as float32 without negative zero; scores that are too large become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(scores, np.float64).astype(np.float32) + np.float32(0)


def _resolve(ids: Sequence[str], find: Callable[[Sequence[str]], Ints], escaped: bool) -> Ints:
    """Return the number that ``find`` returns for each id, int64 ``[ids]``; -1: unknown. Ids may be ``escaped``."""
    distinct = list(dict.fromkeys(ids))
    numbers = find(distinct)
    if escaped and any("%" in text for text in distinct):
        unescaped = find(list(map(unescape, distinct)))
        numbers = np.where(unescaped < 0, numbers, unescaped)
    number_of = dict(zip(distinct, numbers.tolist(), strict=True))
    return np.fromiter(map(number_of.__getitem__, ids), np.int64, len(ids))


def _query_positions(pool: Pool, ids: Sequence[str]) -> Ints:
    position_of = {query_id: position for position, query_id in enumerate(pool.query_ids())}
    return np.array([position_of.get(query_id, -1) for query_id in ids], np.int64)


def _candidate_rows(pool: Pool, ids: Sequence[str]) -> Ints:
    rows = pool.corpus.rows_of(ids)
    return np.where(np.isin(rows, pool.candidates), rows, -1)


def _check_known(entries: Entries, role: str, ids: Sequence[str], unknown: Ints, pool: Pool) -> None:
    if len(unknown):
        shown = ", ".join(f"{ids[entry]!r} ({entries.locate(entry)})" for entry in unknown[:_MAX_SHOWN].tolist())
        raise InputError(
            f"{len(unknown):,} of {len(ids):,} entries name a {role} that {pool.artifact.name} does not have: {shown}",
            "Select the pool that the run ranks (--size, --field, --samples=1), or drop them with --allow-unknown",
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
        f"{entries.documents[later]!r} ({len(repeats):,} entries repeat another)",
        "Keep one entry for each query and document",
    )


def rank_entries(keys: Keys, scores: npt.NDArray[np.float32], depth: int) -> tuple[pa.Table, int]:
    """Return the ranking of the ``depth`` best entries of each query in the total order, and the number of others."""
    query, row = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    order = np.lexsort((row, scores))[::-1]
    order = order[np.argsort(query[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order]) + 1
    order, rank = order[rank <= depth], rank[rank <= depth]
    columns = [query[order], row[order], scores[order], rank.astype(np.uint16)]
    return pa.table(columns, schema=RANKING), len(keys) - len(order)
