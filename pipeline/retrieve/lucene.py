"""BM25 by Lucene, engine and oracle: builds and searches the index of a pool.

Documents are analysed by Anserini's default English analyzer and indexed as in Anserini (frequencies and one-byte
lengths, no positions) in its fields ``id`` and ``contents``, so Pyserini also opens the index.

One segment holds all documents, sorted by descending row. So a document's number gives its row, and Lucene's order
(score descending, then number ascending) is the one total order of :mod:`pipeline.core.order`, also among ties at the
cut. Scores are Lucene's float32, unrounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.core.errors import CorruptError, InputError
from pipeline.core.order import Rows, Scores
from pipeline.core.parallel import in_order
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.retrieve.java import declare, java_errors, start_java

ANALYZER = "io.anserini.analysis.DefaultEnglishAnalyzer"

_BATCH = 512

_MAX_CLAUSES = 65_536
"""Maximum distinct terms of a query; Lucene's default of 1,024 is too few for whole papers."""

_S = "Ljava/lang/String;"
_INDEX, _SEARCH, _DOCUMENT = "org/apache/lucene/index", "org/apache/lucene/search", "org/apache/lucene/document"
_BYTES = "org/apache/lucene/util/BytesRef"

_T = TypeVar("_T")
_R = TypeVar("_R")


