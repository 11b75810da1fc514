"""A pool as BM25 sees it: its queries, and its documents inverted block by block under the terms of the queries.

Document frequencies, average length and number of documents are those of the pool, so one forward index serves every
pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.compiled import compiled
from pipeline.core.csr import ranges
from pipeline.core.order import Rows
from pipeline.retrieve.base import Exclusions
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.forward_index import ForwardIndex, Part

BLOCK_DOCUMENTS = 16_384
"""Documents inverted together, at most 65,536: their scores stay in a core's cache."""

QUERIES_TOGETHER = 16
"""QueryTerms that one thread runs against a block before it asks for more."""

Offsets = npt.NDArray[np.int64]
Work = Callable[["PostingsBlock", int, int], None]
"""Runs queries ``first`` to ``last`` against a block."""


@dataclass(frozen=True)
class QueryTerms:
    """The terms of some queries.

    Attributes:
        offsets: int64 ``[queries + 1]``, where the terms of each query start.
        terms: int64, positions in the vocabulary, distinct within a query.
        times: int64, how often the query has each.
        vocabulary: large strings, the terms of all queries.
    """

    offsets: Offsets
    terms: Offsets
    times: Offsets
    vocabulary: pa.Array

    @classmethod
    def read(cls, index: ForwardIndex, rows: Rows) -> QueryTerms:
        """Read the papers or query texts at rising ``rows``, in that order."""
        none = np.empty(0, np.int64)
        read_rows, counts, times, spelled = [none.astype(np.uint32)], [none], [none], [pa.array([], pa.large_string())]
        for part in index.parts(rows):
            starts, ends = part.block.offsets[part.positions], part.block.offsets[part.positions + 1]
            entries = ranges(starts, ends - starts)
            read_rows.append(part.rows)
            counts.append(ends - starts)
            times.append(part.block.frequencies[entries].astype(np.int64))
            spelled.append(part.block.vocabulary.take(pa.array(part.block.terms[entries])))
        encoded = pa.chunked_array(spelled).combine_chunks().dictionary_encode()
        terms = encoded.indices.to_numpy().astype(np.int64)
        lengths = np.concatenate(counts)
        order = np.argsort(np.concatenate(read_rows))
        entries = ranges((np.cumsum(lengths) - lengths)[order], lengths[order])
        offsets = np.concatenate([[0], np.cumsum(lengths[order])])
        return cls(offsets, terms[entries], np.concatenate(times)[entries], encoded.dictionary)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, first: int, last: int) -> QueryTerms:
        """Return queries ``first`` to ``last``, uncopied."""
        return replace(self, offsets=self.offsets[first : last + 1])


class Documents(NamedTuple):
    """Some documents of a pool, as they lie in the forward index.

    Attributes:
        rows: uint32 ``[n]``, rising.
        codes: uint8 ``[n]``, stored length of each.
        positions: int64 ``[n]``, position of each in its block of the index.
        offsets: int64 ``[papers of the block + 1]``, where the entries of each paper start.
        terms: uint32, the entries' terms.
        frequencies: unsigned, the entries' frequencies.
        numbers: int32 ``[terms of the block]``, position of each in the queries' vocabulary, whose size stands for all
            others.
    """

    rows: Rows
    codes: npt.NDArray[np.uint8]
    positions: Offsets
    offsets: Offsets
    terms: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.unsignedinteger]
    numbers: npt.NDArray[np.int32]


class Postings(NamedTuple):
    """Postings of some documents.

    Attributes:
        starts: int64 ``[terms + 1 or more]``, where the postings of each term start.
        documents: uint16, position of each posting's document, rising within a term.
        frequencies: uint32, how often the document has the term.
        impacts: float32, what the term adds to the document's score where a query has it once.
    """

    starts: Offsets
    documents: npt.NDArray[np.uint16]
    frequencies: npt.NDArray[np.uint32]
    impacts: formula.Floats


class PostingsBlock(NamedTuple):
    """Some documents and their postings."""

    documents: Documents
    postings: Postings


