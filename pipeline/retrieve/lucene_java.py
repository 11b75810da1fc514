"""Lucene and Anserini as pyjnius reaches them: a signature for each method, and threads that call them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipeline.retrieve.java import declare, start_java

ANALYZER = "io.anserini.analysis.DefaultEnglishAnalyzer"

_MAX_CLAUSES = 65_536
"""Distinct terms a query may have; Lucene's default of 1,024 is too few for whole papers."""

_S = "Ljava/lang/String;"
_INDEX, _SEARCH, _DOCUMENT = "org/apache/lucene/index", "org/apache/lucene/search", "org/apache/lucene/document"
_BYTES = "org/apache/lucene/util/BytesRef"

_T = TypeVar("_T")
_R = TypeVar("_R")


class WorkQueue(Generic[_T]):
    """Hands the items of an iterator to threads, one by one, until it ends or an error leaves the context."""

    def __init__(self, items: Iterable[_T]) -> None:
        self._items, self._lock, self._stopped = iter(items), threading.Lock(), False

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        with self._lock:
            if self._stopped:
                raise StopIteration
            return next(self._items)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stopped = True


class Lucene:
    """Lucene and Anserini in the running Java.

    Args:
        memory: bytes of the run; Java's heap may take half of them.

    Attributes:
        version: such as ``9.9.1``.
        analyzer: Anserini's default English analyzer.
        java: returns a Java class by name.
    """

    def __init__(self, memory: int) -> None:
        self._jnius = start_java(memory)
        self.java = java = self._jnius.autoclass
        self.version: str = java("org.apache.lucene.util.Version").LATEST.toString()
        self.analyzer = java(ANALYZER).newDefaultInstance()
        self._bag_of_words = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self._json = java("com.fasterxml.jackson.databind.ObjectMapper")()
        self._contents_type = java("org.apache.lucene.document.FieldType")()
        self._contents_type.setTokenized(True)
        self._contents_type.setIndexOptions(java("org.apache.lucene.index.IndexOptions").DOCS_AND_FREQS)
        self._contents_type.freeze()
        _searcher_class().setMaxClauseCount(_MAX_CLAUSES)

    def in_threads(self, threads: int, work: Callable[[WorkQueue[_T]], _R], items: Iterable[_T]) -> list[_R]:
        """Run ``work`` in some threads on one queue of items and return its results; an error in one ends all."""
        queue = WorkQueue(items)

        def run() -> _R:
            try:
                with queue:
                    return work(queue)
            finally:
                self._jnius.detach()

        with ThreadPoolExecutor(threads) as pool, queue:
            return [future.result() for future in [pool.submit(run) for _ in range(threads)]]

    def directory(self, folder: Path) -> Any:
        """Return a folder as Lucene sees it."""
        file = declare("java/io/File", f"({_S})V", (("toPath", "()Ljava/nio/file/Path;"),))
        opened = declare(
            "org/apache/lucene/store/FSDirectory",
            static=(("open", "(Ljava/nio/file/Path;)Lorg/apache/lucene/store/FSDirectory;"),),
        )
        return opened.open(file(str(folder.absolute())).toPath())

    def writer(self, folder: Path, buffer: int) -> Any:
        """Return a writer of an index whose segments are sorted by falling row; ``buffer`` in bytes."""
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
        row_type = self.java("org.apache.lucene.search.SortField$Type").LONG
        settings.setIndexSort(sort([sort_field("row", row_type, True)]))
        # Merges in threads of their own would print their errors instead of raising them.
        settings.setMergeScheduler(declare(f"{_INDEX}/SerialMergeScheduler", "()V")())
        settings.setRAMBufferSizeMB(buffer / 2**20)
        settings.setUseCompoundFile(False)
        writer = declare(
            f"{_INDEX}/IndexWriter",
            f"(Lorg/apache/lucene/store/Directory;L{_INDEX}/IndexWriterConfig;)V",
            (
                ("addDocuments", "(Ljava/lang/Iterable;)J"),
                ("forceMerge", "(I)V"),
                ("commit", "()J"),
                ("getDocStats", f"()L{_INDEX}/IndexWriter$DocStats;"),
                ("rollback", "()V"),
                ("close", "()V"),
            ),
        )
        return writer(self.directory(folder), settings)

    def document(self) -> tuple[Any, tuple[Any, Any, Any, Any]]:
        """Return an empty document and its fields: id as Pyserini reads it, id as it breaks ties, row, contents."""
        set_string = (("setStringValue", f"({_S})V"),)
        text = declare(f"{_DOCUMENT}/StringField", f"({_S}{_S}L{_DOCUMENT}/Field$Store;)V", set_string)
        key = declare(f"{_DOCUMENT}/BinaryDocValuesField", f"({_S}L{_BYTES};)V", (("setBytesValue", "([B)V"),))
        number = declare(f"{_DOCUMENT}/NumericDocValuesField", f"({_S}J)V", (("setLongValue", "(J)V"),))
        contents = declare(
            f"{_DOCUMENT}/Field", f"({_S}Ljava/lang/CharSequence;L{_INDEX}/IndexableFieldType;)V", set_string
        )
        fields = (
            text("id", "", self.java("org.apache.lucene.document.Field$Store").YES),
            key("id", declare(_BYTES, "()V")()),
            number("row", 0),
            contents("contents", "", self._contents_type),
        )
        document = self.java("org.apache.lucene.document.Document")()
        for field in fields:
            document.add(field)
        return document, fields

    def reader(self, folder: Path) -> Any:
        """Return a reader of an index."""
        opened = declare(
            f"{_INDEX}/DirectoryReader",
            methods=(("maxDoc", "()I"), ("leaves", "()Ljava/util/List;"), ("close", "()V")),
            static=(("open", f"(Lorg/apache/lucene/store/Directory;)L{_INDEX}/DirectoryReader;"),),
        )
        return opened.open(self.directory(folder))

    def searcher(self, reader: Any, k1: float, b: float) -> Any:
        """Return a searcher by BM25."""
        searcher = _searcher_class()(reader)
        searcher.setSimilarity(declare(f"{_SEARCH}/similarities/BM25Similarity", "(FF)V")(k1, b))
        return searcher

    def bag_of_words(self, text: str) -> Any:
        """Return the query for any of a text's terms, each weighted by its frequency."""
        return self._bag_of_words.buildQuery("contents", self.analyzer, text)

    def to_json(self, value: Any) -> str:
        """Return a Java object's public fields as JSON, which takes one call; reading them takes one a field."""
        text: str = self._json.writeValueAsString(value)
        return text


@functools.cache
def _searcher_class() -> Any:
    return declare(
        f"{_SEARCH}/IndexSearcher",
        f"(L{_INDEX}/IndexReader;)V",
        (
            ("setSimilarity", f"(L{_SEARCH}/similarities/Similarity;)V"),
            ("search", f"(L{_SEARCH}/Query;I)L{_SEARCH}/TopDocs;"),
        ),
        (("setMaxClauseCount", "(I)V"),),
    )