class Lucene:
    """Lucene and Anserini in the running Java, with one signature for each method.

    Java's heap may take half of ``memory`` bytes. ``analyzer`` is Anserini's default English analyzer.
    """

    def __init__(self, memory: int) -> None:
        self._jnius = start_java(memory)
        self._java = java = self._jnius.autoclass
        self.analyzer = java(ANALYZER).newDefaultInstance()
        self._bag_of_words = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self._json = java("com.fasterxml.jackson.databind.ObjectMapper")()
        self._searchers = declare(
            f"{_SEARCH}/IndexSearcher",
            f"(L{_INDEX}/IndexReader;)V",
            (
                ("setSimilarity", f"(L{_SEARCH}/similarities/Similarity;)V"),
                ("search", f"(L{_SEARCH}/Query;I)L{_SEARCH}/TopDocs;"),
            ),
            (("setMaxClauseCount", "(I)V"),),
        )
        self._searchers.setMaxClauseCount(_MAX_CLAUSES)

    def in_threads(self, threads: int, function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
        """Yield ``function(item)`` for items, in order, from threads that are detached from Java afterwards."""

        def run(item: _T) -> _R:
            try:
                return function(item)
            finally:
                self._jnius.detach()

        return in_order(run, items, threads)

    def analyse(self, text: str) -> str:
        """Return the terms of a text in order, with spaces between them."""
        signature = "(Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;)Ljava/util/List;"
        analysis = declare("io/anserini/analysis/AnalyzerUtils", static=(("analyze", signature),))
        signature = "(Ljava/lang/CharSequence;Ljava/lang/Iterable;)Ljava/lang/String;"
        string = declare("java/lang/String", static=(("join", signature),))
        terms: str = string.join(" ", analysis.analyze(self.analyzer, text))
        return terms

    def directory(self, folder: Path) -> Any:
        """Return a folder as a directory of Lucene."""
        file = declare("java/io/File", f"({_S})V", (("toPath", "()Ljava/nio/file/Path;"),))
        directories = declare(
            "org/apache/lucene/store/FSDirectory",
            static=(("open", "(Ljava/nio/file/Path;)Lorg/apache/lucene/store/FSDirectory;"),),
        )
        return directories.open(file(str(folder.absolute())).toPath())

    def writer(self, folder: Path, buffer: int) -> Any:
        """Return a writer of an index sorted by descending row; ``buffer`` is in bytes."""
        sort_field = declare(f"{_SEARCH}/SortField", f"({_S}L{_SEARCH}/SortField$Type;Z)V")
        sort = declare(f"{_SEARCH}/Sort", f"([L{_SEARCH}/SortField;)V")
        settings = declare(
            f"{_INDEX}/IndexWriterConfig",
            "(Lorg/apache/lucene/analysis/Analyzer;)V",
            (
                ("setIndexSort", f"(L{_SEARCH}/Sort;)L{_INDEX}/IndexWriterConfig;"),
                ("setMergeScheduler", f"(L{_INDEX}/MergeScheduler;)L{_INDEX}/IndexWriterConfig;"),
                ("setRAMBufferSizeMB", f"(D)L{_INDEX}/IndexWriterConfig;"),
                ("setUseCompoundFile", f"(Z)L{_INDEX}/IndexWriterConfig;"),
            ),
        )(self.analyzer)
        row_type = self._java("org.apache.lucene.search.SortField$Type").LONG
        settings.setIndexSort(sort([sort_field("row", row_type, True)]))
        # Merges in threads of their own would print their errors instead of raising them.
        settings.setMergeScheduler(declare(f"{_INDEX}/SerialMergeScheduler", "()V")())
        settings.setRAMBufferSizeMB(buffer / 2**20)
        settings.setUseCompoundFile(False)
        writer = declare(
            f"{_INDEX}/IndexWriter",
            f"(Lorg/apache/lucene/store/Directory;L{_INDEX}/IndexWriterConfig;)V",
            (
                ("addDocument", "(Ljava/lang/Iterable;)J"),
                ("forceMerge", "(I)V"),
                ("commit", "()J"),
                ("rollback", "()V"),
                ("close", "()V"),
            ),
        )
        return writer(self.directory(folder), settings)

    def document(self) -> tuple[Any, tuple[Any, Any, Any, Any]]:
        """Return an empty document and its fields: id for Pyserini, id for its tie-breaking, row, contents."""
        contents_type = self._java("org.apache.lucene.document.FieldType")()
        contents_type.setTokenized(True)
        contents_type.setIndexOptions(self._java("org.apache.lucene.index.IndexOptions").DOCS_AND_FREQS)
        contents_type.freeze()
        set_string = (("setStringValue", f"({_S})V"),)
        string_field = declare(f"{_DOCUMENT}/StringField", f"({_S}{_S}L{_DOCUMENT}/Field$Store;)V", set_string)
        bytes_field = declare(f"{_DOCUMENT}/BinaryDocValuesField", f"({_S}L{_BYTES};)V", (("setBytesValue", "([B)V"),))
        number_field = declare(f"{_DOCUMENT}/NumericDocValuesField", f"({_S}J)V", (("setLongValue", "(J)V"),))
        text_field = declare(
            f"{_DOCUMENT}/Field", f"({_S}Ljava/lang/CharSequence;L{_INDEX}/IndexableFieldType;)V", set_string
        )
        fields = (
            string_field("id", "", self._java("org.apache.lucene.document.Field$Store").YES),
            bytes_field("id", declare(_BYTES, "()V")()),
            number_field("row", 0),
            text_field("contents", "", contents_type),
        )
        document = self._java("org.apache.lucene.document.Document")()
        for field in fields:
            document.add(field)
        return document, fields

    def reader(self, folder: Path) -> Any:
        """Return a reader of an index."""
        readers = declare(
            f"{_INDEX}/DirectoryReader",
            methods=(("maxDoc", "()I"), ("leaves", "()Ljava/util/List;"), ("close", "()V")),
            static=(("open", f"(Lorg/apache/lucene/store/Directory;)L{_INDEX}/DirectoryReader;"),),
        )
        return readers.open(self.directory(folder))

    def searcher(self, reader: Any, k1: float, b: float) -> Any:
        """Return a searcher by BM25."""
        searcher = self._searchers(reader)
        searcher.setSimilarity(declare(f"{_SEARCH}/similarities/BM25Similarity", "(FF)V")(k1, b))
        return searcher

    def best(self, searcher: Any, text: str, count: int) -> tuple[list[int], list[float]]:
        """Return the numbers and scores of the best documents for the terms of a text, with their frequencies.

        They come as JSON in one call; reading them one by one takes two calls a document.
        """
        query = self._bag_of_words.buildQuery("contents", self.analyzer, text)
        top = searcher.search(query, count)
        hits = json.loads(self._json.writeValueAsString(top))["scoreDocs"]
        return [hit["doc"] for hit in hits], [hit["score"] for hit in hits]


def build_index(texts: Iterable[list[Text]], rows: Rows, folder: Path, threads: int, memory: int) -> dict[str, int]:
    """Build an index in an empty folder; ``texts`` are in the order of ``rows``, which rise.

    Java's heap may take half of ``memory`` bytes. Counts are ``documents``, and ``blank``, those without text, which no
    query finds.

    Raises:
        InputError: Java or Pyserini is missing or unsuitable, or the numbers of texts and rows differ.
        StageError: the disk is full, Java has too little memory, or Lucene failed.
    """
    lucene = Lucene(memory)
    idle = [lucene.document() for _ in range(threads)]

    def add(batch: tuple[list[int], list[Text]]) -> int:
        """Index a batch by one document that is refilled; return the number of blank texts."""
        slot = document, (stored_id, sorted_id, row_field, contents) = idle.pop()
        blank = 0
        for row, text in zip(*batch, strict=False):
            # pyjnius binds a method to the class: arguments come first, so that no thread runs between the two
            paper, content = str(row), document_text(text)
            encoded = paper.encode()
            stored_id.setStringValue(paper)
            sorted_id.setBytesValue(encoded)
            row_field.setLongValue(row)
            contents.setStringValue(content)
            writer.addDocument(document)
            blank += not content
        idle.append(slot)
        return blank

    with java_errors(folder):
        writer = lucene.writer(folder, max(memory // 8, 16 << 20))
        try:
            batches = _batches(texts, rows)
            blank = sum(lucene.in_threads(threads, add, batches))
            writer.forceMerge(1)
            writer.commit()
        except BaseException:
            writer.rollback()
            raise
        writer.close()
    (folder / "write.lock").unlink(missing_ok=True)
    return {"documents": len(rows), "blank": blank}


def _batches(texts: Iterable[list[Text]], rows: Rows) -> Iterator[tuple[list[int], list[Text]]]:
    start = 0
    for block in texts:
        for offset in range(0, len(block), _BATCH):
            batch = block[offset : offset + _BATCH]
            yield rows[start : start + len(batch)].tolist(), batch
            start += len(batch)
    if start != len(rows):
        raise InputError(f"there are {start:,} texts for {len(rows):,} rows", "Give one text per row")


def document_text(text: Text) -> str:
    """Return title and abstract as one text, of a document or a query."""
    return f"{text.title} {text.abstract}".strip()


class LuceneIndex:
    """An index, open for search; its artifact records its content and analyzer."""

    def __init__(self, folder: Path, rows: Rows, memory: int) -> None:
        """Open the index of rising ``rows`` in ``folder``; Java's heap may take half of ``memory`` bytes.

        Raises:
            InputError: Java or Pyserini is missing or unsuitable.
            StageError: Lucene cannot read the index.
            CorruptError: it has another number of documents.
        """
        self._folder, self._rows, self._lucene = folder, rows, Lucene(memory)
        with java_errors(folder):
            self._reader = self._lucene.reader(folder)
            documents, segments = self._reader.maxDoc(), self._reader.leaves().size()
        if documents != len(rows) or segments > 1:
            self.close()
            raise CorruptError(
                f"{folder} holds {documents:,} documents in {segments} segments, not {len(rows):,} in one",
                "Build it again with --repair",
            )

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def search(
        self, queries: Iterable[list[Text]], excluded: Exclusions, *, k1: float, b: float, depth: int, threads: int
    ) -> Ranking:
        """Return the ranking of the candidates for all queries by BM25 on title and abstract.

        A query without terms has no entries.

        Raises:
            StageError: Lucene failed.
        """
        removed = np.split(excluded[1], excluded[0][1:-1])

        def rank(query: tuple[int, Text]) -> tuple[Rows, Scores]:
            number, text = query
            documents, scores = self._lucene.best(searcher, document_text(text), depth + len(removed[number]))
            rows = self._rows[len(self._rows) - 1 - np.array(documents, np.int64)]
            top = np.flatnonzero(~np.isin(rows, removed[number]))[:depth]
            return rows[top], np.array(scores, np.float32)[top]

        with java_errors(self._folder):
            searcher = self._lucene.searcher(self._reader, k1, b)
            texts = (text for block in queries for text in block)
            results = list(self._lucene.in_threads(threads, rank, enumerate(texts)))
        counts = np.array([len(rows) for rows, _ in results], np.int64)
        rows = np.concatenate([np.empty(0, np.uint32), *(rows for rows, _ in results)])
        scores = np.concatenate([np.empty(0, np.float32), *(scores for _, scores in results)])
        return Ranking.from_counts(counts, rows, scores)
