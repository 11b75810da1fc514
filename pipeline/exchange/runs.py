"""Runs that other tools made, read against a pool: TREC, JSON, ranx and Parquet, plain or gzip.

Nothing is dropped in silence. What cannot be right (a malformed line, a score that is not a finite number, a document
twice in a query) is refused with its place. An unknown query or document is refused too, or left out and counted where
the user allows it. Ranks in the file do not count: as in trec_eval, scores as float32 decide, then document ids.
"""

from __future__ import annotations

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

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.order import tied_share
from pipeline.core.schema import RANKING
from pipeline.core.text import number as decimal
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import pairs, query_of
from pipeline.measure.trec import unescape
from pipeline.sources.records import read_blocks, read_lines

MEMORY = 2**31
"""Bytes that reading a run takes, about, where the caller does not say."""

_TIMES = {"trec": 8, "json": 20, "lz4": 20}
"""Memory that a run takes, as a multiple of its text: at most, about. JSON is read as tuples first."""

_ROW_BYTES = 128
"""Memory that a row of a Parquet file takes, about."""

_SHOWN = 3
"""Unknown ids that a message shows."""

COLUMNS = {
    "query": ("query_id", "q_id", "qid", "query-id", "query"),
    "document": ("doc_id", "docno", "docid", "corpus-id", "paper_id", "document"),
    "score": ("score",),
}
"""Names that the columns of a Parquet file may have."""


@dataclass(frozen=True)
class Entries:
    """The entries of a run file, in its order.

    Attributes:
        path: the file.
        queries: query id of each entry.
        documents: document id of each entry.
        scores: float32 ``[n]``, finite.
        place: where an entry is, such as ``my.run:7``.
        escaped: whether ids are in the percent-encoding of TREC files.
    """

    path: Path
    queries: Sequence[str]
    documents: Sequence[str]
    scores: npt.NDArray[np.float32]
    place: Callable[[int], str]
    escaped: bool = False


def read_run(
    path: Path, pool: Pool, depth: int, *, allow_unknown: bool = False, memory: int = MEMORY
) -> tuple[pa.Table, dict[str, int]]:
    """Read a run of a pool. Its entries may be in any order.

    Entries that the pool excludes (the query itself, papers with its title) are left out before ranks are counted.

    The ending of the file says its format: ``.json``, ``.lz4``, ``.parquet``, otherwise TREC. ``allow_unknown`` leaves
    out entries of queries and documents that the pool does not have. A run that needs more than ``memory`` bytes is
    refused.

    Returns:
        The ranking, schema :data:`pipeline.core.schema.RANKING`, and counts: entries ``read``, ``unknown_queries`` and
        ``unknown_documents`` (entries left out), ``excluded``, ``beyond_depth`` and ``tied``;
        read == entries + unknown + excluded + beyond_depth.

    Raises:
        InputError: the file cannot be read, or an entry is refused; the message says where.
    """
    entries = read_entries(path, memory)
    query, row = _positions(entries, pool), _rows(entries, pool)
    unknown_query, unknown_document = np.flatnonzero(query < 0), np.flatnonzero((query >= 0) & (row < 0))
    if not allow_unknown:
        _check_known(entries, "query", entries.queries, unknown_query, pool)
        _check_known(entries, "document", entries.documents, unknown_document, pool)
    counts = {"read": len(row), "unknown_queries": len(unknown_query), "unknown_documents": len(unknown_document)}
    known = np.flatnonzero((query >= 0) & (row >= 0))
    packed = pairs(query[known], row[known])
    check_distinct(entries, known, packed)
    offsets, excluded = pool.exclusions
    kept = ~np.isin(packed, pairs(query_of(offsets), excluded))
    counts["excluded"] = int(np.count_nonzero(~kept))
    ranking, counts["beyond_depth"] = ranked(packed[kept], entries.scores[known][kept], depth)
    share = tied_share(ranking.column("query").to_numpy(), ranking.column("score").to_numpy())
    return ranking, counts | {"tied": round(share * ranking.num_rows)}


