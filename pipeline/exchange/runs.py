"""Read runs of other tools: their entries, names, rankings of a pool, and the qrels that judge them.

A malformed line, a score that is not a finite number, or an id of another type is an error with its location. So is an
unknown query or document, unless the user allows it; then it is dropped and counted. Ranks in the file are ignored: as
in trec_eval 10, scores as float64 decide, then document ids.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Ints, Keys, pack
from pipeline.core.errors import InputError
from pipeline.core.order import tied_share, without_rises
from pipeline.core.progress import say
from pipeline.core.schema import RANKING
from pipeline.core.text import ENCODED
from pipeline.core.text import number as decimal
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import query_of
from pipeline.sources.triples import Form, read_triples

MEMORY = 2**31
"""Default of the approximate memory for reading a run, in bytes."""

_ENDINGS = (
    *("run", "trec", "txt", "tsv", "csv", "json", "jsonl", "ndjson", "parquet", "parq"),
    *("qrels", "qrel", "res", "results", "out", "gz"),
)
"""Endings of file names that are no part of a name."""

_COMMON = {"run", "qrels", "test", "dev", "train", "trec"}
"""Words of file names that name no collection."""

_MAX_SHOWN = 3
"""Maximum number of unknown ids in a message."""


def _of_words(words: Sequence[str], width: int) -> tuple[str, str, str, bool]:
    if width == 3:
        query, document, score = words
        return query, document, score, False
    query, mark, document, _, score, _ = words
    return query, document, score, mark == ENCODED


RUN = Form(
    "run",
    {"score": ("score",), "rank": ("rank",)},
    _of_words,
    decimal,
    (
        "must be 'query Q0 document rank score tag' or 'query document score'",
        "Write these columns with white space between them, or a header that names them",
    ),
    "Give a TREC run, or a file that ends in .json, .jsonl or .parquet; .gz may follow",
)


@dataclass(frozen=True)
class Entries:
    """The entries of a run, in its order.

    Attributes:
        queries: query id of each entry.
        documents: document id of each entry.
        scores: float64 ``[n]``, finite as float32.
        locate: returns the location of an entry, such as ``my.run:7``.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    scores: npt.NDArray[np.float64]
    locate: Callable[[int], str]


def name_of(path: Path) -> str:
    """Return the name of a file without known endings: ``input.uic0301`` of ``input.uic0301.gz``."""
    name = path.name
    while (parts := name.rpartition("."))[0] and parts[2].lower() in _ENDINGS:
        name = parts[0]
    return name


def labelled_file(text: str | Path) -> tuple[str, Path]:
    """Return label and path of ``FILE`` or ``LABEL=FILE``; without a label, the name of the file (:func:`name_of`)."""
    path = Path(text)
    if isinstance(text, Path) or path.exists():
        return name_of(path), path
    label, equals, file = text.partition("=")
    return (label, Path(file)) if label and equals else (name_of(path), path)


