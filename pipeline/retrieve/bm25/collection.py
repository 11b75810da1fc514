"""Queries and documents of a pool for BM25; documents are inverted block by block for the terms of the queries.

Document frequencies, average length and number of documents are those of the pool, so one forward index serves all
pools.
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
from pipeline.core.csr import find_sorted, ranges
from pipeline.core.order import Rows
from pipeline.retrieve.base import Exclusions
from pipeline.retrieve.bm25 import formula
from pipeline.retrieve.bm25.forward_index import ForwardIndex, Part

BLOCK_DOCUMENTS = 16_384
"""Documents of a block, at most 65,536: their scores stay in a core's cache."""

QUERIES_TOGETHER = 16
"""Queries that a thread runs against a block at a time."""

Offsets = npt.NDArray[np.int64]
Work = Callable[["Documents", "Postings", int, int], None]
"""Function that runs queries ``first`` to ``last`` against documents."""


@dataclass(frozen=True)
class QueryTerms:
    """The terms of queries, which start at ``offsets``, int64 ``[queries + 1]``.

    A term is a position in the vocabulary, large strings, distinct within a query, with its frequency, both int64.
    """

    offsets: Offsets
    terms: Offsets
    frequencies: Offsets
    vocabulary: pa.Array

    @classmethod
    def read(cls, index: ForwardIndex, rows: Rows) -> QueryTerms:
        """Return the terms of the papers or query texts at rising ``rows``, in that order."""
        none = np.empty(0, np.int64)
        read_rows, counts = [none.astype(np.uint32)], [none]
        frequencies, spelled = [none], [pa.array([], pa.large_string())]
        for part in index.parts(rows):
            starts, ends = part.block.offsets[part.positions], part.block.offsets[part.positions + 1]
            entries = ranges(starts, ends - starts)
            read_rows.append(part.rows)
            counts.append(ends - starts)
            frequencies.append(part.block.frequencies[entries].astype(np.int64))
            spelled.append(part.block.vocabulary.take(pa.array(part.block.terms[entries])))
        encoded = pa.chunked_array(spelled).combine_chunks().dictionary_encode()
        terms = encoded.indices.to_numpy().astype(np.int64)
        lengths = np.concatenate(counts)
        order = np.argsort(np.concatenate(read_rows))
        entries = ranges((np.cumsum(lengths) - lengths)[order], lengths[order])
        offsets = np.concatenate([[0], np.cumsum(lengths[order])])
        return cls(offsets, terms[entries], np.concatenate(frequencies)[entries], encoded.dictionary)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def subset(self, first: int, last: int) -> QueryTerms:
        """Return queries ``first`` to ``last`` without copying."""
        return replace(self, offsets=self.offsets[first : last + 1])


class Documents(NamedTuple):
    """Documents of a pool in a block of the forward index: rising rows, and the codes of stored lengths, uint8 ``[n]``.

    ``positions``, int64 ``[n]``, are those of papers in the block, whose entries start at ``offsets``, int64 ``[papers
    + 1]``. An entry is a term, uint32, and its frequency. ``numbers``, int32, are positions of the block's terms in the
    queries' vocabulary, or its size for other terms.
    """

    rows: Rows
    codes: npt.NDArray[np.uint8]
    positions: Offsets
    offsets: Offsets
    terms: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.unsignedinteger]
    numbers: npt.NDArray[np.int32]


class Postings(NamedTuple):
    """Posting lists of documents.

    The list of each term begins at ``starts``, int64 ``[terms + 1 or more]``; it has positions of documents, rising,
    term frequencies, and ``impacts``, contributions to the documents' scores for a query frequency of 1.
    """

    starts: Offsets
    documents: npt.NDArray[np.uint16]
    frequencies: npt.NDArray[np.uint32]
    impacts: formula.Floats