def read_entries(path: Path, memory: int = MEMORY) -> Entries:
    """Return the entries of a run file, whatever pool they are of.

    Raises:
        InputError: it cannot be read, has no entry, or a score that is not a finite float32 number.
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
            "Give a TREC run, or a .json, .lz4 (ranx) or .parquet file that ends so; .gz may follow",
        ) from error
    if not len(entries.scores):
        raise InputError(f"the run {path} must have an entry, got none", "Write the run again")
    return _finite(entries)


def entries_of(run: Mapping[str, Mapping[str, float]]) -> Entries:
    """Return the entries of scores by query and document.

    Raises:
        InputError: an id is no text, or a score no number.
    """
    return _finite(_nested(Path("run"), _as_object({query: dict(ranked) for query, ranked in run.items()})))


def _finite(entries: Entries) -> Entries:
    bad = np.flatnonzero(~np.isfinite(entries.scores))
    if len(bad):
        raise InputError(
            f"{entries.place(int(bad[0]))}: a score must be a finite float32 number ({len(bad):,} are not)",
            "Remove the entry, or give it a finite score",
        )
    return entries


def _trec(path: Path, memory: int) -> Entries:
    queries, documents, scores, numbers = list[str](), list[str](), array("d"), array("q")
    spelled: dict[str, str] = {}  # each id once, however often it occurs
    size = 0
    for number, line in read_lines(path):
        size += len(line or b"")
        _check_size(path, size * _TIMES["trec"], memory)
        try:
            query, _, document, _, score, _ = (line or b"").decode().split()
            scores.append(decimal(score))
        except ValueError as error:
            raise InputError(
                f"{path}:{number} must be 'query Q0 document rank score tag' in UTF-8, got {(line or b'')[:80]!r}",
                "Write six columns with white space between them; %20 stands for a space in an id",
            ) from error
        queries.append(spelled.setdefault(query, query))
        documents.append(spelled.setdefault(document, document))
        numbers.append(number)
    return Entries(path, queries, documents, _float32(scores), lambda entry: f"{path}:{numbers[entry]}", escaped=True)


class _Object(list[tuple[str, Any]]):
    """A JSON object with its repetitions."""


def _json(path: Path, memory: int) -> Entries:
    data = bytearray()
    for block in read_blocks(path):
        data += block
        _check_size(path, len(data) * _TIMES["json"], memory)
    return _nested(path, json.loads(data, object_pairs_hook=_Object))


def _ranx(path: Path, memory: int) -> Entries:
    """Return the entries of a file of ranx: CBOR, compressed twice."""
    import cbor2
    import lz4.frame  # type: ignore[import-untyped]

    with lz4.frame.open(path) as inner, lz4.frame.open(inner) as outer:
        data = outer.read(memory // _TIMES["lz4"] + 1)
    _check_size(path, len(data) * _TIMES["lz4"], memory)
    return _nested(path, _as_object(cbor2.loads(data)))


def _check_size(path: Path, needed: int, memory: int) -> None:
    if needed > memory:
        raise InputError(
            f"the run {path} needs more than {memory / 2**20:,.0f} MiB of memory",
            "Give the command more with --memory, or divide the run by queries",
        )


def _as_object(value: Any) -> Any:
    return _Object((name, _as_object(member)) for name, member in value.items()) if isinstance(value, dict) else value


def _nested(path: Path, run: Any) -> Entries:
    """Return the entries of ``{query: {document: score}}``."""
    queries, documents, scores = list[str](), list[str](), array("d")
    for query, ranked in _members(path, run, "the run"):
        for document, score in _members(path, ranked, f"query {query!r}"):
            if not isinstance(score, int | float) or isinstance(score, bool):
                raise _shape_error(f"{path}: the score of query {query!r}, document {document!r}", "a number", score)
            queries.append(query)
            documents.append(document)
            scores.append(float(score))

    for text in {*queries, *documents}:
        text.encode()  # fails on lone surrogates

    def place(entry: int) -> str:
        return f"{path}: query {queries[entry]!r}, document {documents[entry]!r}"

    return Entries(path, queries, documents, _float32(scores), place)


def _members(path: Path, value: Any, what: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, _Object) or not all(isinstance(name, str) for name, _ in value):
        raise _shape_error(f"{path}: {what}", "an object, as in {query: {document: score}}", value)
    yield from value


def _shape_error(what: str, expected: str, got: Any) -> InputError:
    return InputError(f"{what} must be {expected}, got {got!r:.60}", "Write the run again")


def _parquet(path: Path, memory: int) -> Entries:
    if path.suffix == ".gz":
        raise InputError(f"{path} must be Parquet without gzip around it", "Unpack it: Parquet is compressed inside")
    _check_size(path, pq.read_metadata(path).num_rows * _ROW_BYTES, memory)
    names = pq.read_schema(path).names
    columns = []
    for what, spellings in COLUMNS.items():
        named = [name for name in names if name.lower() in spellings]
        if len(named) != 1:
            raise InputError(
                f"{path} must have one column for the {what}, got {', '.join(names)}",
                f"Name it {spellings[0]}" + (f", one of {', '.join(spellings)}" if len(spellings) > 1 else ""),
            )
        columns += named
    table = pq.read_table(path, columns=columns).select(columns)
    for column in table.columns[:2]:
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            raise InputError(f"{path}: ids must be strings or integers, got {column.type}", "Write them as strings")

    def place(entry: int) -> str:
        return f"{path} row {entry + 1}"

    for column in table.columns:
        if column.null_count:
            entry = column.is_null().to_pylist().index(True)
            raise InputError(f"{place(entry)}: an entry must be complete, got a missing value", "Remove it or fill it")
    queries, documents = (column.cast(pa.large_string()).to_pylist() for column in table.columns[:2])
    return Entries(path, queries, documents, _float32(table.column(2).cast(pa.float64()).to_numpy()), place)


def _float32(scores: Iterable[float]) -> npt.NDArray[np.float32]:
    """Return scores as float32 without negative zero; one that is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(scores, np.float64).astype(np.float32) + np.float32(0)