@dataclass(frozen=True)
class Collection:
    """The documents of a pool under the terms of some queries.

    Attributes:
        idf: float32 ``[terms + 1]``; the last, 0, is the weight of terms that no query has.
        average: mean length of the documents that have a term, 1 where none has.
        parts: the documents, with positions in the blocks of the index.
    """

    idf: formula.Floats
    average: float
    parts: list[Documents]

    @classmethod
    def read(cls, index: ForwardIndex, rows: Rows, vocabulary: pa.Array, threads: int) -> Collection:
        """Count what scores depend on, in one pass over the papers at rising ``rows``."""
        counts = np.zeros((threads, len(vocabulary) + 1), np.int64)

        def read(job: tuple[int, Part]) -> tuple[Documents, int, int]:
            worker, part = job
            lengths = part.block.lengths[part.positions].astype(np.int64)
            numbers = pc.fill_null(pc.index_in(part.block.vocabulary, vocabulary), len(vocabulary)).to_numpy()
            codes = formula.length_codes(lengths)
            documents = Documents(part.rows, codes, part.positions, *part.block[:3], numbers)
            count(documents, counts[worker])
            return documents, int(np.count_nonzero(lengths)), int(lengths.sum())

        parts: list[Documents] = []
        documents = tokens = 0
        with ThreadPoolExecutor(threads) as pool:
            for group in _grouped(index.parts(rows), threads):
                for part, with_terms, length in pool.map(read, enumerate(group)):
                    parts.append(part)
                    documents += with_terms
                    tokens += length
        weights = formula.idf(counts.sum(axis=0)[:-1], documents)
        return cls(np.append(weights, np.float32(0)), tokens / documents if documents else 1.0, parts)

    def blocks(self, size: int) -> Iterator[Documents]:
        """Yield the documents, ``size`` or fewer at a time."""
        for part in self.parts:
            for start in range(0, len(part.rows), size):
                some = slice(start, start + size)
                yield part._replace(rows=part.rows[some], codes=part.codes[some], positions=part.positions[some])

    def run(
        self, norms: formula.Floats, queries: int, work: Work, pool: Executor, threads: int, size: int
    ) -> Iterator[int]:
        """Run queries against every block of documents, in threads.

        A query is run by one thread at a time, against the blocks in order.

        Yields:
            Number of documents that all queries are done with, since the last time.
        """
        firsts = range(0, queries, QUERIES_TOGETHER)
        for group in _grouped(self.blocks(size), threads):
            inverted = list(pool.map(lambda documents: self._inverted(documents, norms), group))

            def run(first: int, blocks: list[PostingsBlock] = inverted) -> None:
                for block in blocks:
                    work(block, first, min(first + QUERIES_TOGETHER, queries))

            list(pool.map(run, firsts))
            yield sum(len(documents.rows) for documents in group)

    def _inverted(self, documents: Documents, norms: formula.Floats) -> PostingsBlock:
        sizes = documents.offsets[documents.positions + 1] - documents.offsets[documents.positions]
        size, starts = int(sizes.sum()), np.empty(len(self.idf) + 2, np.int64)
        columns = np.empty(size, np.uint16), np.empty(size, np.uint32), np.empty(size, np.float32)
        invert(documents, self.idf, norms, starts, *columns)
        return PostingsBlock(documents, Postings(starts, *columns))


def excluded_positions(rows: Rows, excluded: Exclusions, first: int, last: int) -> tuple[Offsets, Offsets]:
    """Return the exclusions of queries ``first`` to ``last`` among rising ``rows`` as positions there: CSR of int64."""
    offsets = excluded[0][first : last + 1] - excluded[0][first]
    removed = excluded[1][excluded[0][first] : excluded[0][last]]
    place = np.searchsorted(rows, removed)
    here = rows[np.minimum(place, len(rows) - 1)] == removed
    return np.concatenate([[0], np.cumsum(here)])[offsets], place[here]


@compiled
def count(documents: Any, counts: Any) -> None:
    """Add the number of documents with each term to ``counts``, int64 ``[terms + 1]``."""
    terms, numbers = documents.terms, documents.numbers
    for position in documents.positions:
        for at in range(documents.offsets[position], documents.offsets[position + 1]):
            counts[numbers[terms[at]]] += 1


@compiled
def invert(documents: Any, idf: Any, norms: Any, starts: Any, posted: Any, frequencies: Any, impacts: Any) -> None:
    """Write the fields of :class:`Postings`, with room in ``starts`` for two more and in the others for all entries.

    Args:
        documents: :class:`Documents`, at most 65,536.
        idf: float32 ``[terms + 1]``.
        norms: float32 ``[256]``, inverse norm of each stored length.
        starts: int64 ``[terms + 3]``, written.
        posted: uint16, written: position of each posting's document.
        frequencies: uint32, written.
        impacts: float32, written.
    """
    starts[:] = 0
    for position in documents.positions:
        for at in range(documents.offsets[position], documents.offsets[position + 1]):
            starts[documents.numbers[documents.terms[at]] + 2] += 1
    others = len(idf) - 1
    for term in range(others):
        starts[term + 2] += starts[term + 1]
    for document in range(len(documents.positions)):
        position, norm = documents.positions[document], norms[documents.codes[document]]
        for at in range(documents.offsets[position], documents.offsets[position + 1]):
            term = documents.numbers[documents.terms[at]]
            if term < others:
                place, weight, frequency = starts[term + 1], idf[term], documents.frequencies[at]
                starts[term + 1] = place + 1
                posted[place], frequencies[place] = document, frequency
                impacts[place] = weight - weight / (np.float32(1) + np.float32(frequency) * norm)


def _grouped(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while group := list(islice(items, size)):
        yield group