@dataclass(frozen=True)
class Collection:
    """The documents of a pool, by block of the index, with the statistics of the terms of queries.

    ``idf``, float32 ``[terms + 1]``, ends with 0 for terms that are in no query; ``average`` is the mean length of the
    documents that have terms, 1 if none has.
    """

    idf: formula.Floats
    average: float
    parts: list[Documents]

    @classmethod
    def read(cls, index: ForwardIndex, rows: Rows, vocabulary: pa.Array, threads: int) -> Collection:
        """Return the collection of the papers at rising ``rows``, from one pass over them."""
        counts = np.zeros((threads, len(vocabulary) + 1), np.int64)

        def read(job: tuple[int, Part]) -> tuple[Documents, int, int]:
            worker, part = job
            lengths = part.block.lengths[part.positions].astype(np.int64)
            numbers = pc.fill_null(pc.index_in(part.block.vocabulary, vocabulary), len(vocabulary)).to_numpy()
            codes = formula.length_codes(lengths)
            documents = Documents(part.rows, codes, part.positions, *part.block[:3], numbers)
            count_documents(documents, counts[worker])
            return documents, int(np.count_nonzero(lengths)), int(lengths.sum())

        parts: list[Documents] = []
        documents = tokens = 0
        with ThreadPoolExecutor(threads) as pool:
            for group in _batched(index.parts(rows), threads):
                for part, with_terms, length in pool.map(read, enumerate(group)):
                    parts.append(part)
                    documents += with_terms
                    tokens += length
        weights = formula.idf(counts.sum(axis=0)[:-1], documents)
        return cls(np.append(weights, np.float32(0)), tokens / documents if documents else 1.0, parts)

    def blocks(self, size: int) -> Iterator[Documents]:
        """Yield the documents in blocks of at most ``size``."""
        for part in self.parts:
            for start in range(0, len(part.rows), size):
                span = slice(start, start + size)
                yield part._replace(rows=part.rows[span], codes=part.codes[span], positions=part.positions[span])

    def run(
        self, norms: formula.Floats, queries: int, work: Work, pool: Executor, threads: int, size: int
    ) -> Iterator[int]:
        """Run queries against all blocks of documents, in threads.

        One thread at a time runs a query, against the blocks in order.

        Yields:
            The number of documents that all queries have finished since the last yield.
        """
        firsts = range(0, queries, QUERIES_TOGETHER)
        for group in _batched(self.blocks(size), threads):
            inverted = list(pool.map(lambda documents: self._invert(documents, norms), group))

            def run(first: int, blocks: list[tuple[Documents, Postings]] = inverted) -> None:
                for documents, postings in blocks:
                    work(documents, postings, first, min(first + QUERIES_TOGETHER, queries))

            list(pool.map(run, firsts))
            yield sum(len(documents.rows) for documents in group)

    def _invert(self, documents: Documents, norms: formula.Floats) -> tuple[Documents, Postings]:
        sizes = documents.offsets[documents.positions + 1] - documents.offsets[documents.positions]
        size, starts = int(sizes.sum()), np.empty(len(self.idf) + 2, np.int64)
        columns = np.empty(size, np.uint16), np.empty(size, np.uint32), np.empty(size, np.float32)
        invert(documents, self.idf, norms, starts, *columns)
        return documents, Postings(starts, *columns)


def excluded_positions(rows: Rows, excluded: Exclusions, first: int, last: int) -> tuple[Offsets, Offsets]:
    """Return the exclusions of queries ``first`` to ``last`` as positions in rising ``rows``: CSR of int64."""
    offsets = excluded[0][first : last + 1] - excluded[0][first]
    removed = excluded[1][excluded[0][first] : excluded[0][last]]
    position, present = find_sorted(rows, removed)
    return np.concatenate([[0], np.cumsum(present)])[offsets], position[present]


@compiled
def count_documents(documents: Any, counts: Any) -> None:
    """Add the document frequency of each term to ``counts``, int64 ``[terms + 1]``."""
    terms, numbers = documents.terms, documents.numbers
    for position in documents.positions:
        for entry in range(documents.offsets[position], documents.offsets[position + 1]):
            counts[numbers[terms[entry]]] += 1


@compiled
def invert(documents: Any, idf: Any, norms: Any, starts: Any, posted: Any, frequencies: Any, impacts: Any) -> None:
    """Write the fields of :class:`Postings`.

    Args:
        documents: :class:`Documents`, at most 65,536.
        idf: float32 ``[terms + 1]``.
        norms: float32 ``[256]``, inverse norm of each stored length.
        starts: int64 ``[terms + 3]``, written.
        posted: uint16 ``[entries]``, written: position of each posting's document.
        frequencies: uint32, written.
        impacts: float32, written.
    """
    starts[:] = 0
    for position in documents.positions:
        for entry in range(documents.offsets[position], documents.offsets[position + 1]):
            starts[documents.numbers[documents.terms[entry]] + 2] += 1
    unmatched = len(idf) - 1
    for term in range(unmatched):
        starts[term + 2] += starts[term + 1]
    for document in range(len(documents.positions)):
        position, norm = documents.positions[document], norms[documents.codes[document]]
        for entry in range(documents.offsets[position], documents.offsets[position + 1]):
            term = documents.numbers[documents.terms[entry]]
            if term < unmatched:
                posting, weight, frequency = starts[term + 1], idf[term], documents.frequencies[entry]
                starts[term + 1] = posting + 1
                posted[posting], frequencies[posting] = document, frequency
                impacts[posting] = weight - weight / (np.float32(1) + np.float32(frequency) * norm)


def _batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while group := list(islice(items, size)):
        yield group
