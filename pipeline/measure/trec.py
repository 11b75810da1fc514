"""TREC run and qrels files, with the paper ids of the corpus.

trec_eval ignores the order and the ranks of a file: it sorts by score, as float32, then by document id, both falling. A
corpus numbers its papers in the byte order of their ids, so this is our total order, provided that scores keep every
float32 digit and ids are written unchanged. An id with white space would break the columns, and an escaped one would
sort elsewhere: such ids are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.schema import RANKING
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import column, pairs, query_of

_BLOCK = 1 << 18
"""Lines written at a time."""

_MAX_RANK = 2**16 - 1


def run_lines(ranking: pa.Table, pool: Pool, tag: str) -> Iterator[bytes]:
    """Yield a ranking as blocks of lines ``query Q0 document rank score tag``, UTF-8.

    Args:
        ranking: schema :data:`pipeline.core.schema.RANKING`.
        pool: the pool it ranks.
        tag: name of the run, without white space.

    Raises:
        InputError: an id or the tag is empty or has white space.
    """
    _require_no_white_space([tag], "run tag")
    yield from _lines(ranking, pool, "Q0", ("rank", "score"), tag)


def qrels_lines(pool: Pool) -> Iterator[bytes]:
    """Yield the judgements of a pool as blocks of lines ``query 0 document grade``, UTF-8.

    Raises:
        InputError: an id is empty or has white space.
    """
    yield from _lines(pool.qrels, pool, "0", ("grade",))


def write(path: Path, blocks: Iterator[bytes]) -> None:
    """Write what :func:`run_lines` or :func:`qrels_lines` yields, atomically."""
    with files.disk_errors(path), files.replacing(path) as temporary, temporary.open("wb") as sink:
        sink.writelines(blocks)


def read_run(path: Path, pool: Pool) -> tuple[pa.Table, int]:
    """Read a run of a pool whose lines may be in any order.

    As trec_eval does, scores are rounded to float32 and entries sorted in the one total order. Entries that the pool
    excludes (the query itself, papers with its title) are removed before ranks are counted (protocol 2).

    Returns:
        The ranking, schema :data:`pipeline.core.schema.RANKING`, and the number of entries removed.

    Raises:
        InputError: the file cannot be read; a line does not have six columns and a finite score, names a query or paper
            that is not of the pool, or repeats a paper of its query.
    """
    queries, documents, scores = _read(path, {query_id: place for place, query_id in enumerate(pool.query_ids())})
    packed = pairs(queries, _candidate_rows(path, documents, pool))
    _, first = np.unique(packed, return_index=True)
    if len(first) < len(packed):
        repeated = int(np.setdiff1d(np.arange(len(packed)), first)[0])
        raise InputError(f"{path} line {repeated + 1} repeats a query and document", "Keep one of them")
    offsets, excluded = pool.exclusions
    kept = ~np.isin(packed, pairs(query_of(offsets), excluded))
    packed, scores = packed[kept], scores[kept]
    query, row = (packed >> np.uint64(32)).astype(np.uint32), packed.astype(np.uint32)
    order = np.lexsort((row, scores))[::-1]
    order = order[np.argsort(query[order], kind="stable")]
    query, row, scores = query[order], row[order], scores[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
    if rank.max(initial=0) > _MAX_RANK:
        raise InputError(f"{path} ranks {rank.max():,} papers for one query", f"Cut it at {_MAX_RANK:,} or fewer")
    return pa.table([query, row, scores, rank.astype(np.uint16)], schema=RANKING), int(np.count_nonzero(~kept))


def _lines(table: pa.Table, pool: Pool, second: str, values: Sequence[str], *last: str) -> Iterator[bytes]:
    """Yield blocks of lines, without a Python object for each line."""
    text = pa.large_string()
    query_ids = pool.query_ids()
    _require_no_white_space(query_ids, "query id")
    for start in range(0, table.num_rows, _BLOCK):
        part = table.slice(start, _BLOCK)
        rows, place = np.unique(column(part, "row"), return_inverse=True)
        paper_ids = pool.corpus.ids(rows)
        _require_no_white_space(paper_ids, "paper id")
        lines = pc.binary_join_element_wise(
            pa.array(query_ids, text).take(part.column("query").combine_chunks()),
            pa.scalar(second, text),
            pa.array(paper_ids, text).take(pa.array(place)),
            *(pc.cast(part.column(name).combine_chunks(), text) for name in values),
            *(pa.scalar(each, text) for each in last),
            pa.scalar(" ", text),
        )
        lines = pc.binary_join_element_wise(lines, pa.scalar("", text), pa.scalar("\n", text))
        _, offsets, characters = lines.buffers()
        yield bytes(characters.slice(0, int(np.frombuffer(offsets, np.int64)[len(lines)])))


def _require_no_white_space(ids: Sequence[str], what: str) -> None:
    for each in ids:
        if each.split() != [each]:
            raise InputError(
                f"the {what} {each!r} is empty or has white space, which separates the columns of a TREC file",
                "Rename it; an escaped id would change the order of ties",
            )


def _read(path: Path, place_of: dict[str, int]) -> tuple[npt.NDArray[np.int64], list[str], npt.NDArray[np.float32]]:
    """Return query, document and score of each line."""
    queries, documents, scores = [], [], []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                parts = line.split()
                if len(parts) != 6:
                    raise InputError(f"{path} line {number} has {len(parts)} columns, not 6", f"It reads {line!r}")
                query, _, document, _, score, _ = parts
                if query not in place_of:
                    raise InputError(f"{path} line {number} names query {query!r}, which the pool does not have")
                queries.append(place_of[query])
                documents.append(document)
                scores.append(_score(score, path, number))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})", "Give a TREC file in UTF-8") from error
    return np.array(queries, np.int64), documents, np.array(scores, np.float32)


def _score(text: str, path: Path, line: int) -> np.float32:
    try:
        with np.errstate(over="ignore"):
            score = np.float32(text)
    except ValueError:
        raise InputError(f"{path} line {line} has {text!r} where a number belongs") from None
    if not np.isfinite(score):
        raise InputError(f"{path} line {line} has no finite score", f"It has {text!r}")
    return score


def _candidate_rows(path: Path, documents: list[str], pool: Pool) -> npt.NDArray[np.int64]:
    ids = list(dict.fromkeys(documents))
    rows = pool.corpus.rows_of(ids)
    unknown = np.flatnonzero(~np.isin(rows, pool.candidates))
    if len(unknown):
        named = ", ".join(repr(ids[i]) for i in unknown[:3])
        raise InputError(
            f"{path} names {len(unknown):,} papers that are not candidates of the pool, such as {named}",
            "Rank the candidates of this pool",
        )
    row_of = dict(zip(ids, rows.tolist(), strict=True))
    return np.array([row_of[document] for document in documents], np.int64)
