"""Building the Lucene index of a pool.

Texts go over to Java in batches and are analysed and indexed there while Python's lock is free, in as many threads as
are asked for; they are written nowhere else. Documents lie in one segment in the end, sorted by falling row: see
:mod:`pipeline.retrieve.lucene_index` for what that is good for.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError, StageError
from pipeline.core.order import Rows
from pipeline.core.schema import CANDIDATES
from pipeline.corpus.reader import Text
from pipeline.retrieve.java import anserini_version, java_errors
from pipeline.retrieve.lucene_classes import ANALYZER, Handout, Lucene, joined, safely

DESCRIPTION = "description.json"
ROWS = "rows.arrow"
FORMAT = 1

_BATCH = 512


class _Batch(NamedTuple):
    rows: list[int]
    texts: list[Text]


def build_index(texts: Iterable[list[Text]], rows: Rows, folder: Path, threads: int, memory: int) -> dict[str, int]:
    """Build an index in an empty folder.

    Args:
        texts: title and abstract of each candidate, in the order of ``rows``.
        rows: uint32 ``[n]``, rising.
        folder: where to.
        threads: threads that analyse and index.
        memory: bytes; Java's heap may take half of them.

    Returns:
        Counts: ``documents``, and of them ``blank``, which hold no text and no query can find.

    Raises:
        InputError: Java or Pyserini is missing or unfit, or there are not as many texts as rows.
        StageError: the disk is full, Java has too little memory, or Lucene failed.
    """
    lucene = Lucene(memory)
    with java_errors(folder):
        writer = lucene.writer(folder, max(memory // 8, 16 << 20))
        work = functools.partial(_index_all, lucene, writer)
        try:
            blank = sum(lucene.in_threads(threads, work, Handout(_batches(texts, rows))))
            writer.forceMerge(1)
            writer.commit()
            documents = int(writer.getDocStats().numDocs)
        except BaseException:
            writer.rollback()
            raise
        writer.close()
    if documents != len(rows):
        raise StageError(f"Lucene holds {documents:,} documents in {folder}, not {len(rows):,}")
    (folder / "write.lock").unlink(missing_ok=True)
    files.write_arrow(folder / ROWS, [pa.record_batch([rows], schema=CANDIDATES)], CANDIDATES)
    files.write_text(folder / DESCRIPTION, json.dumps(describe(lucene, rows), indent=1) + "\n")
    return {"documents": documents, "blank": blank}


def describe(lucene: Lucene, rows: Rows) -> dict[str, Any]:
    """Return what an index of these rows, built now, says of itself."""
    return {
        "format": FORMAT,
        "documents": len(rows),
        "rows_sha256": hashlib.sha256(rows.tobytes()).hexdigest(),
        "analyzer": ANALYZER,
        "lucene": lucene.version,
        "anserini": anserini_version(),
    }


def _batches(texts: Iterable[list[Text]], rows: Rows) -> Iterator[_Batch]:
    done = 0
    for block in texts:
        for start in range(0, len(block), _BATCH):
            part = block[start : start + _BATCH]
            yield _Batch(rows[done : done + len(part)].tolist(), part)
            done += len(part)
    if done != len(rows):
        raise InputError(f"there are {done:,} texts for {len(rows):,} rows", "Give one text a row")


def _index_all(lucene: Lucene, writer: Any, batches: Handout[_Batch]) -> int:
    """Index batches until there are no more; return how many documents were blank.

    Documents and fields are made once a thread: filling one takes four calls into Java.
    """
    made = [lucene.document() for _ in range(_BATCH)]
    documents = lucene.ArrayList()
    for document, _ in made:
        documents.add(document)
    blank = 0
    for batch in batches:
        filled = 0
        for (_, (stored_id, sorted_id, number, contents)), row, text in zip(
            made, batch.rows, batch.texts, strict=False
        ):
            whole = joined(text)
            stored_id.setStringValue(str(row))
            sorted_id.setBytesValue(str(row).encode())
            number.setLongValue(row)
            safely(contents.setStringValue, whole)
            blank += not whole
            filled += 1
        writer.addDocuments(documents if filled == _BATCH else documents.subList(0, filled))
    return blank
