"""BM25 by Lucene: searching the index of a pool.

Documents are analysed by Anserini's default English analyzer and indexed as Anserini does (frequencies and one-byte
lengths, no positions), with ``id`` and ``contents`` as Anserini names them, so Pyserini opens the index as well.

They lie in one segment, sorted by falling row. So a document's number tells its row without asking, and Lucene's own
order (score falling, then number rising) is the one total order of :mod:`pipeline.core.order`: a cut at any depth obeys
it, however many documents tie there. Scores are Lucene's float32, unrounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.order import Rows, Scores
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Exclusions, Ranking, check_depth
from pipeline.retrieve.java import java_errors
from pipeline.retrieve.lucene_build import DESCRIPTION, ROWS, describe
from pipeline.retrieve.lucene_classes import Handout, Lucene, joined, safely


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
            CorruptError: it is not what it says of itself.
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
        """Let go of the files."""
        self._reader.close()

    def search(
        self, queries: Iterable[list[Text]], excluded: Exclusions, *, k1: float, b: float, depth: int, threads: int
    ) -> Ranking:
        """Rank the candidates for every query by BM25, a bag of words of title and abstract.

        Args:
            queries: title and abstract of each query, in order.
            excluded: rows removed from each query's ranking before ranks are counted.
            k1: saturation of term frequency, at least 0.
            b: normalisation by length, 0 to 1.
            depth: entries a query at most; a query without terms has none.
            threads: queries searched at a time.

        Raises:
            InputError: a parameter is out of range, or there are not as many queries as have exclusions.
            StageError: Lucene failed.
        """
        check_depth(depth)
        if not (k1 >= 0 and math.isfinite(k1) and 0 <= b <= 1):
            raise InputError(f"BM25 has no k1={k1:g}, b={b:g}", "Give k1 of at least 0, b between 0 and 1")
        offsets, removed = excluded
        found: list[tuple[Rows, Scores]] = [(np.empty(0, np.uint32), np.empty(0, np.float32))] * (len(offsets) - 1)

        def work(handout: Handout[tuple[int, Text]]) -> int:
            done = 0
            for number, text in handout:
                done += 1
                if number < len(found):
                    apart = removed[offsets[number] : offsets[number + 1]]
                    found[number] = self._search(searcher, joined(text), apart, depth)
            return done

        with java_errors(self._folder):
            searcher = self._lucene.searcher(self._reader, k1, b)
            handout = Handout(enumerate(text for block in queries for text in block))
            done = sum(self._lucene.in_threads(threads, work, handout))
        if done != len(found):
            raise InputError(f"exclusions are of {len(found):,} queries, there are {done:,}", "Give both of one pool")
        counts = np.array([len(rows) for rows, _ in found], np.int64)
        rows = np.concatenate([np.empty(0, np.uint32), *(rows for rows, _ in found)])
        scores = np.concatenate([np.empty(0, np.float32), *(scores for _, scores in found)])
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


def _check_description(lucene: Lucene, folder: Path) -> Rows:
    """Return the rows of an index after comparing what it says of itself with what it would say, built now."""
    try:
        said = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        rows: Rows = files.read_arrow(folder / ROWS).column("row").chunk(0).to_numpy()
    except (OSError, ValueError) as error:
        raise CorruptError(f"{folder} is no index ({error})", "Build it again with --repair") from error
    wanted = describe(lucene, rows)
    for name in ("format", "analyzer", "lucene", "anserini"):
        if said.get(name) != wanted[name]:
            raise InputError(
                f"the index {folder} was built with {name} {said.get(name)}, here is {wanted[name]}",
                "Scores would differ: remove it and run the same command again",
            )
    if said != wanted:
        raise CorruptError(f"{folder} is not what its {DESCRIPTION} says", "Build it again with --repair")
    return rows
