"""TREC files of a pool and its rankings: topics, relevance judgements and runs.

trec_eval ignores the order and the ranks of a file: it sorts by score, as float32, then by document id, both falling. A
corpus numbers its papers in the byte order of their ids, so this is our total order, provided that scores keep every
float32 digit and ids are written unchanged. White space separates the columns, so an id with white space is written in
percent-encoding (:func:`escape`). Where that would reorder ties, the later score is lowered by the least float32 step.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import column

_BLOCK = 1 << 18
"""Lines written at a time."""

_ESCAPED = re.compile(r"[\s%]")


def escape(text: str) -> str:
    """Return an id with white space and ``%`` in percent-encoding of their UTF-8 bytes: ``a b`` is ``a%20b``."""
    return _ESCAPED.sub(lambda match: quote(match[0]), text)


def unescape(text: str) -> str:
    """Return the id that :func:`escape` wrote; a ``%`` that starts no valid code stays."""
    return unquote(text, errors="replace") if "%" in text else text


def run_lines(ranking: pa.Table, pool: Pool, tag: str) -> Iterator[bytes]:
    """Yield a ranking as blocks of lines ``query Q0 document rank score tag``, UTF-8.

    Args:
        ranking: schema :data:`pipeline.core.schema.RANKING`.
        pool: the pool it ranks.
        tag: name of the run; escaped as ids are.

    Raises:
        InputError: an id or the tag is empty.
    """
    yield from _lines(_lowered(ranking, pool), pool, "Q0", ("rank", "score"), _checked(tag, "run tag"))


def qrels_lines(pool: Pool) -> Iterator[bytes]:
    """Yield the judgements of a pool as blocks of lines ``query 0 document grade``, UTF-8.

    Raises:
        InputError: an id is empty.
    """
    yield from _lines(pool.qrels, pool, "0", ("grade",))


def topic_lines(pool: Pool) -> Iterator[bytes]:
    """Yield the queries of a pool as blocks of lines ``query<TAB>text``, UTF-8; the text is title and abstract."""
    ids = iter(pool.query_ids())
    for block in pool.query_texts():
        lines = (f"{_checked(next(ids), 'query id')}\t{' '.join(text).strip()}\n" for text in block)
        yield "".join(lines).encode()


def write(path: Path, blocks: Iterable[bytes]) -> None:
    """Write blocks of bytes atomically, compressed where the name ends in ``.gz``; equal blocks give equal bytes."""
    with files.disk_errors(path), files.replacing(path) as temporary, _opened(temporary, path.suffix) as sink:
        sink.writelines(blocks)


@contextmanager
def _opened(path: Path, suffix: str) -> Iterator[BinaryIO]:
    with path.open("wb") as sink:
        if suffix != ".gz":
            yield sink
            return
        with gzip.GzipFile("", "wb", 6, sink, mtime=0) as packed:
            yield cast("BinaryIO", packed)


def _lowered(ranking: pa.Table, pool: Pool) -> pa.Table:
    """Return a ranking whose ties stay in order under the ids as they are written."""
    rows, place = np.unique(column(ranking, "row"), return_inverse=True)
    plain = pool.corpus.ids(rows)
    written = [escape(paper_id) for paper_id in plain]
    if written == plain:
        return ranking
    ids = [written[number] for number in place.tolist()]
    query, score = column(ranking, "query"), column(ranking, "score").copy()
    for i in range(1, len(ids)):
        last = score[i - 1]
        if query[i] == query[i - 1] and (score[i] > last or (score[i] == last and ids[i] > ids[i - 1])):
            score[i] = np.nextafter(last, np.float32(-np.inf))
    return ranking.set_column(ranking.schema.get_field_index("score"), "score", pa.array(score))


def _lines(table: pa.Table, pool: Pool, second: str, values: Sequence[str], *last: str) -> Iterator[bytes]:
    """Yield blocks of lines, without a Python object for each line."""
    text = pa.large_string()
    query_ids = [_checked(query_id, "query id") for query_id in pool.query_ids()]
    for start in range(0, table.num_rows, _BLOCK):
        part = table.slice(start, _BLOCK)
        rows, place = np.unique(column(part, "row"), return_inverse=True)
        paper_ids = [_checked(paper_id, "paper id") for paper_id in pool.corpus.ids(rows)]
        lines = pc.binary_join_element_wise(
            pa.array(query_ids, text).take(part.column("query").combine_chunks()),
            pa.scalar(second, text),
            pa.array(paper_ids, text).take(pa.array(place)),
            *(pc.cast(part.column(name).combine_chunks(), text) for name in values),
            *(pa.scalar(word, text) for word in last),
            pa.scalar(" ", text),
        )
        lines = pc.binary_join_element_wise(lines, pa.scalar("", text), pa.scalar("\n", text))
        _, offsets, characters = lines.buffers()
        yield bytes(characters.slice(0, int(np.frombuffer(offsets, np.int64)[len(lines)])))


def _checked(text: str, what: str) -> str:
    """Return an id as it is written."""
    if not text:
        raise InputError(f"a {what} is empty, and a TREC file has no place for it", "Rename it")
    return escape(text)