def _positions(entries: Entries, pool: Pool) -> npt.NDArray[np.int64]:
    """Return the position of each entry's query in the pool; -1 where it is unknown."""
    place = {query_id: position for position, query_id in enumerate(pool.query_ids())}
    plain = unescape if entries.escaped else str
    positions = {text: place.get(plain(text), place.get(text, -1)) for text in dict.fromkeys(entries.queries)}
    return np.fromiter(map(positions.__getitem__, entries.queries), np.int64, len(entries.queries))


def _rows(entries: Entries, pool: Pool) -> npt.NDArray[np.int64]:
    """Return the row of each entry's document; -1 where it is not a candidate."""
    ids = list(dict.fromkeys(entries.documents))
    rows = _candidates(ids, pool)
    if entries.escaped and any("%" in text for text in ids):
        plain = _candidates(list(map(unescape, ids)), pool)
        rows = np.where(plain < 0, rows, plain)
    row_of = dict(zip(ids, rows.tolist(), strict=True))
    return np.fromiter(map(row_of.__getitem__, entries.documents), np.int64, len(entries.documents))


def _candidates(ids: Sequence[str], pool: Pool) -> npt.NDArray[np.int64]:
    rows = pool.corpus.rows_of(ids)
    return np.where(np.isin(rows, pool.candidates), rows, -1)


def _check_known(entries: Entries, what: str, ids: Sequence[str], unknown: npt.NDArray[np.int64], pool: Pool) -> None:
    if len(unknown):
        shown = ", ".join(f"{ids[entry]!r} ({entries.place(entry)})" for entry in unknown[:_SHOWN].tolist())
        raise InputError(
            f"{len(unknown):,} of {len(ids):,} entries name a {what} that {pool.artifact.name} does not have: {shown}",
            "Select the pool that the run ranks (--size, --field, --samples=1), or leave them out with --allow-unknown",
        )


def check_distinct(entries: Entries, known: npt.NDArray[np.int64], packed: npt.NDArray[np.uint64]) -> None:
    """Check that no document comes twice in a query; ``packed`` are the pairs of the entries ``known``."""
    _, first = np.unique(packed, return_index=True)
    if len(first) == len(packed):
        return
    again = np.setdiff1d(np.arange(len(packed)), first)
    other = int(known[again[0]])
    earlier = int(known[np.argmax(packed == packed[again[0]])])
    raise InputError(
        f"{entries.place(other)} repeats {entries.place(earlier)}: query {entries.queries[other]!r}, document "
        f"{entries.documents[other]!r} ({len(again):,} entries repeat another)",
        "Keep one entry of each query and document",
    )


def ranked(packed: npt.NDArray[np.uint64], scores: npt.NDArray[np.float32], depth: int) -> tuple[pa.Table, int]:
    """Return the ``depth`` best of each query in the total order, and how many entries are beyond."""
    query, row = (packed >> np.uint64(32)).astype(np.uint32), packed.astype(np.uint32)
    order = np.lexsort((row, scores))[::-1]
    order = order[np.argsort(query[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order]) + 1
    order, rank = order[rank <= depth], rank[rank <= depth]
    columns = [query[order], row[order], scores[order], rank.astype(np.uint16)]
    return pa.table(columns, schema=RANKING), len(packed) - len(order)
