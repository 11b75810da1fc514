"""TREC files of a pool and its rankings: topics, relevance judgements and runs.

trec_eval ignores the order and the ranks of a file: it sorts by score, as float32, then by document id, both
descending. Rows of a corpus are in the byte order of ids, so this is our total order if scores keep all float32 digits
and ids are unchanged. White space separates columns, so white space in ids is percent-encoded
(:func:`pipeline.core.text.escape`), and the second column of all lines says so. If that would reorder ties, the later
score is lowered by the smallest float32 step.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.order import without_rises
from pipeline.core.text import ENCODED, escape
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import column

_BLOCK = 1 << 18
"""Lines of a block."""


def run_lines(ranking: pa.Table, pool: Pool, tag: str) -> Iterator[bytes]:
    """Yield a ranking as blocks of lines ``query Q0 document rank score tag``, UTF-8.

    Args:
        ranking: schema :data:`pipeline.core.schema.RANKING`.
        pool: the pool it ranks.
        tag: name of the run; escaped like ids.

    Raises:
        InputError: an id or the tag is empty.
    """
    yield from _lines(_lower_ties(ranking, pool), pool, "Q0", ("rank", "score"), _escaped_id(tag, "run tag"))


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
        lines = (f"{_escaped_id(next(ids), 'query id')}\t{' '.join(text).strip()}\n" for text in block)
        yield "".join(lines).encode()


def write(path: Path, blocks: Iterable[bytes]) -> None:
    """Write blocks of bytes atomically, compressed if the name ends in ``.gz``; equal blocks give equal bytes."""
    with files.disk_errors(path), files.replacing(path) as temporary, _open(temporary, path.suffix) as sink:
        sink.writelines(blocks)


@contextmanager
def _open(path: Path, suffix: str) -> Iterator[BinaryIO]:
    with path.open("wb") as sink:
        if suffix != ".gz":
            yield sink
            return
        with gzip.GzipFile("", "wb", 6, sink, mtime=0) as packed:
            yield cast("BinaryIO", packed)


def _lower_ties(ranking: pa.Table, pool: Pool) -> pa.Table:
    """Return a ranking with lowered scores where escaped ids would reorder ties."""
    rows, index = np.unique(column(ranking, "row"), return_inverse=True)
    plain = pool.corpus.ids(rows)
    escaped = [escape(paper_id) for paper_id in plain]
    if escaped == plain:
        return ranking
    place = {text: number for number, text in enumerate(sorted(escaped))}
    keys = np.array([place[text] for text in escaped])[index]
    score = without_rises(column(ranking, "query"), column(ranking, "score"), keys)
    return ranking.set_column(ranking.schema.get_field_index("score"), "score", pa.array(score))


def _lines(table: pa.Table, pool: Pool, constant: str, values: Sequence[str], *last: str) -> Iterator[bytes]:
    """Yield blocks of lines, built by Arrow."""
    text = pa.large_string()
    plain_ids = pool.query_ids()
    query_ids = [_escaped_id(query_id, "query id") for query_id in plain_ids]
    ranked = pool.corpus.ids(np.unique(column(table, "row")))
    is_encoded = query_ids != plain_ids or any(escape(paper_id) != paper_id for paper_id in ranked)
    for start in range(0, table.num_rows, _BLOCK):
        block = table.slice(start, _BLOCK)
        rows, index = np.unique(column(block, "row"), return_inverse=True)
        paper_ids = [_escaped_id(paper_id, "paper id") for paper_id in pool.corpus.ids(rows)]
        lines = pc.binary_join_element_wise(
            pa.array(query_ids, text).take(block.column("query").combine_chunks()),
            pa.scalar(ENCODED if is_encoded else constant, text),
            pa.array(paper_ids, text).take(pa.array(index)),
            *(pc.cast(block.column(name).combine_chunks(), text) for name in values),
            *(pa.scalar(word, text) for word in last),
            pa.scalar(" ", text),
        )
        lines = pc.binary_join_element_wise(lines, pa.scalar("", text), pa.scalar("\n", text))
        _, offsets, characters = lines.buffers()
        yield bytes(characters.slice(0, int(np.frombuffer(offsets, np.int64)[len(lines)])))


def _escaped_id(text: str, name: str) -> str:
    """Return an escaped id; raise InputError if it is empty."""
    if not text:
        raise InputError(f"a {name} is empty, and a TREC file has no place for it", "Rename it")
    return escape(text)
