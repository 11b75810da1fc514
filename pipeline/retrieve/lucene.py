"""BM25 by Lucene, engine and oracle: building the index of a pool, and searching it.

Documents are analysed by Anserini's default English analyzer and indexed as Anserini does (frequencies and one-byte
lengths, no positions), with ``id`` and ``contents`` as Anserini names them, so Pyserini opens the index as well.

They lie in one segment, sorted by falling row. So a document's number tells its row, and Lucene's own order (score
falling, then number rising) is the one total order of :mod:`pipeline.core.order`: a cut at any depth follows it,
however many documents tie there. Scores are Lucene's float32, unrounded.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.order import Rows, Scores
from pipeline.core.schema import CANDIDATES
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Exclusions, Ranking, check_depth
from pipeline.retrieve.bm25.formula import check_parameters
from pipeline.retrieve.java import anserini_version, java_errors
from pipeline.retrieve.lucene_java import ANALYZER, Lucene, WorkQueue

_DESCRIPTION, _ROWS, _FORMAT = "description.json", "rows.arrow", 1
_BATCH = 512

_T = TypeVar("_T")


def build_index(texts: Iterable[list[Text]], rows: Rows, folder: Path, threads: int, memory: int) -> dict[str, int]:
    """Build an index in an empty folder.

    ``texts`` are in the order of ``rows``, which rise. Java's heap may take half of ``memory`` bytes.

    Returns:
        Counts: ``documents``, and of them ``blank``, which have no text and which no query can find.

    Raises:
        InputError: Java or Pyserini is missing or unfit, or there are not as many texts as rows.
        StageError: the disk is full, Java has too little memory, or Lucene failed.
    """
    lucene = Lucene(memory)
    with java_errors(folder):
        writer = lucene.writer(folder, max(memory // 8, 16 << 20))
        try:
            work = functools.partial(_index_batches, lucene, writer)
            blank = sum(lucene.in_threads(threads, work, _batches(texts, rows)))
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
    files.write_arrow(folder / _ROWS, [pa.record_batch([rows], schema=CANDIDATES)], CANDIDATES)
    files.write_text(folder / _DESCRIPTION, json.dumps(_describe(lucene, rows), indent=1) + "\n")
    return {"documents": documents, "blank": blank}


def _batches(texts: Iterable[list[Text]], rows: Rows) -> Iterator[tuple[list[int], list[Text]]]:
    done = 0
    for block in texts:
        for start in range(0, len(block), _BATCH):
            part = block[start : start + _BATCH]
            yield rows[done : done + len(part)].tolist(), part
            done += len(part)
    if done != len(rows):
        raise InputError(f"there are {done:,} texts for {len(rows):,} rows", "Give one text a row")


def _index_batches(lucene: Lucene, writer: Any, batches: WorkQueue[tuple[list[int], list[Text]]]) -> int:
    """Index batches until there are no more; return how many documents were blank.

    Documents and fields are made once a thread, since filling one takes four calls into Java.
    """
    fillable = [lucene.document() for _ in range(_BATCH)]
    documents = lucene.java("java.util.ArrayList")()
    for document, _ in fillable:
        documents.add(document)
    blank = 0
    for rows, texts in batches:
        for (_, (stored_id, sorted_id, number, contents)), row, text in zip(fillable, rows, texts, strict=False):
            whole = joined(text)
            stored_id.setStringValue(str(row))
            sorted_id.setBytesValue(str(row).encode())
            number.setLongValue(row)
            safely(contents.setStringValue, whole)
            blank += not whole
        writer.addDocuments(documents if len(texts) == _BATCH else documents.subList(0, len(texts)))
    return blank


def joined(text: Text) -> str:
    """Return title, then abstract, the text of a document as of a query."""
    return f"{text.title} {text.abstract}".strip()


def safely(call: Callable[[str], _T], text: str) -> _T:
    """Pass a text to Java, which takes no lone surrogates: they become replacement characters."""
    try:
        return call(text)
    except UnicodeEncodeError:
        return call(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


class _Hit(msgspec.Struct):
    doc: int
    score: float


class _Hits(msgspec.Struct):
    hits: list[_Hit] = msgspec.field(name="scoreDocs")


class LuceneIndex:
    """An index, open for search.

    Attributes:
        rows: uint32 ``[documents]``, rising: what it holds.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        """Open the index in ``folder``; Java's heap may take half of ``memory`` bytes.

        Raises:
            InputError: Java or Pyserini is missing or unfit, or another version of Lucene built the index.
            CorruptError: its contents differ from its description.
        """
        self._folder = folder
        self._lucene = Lucene(memory)
        self.rows = _check_description(self._lucene, folder)
        with java_errors(folder):
            self._reader = self._lucene.reader(folder)
            documents, segments = self._reader.maxDoc(), self._reader.leaves().size()
        if documents != len(self.rows) or segments > 1:
            self.close()
            raise CorruptError(
                f"{folder} holds {documents:,} documents in {segments} segments, not {len(self.rows):,} in one",
                "Build it again with --repair",
            )

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def search(
        self, queries: Iterable[list[Text]], excluded: Exclusions, *, k1: float, b: float, depth: int, threads: int
    ) -> Ranking:
        """Rank the candidates for every query by BM25, a bag of words of title and abstract.

        A query without terms has no entries.

        Raises:
            InputError: a parameter is out of range, or the exclusions are of another number of queries.
            StageError: Lucene failed.
        """
        check_depth(depth)
        check_parameters(k1, b)
        offsets, removed = excluded
        results: list[tuple[Rows, Scores]] = [(np.empty(0, np.uint32), np.empty(0, np.float32))] * (len(offsets) - 1)

        def work(queue: WorkQueue[tuple[int, Text]]) -> int:
            done = 0
            for number, text in queue:
                done += 1
                if number < len(results):
                    apart = removed[offsets[number] : offsets[number + 1]]
                    results[number] = self._search(searcher, joined(text), apart, depth)
            return done

        with java_errors(self._folder):
            searcher = self._lucene.searcher(self._reader, k1, b)
            texts = enumerate(text for block in queries for text in block)
            done = sum(self._lucene.in_threads(threads, work, texts))
        if done != len(results):
            raise InputError(f"exclusions are of {len(results):,} queries, there are {done:,}", "Give both of one pool")
        counts = np.array([len(rows) for rows, _ in results], np.int64)
        rows = np.concatenate([np.empty(0, np.uint32), *(rows for rows, _ in results)])
        scores = np.concatenate([np.empty(0, np.float32), *(scores for _, scores in results)])
        return Ranking.from_counts(counts, rows, scores)

    def _search(self, searcher: Any, text: str, apart: Rows, depth: int) -> tuple[Rows, Scores]:
        query = safely(self._lucene.bag_of_words, text)
        top = searcher.search(query, depth + len(apart))
        hits = msgspec.json.decode(self._lucene.to_json(top), type=_Hits).hits
        numbers = np.array([hit.doc for hit in hits], np.int64)
        scores = np.array([hit.score for hit in hits], np.float32)
        rows = self.rows[len(self.rows) - 1 - numbers]
        kept = np.flatnonzero(~np.isin(rows, apart))[:depth]
        return rows[kept], scores[kept]


def _describe(lucene: Lucene, rows: Rows) -> dict[str, Any]:
    """Return the description of an index of these rows, built now."""
    return {
        "format": _FORMAT,
        "documents": len(rows),
        "rows_sha256": hashlib.sha256(rows.tobytes()).hexdigest(),
        "analyzer": ANALYZER,
        "lucene": lucene.version,
        "anserini": anserini_version(),
    }


def _check_description(lucene: Lucene, folder: Path) -> Rows:
    """Return the rows of an index after comparing its description with that of an index built now."""
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        rows: Rows = files.read_arrow(folder / _ROWS).column("row").chunk(0).to_numpy()
    except (OSError, ValueError) as error:
        raise CorruptError(f"{folder} is not an index ({error})", "Build it again with --repair") from error
    expected = _describe(lucene, rows)
    for name in ("format", "analyzer", "lucene", "anserini"):
        if description.get(name) != expected[name]:
            raise InputError(
                f"the index {folder} was built with {name} {description.get(name)}, here is {expected[name]}",
                "Scores would differ: remove it and run the same command again",
            )
    if description != expected:
        raise CorruptError(f"{folder} is not what its {_DESCRIPTION} says", "Build it again with --repair")
    return rows