def read_entries(run: Any, memory: int = MEMORY) -> Entries:
    """Return the entries of a run, of any pool (:func:`pipeline.sources.triples.read_triples`).

    Raises:
        InputError: it cannot be read, has no entry, or has a score that is not a finite float32 number.
    """
    triples = read_triples(run, RUN, memory)
    ids, queries, documents = dict[str, str](), list[str](), list[str]()
    scores, numbers = array("d"), array("q")
    for number, query, document, score in triples.rows:
        numbers.append(number)
        queries.append(ids.setdefault(query, query))  # one string object for each distinct id
        documents.append(ids.setdefault(document, document))
        if isinstance(score, bool) or not isinstance(score, Real):
            what = f"{triples.locate(number, query, document)}: the score must be a number, got {score!r:.60}"
            raise InputError(what, "Write the run again")
        scores.append(_float(score))
    if not scores:
        what = f"the run{f' {run}' if isinstance(run, Path) else ''} must have an entry, got none"
        raise InputError(what, "Write the run again")

    def locate(entry: int) -> str:
        return triples.locate(numbers[entry], queries[entry], documents[entry])

    values = np.asarray(scores, np.float64) + 0.0  # no negative zero
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
    if len(bad):
        raise InputError(
            f"{locate(int(bad[0]))}: a score must be a finite float32 number (bad scores: {len(bad):,})",
            "Remove the entry, or give it a finite score",
        )
    return Entries(queries, documents, _by_rank(run, queries, values) if triples.may_be_ranks else values, locate)


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _by_rank(run: Path, queries: Sequence[str], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers as scores, negative, as rank 1 is best, if those of each query are 1, 2, 3 and so on.

    Raises:
        InputError: they are 1 to n of each query in mixed order, which may be ranks or scores.
    """
    numbers_of: dict[str, list[float]] = {}
    for query, number in zip(queries, values.tolist(), strict=True):
        numbers_of.setdefault(query, []).append(number)
    lists = list(numbers_of.values())
    if not all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in lists):
        return values
    if all(numbers == sorted(numbers) for numbers in lists):
        say(f"{run}: the numbers of each query are 1, 2, 3 and so on, and were read as ranks")
        return -values
    if all(numbers == sorted(numbers, reverse=True) for numbers in lists):
        return values
    raise InputError(
        f"{run} must tell ranks from scores, but each query has the numbers 1 to n in mixed order",
        "Write the six columns of TREC, or sort each query by rank",
    )


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


class Run(NamedTuple):
    """A run to score.

    Attributes:
        system: its name.
        path: its file.
        entries: the file, or scores by query and document.
        queries: ids of its queries.
    """

    system: str
    path: Path
    entries: Any
    queries: Collection[str]


class Judged(NamedTuple):
    """A run with its qrels, and the name of their collection."""

    run: Run
    qrels: Path
    collection: str


def judged(run: Run, judgements: Mapping[Path, Collection[str]]) -> Judged:
    """Return a run with qrels that have at least half as many of its queries as any.

    Of these, the ones count that lie in its folder, then those that are alike by name, then the nearest ones. The
    collection is called like the qrels, or like their folder if they have a usual name.
    """
    shared = {qrels: sum(query in run.queries for query in of_file) for qrels, of_file in judgements.items()}
    most = max(shared.values(), default=0)

    def fit(qrels: Path) -> tuple[bool, bool, int, int, int]:
        folders = sum(a == b for a, b in zip(run.path.parent.parts, qrels.parent.parts, strict=False))
        words = (_words(run.path) | {run.path.parent.name}) & (_words(qrels) | {qrels.parent.name})
        return 2 * shared[qrels] >= most, run.path.parent == qrels.parent, len(words), folders, shared[qrels]

    best = max(shared, key=fit, default=None)
    if best is None or not shared[best]:
        raise InputError("it is a run, and no qrels next to it share a query", "Give --qrels=FILE")
    system = _without(run.system, best, len(judgements))
    return Judged(run._replace(system=system), best, _collection(best, judgements))


def _collection(qrels: Path, every: Collection[Path]) -> str:
    """Return the name of a collection: that of its qrels, or of their folder; the whole path if others have it too."""

    def name(path: Path) -> str:
        return name_of(path) if _words(path) else path.parent.name or name_of(path)

    found = name(qrels)
    return found if sum(name(path) == found for path in every) < 2 else str(qrels)


def _words(path: Path) -> set[str]:
    return {word for word in re.split(r"[._\s]+", name_of(path)) if word} - _COMMON


def _without(system: str, qrels: Path, collections: int) -> str:
    """Return the name of a run without the words that name its collection, if there are several collections."""
    if collections < 2:
        return system
    named = _words(qrels) | {qrels.parent.name}
    words = [word for word in re.split(r"([._]+)", system) if word not in named | _COMMON]
    return "".join(words).strip("._") or system
