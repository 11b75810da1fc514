"""A pool as the postings engine sees it: its documents block by block, under the terms of its queries.

Document frequencies, average length and number of documents are the pool's own, so one store of terms serves every
pool.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.order import Rows
from pipeline.retrieve import lucene_formula
from pipeline.retrieve.base import Exclusions
from pipeline.retrieve.postings import kernels
from pipeline.retrieve.postings.sought import Sought
from pipeline.retrieve.postings.store import Piece, TermStore
from pipeline.retrieve.postings.types import Documents, Offsets, Postings, Removed, Terms

BLOCK_DOCUMENTS = 16_384
"""Documents scored together: their scores stay in a core's cache, and their postings in the processor's.

Fewer than 65,536: positions in a block, and counts of its documents, have 16 bits.
"""


class Queries(NamedTuple):
    """Texts that are searched for.

    Attributes:
        bags: their terms.
        vocabulary: all of these terms by number, large strings.
    """

    bags: Terms
    vocabulary: pa.Array

    @classmethod
    def read(cls, store: TermStore, rows: Rows, threads: int = 1) -> Queries:
        """Read the papers or query texts at rising ``rows``, in that order."""
        pieces = list(store.pieces(rows))
        with ThreadPoolExecutor(threads) as pool:
            words = list(pool.map(_words_of, pieces))
            vocabulary = pc.unique(pa.chunked_array([spelled for _, spelled in words], pa.large_string()))

            def decode(piece: Piece, used: npt.NDArray[np.bool_], spelled: pa.Array) -> Terms:
                numbers = np.full(len(used), len(vocabulary), _unsigned(len(vocabulary)))
                numbers[used] = pc.index_in(spelled, vocabulary).to_numpy()
                return decoded(piece, numbers)

            read = list(pool.map(decode, pieces, *zip(*words, strict=True))) if words else []
        place = np.searchsorted(rows, np.concatenate([np.empty(0, np.uint32), *(piece.rows for piece in pieces)]))
        lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(each.starts) for each in read)])
        order = np.argsort(place)
        starts = np.concatenate([[0], np.cumsum(lengths[order])])
        found = np.cumsum(lengths) - lengths
        entries = np.repeat(found[order] - starts[:-1], lengths[order]) + np.arange(starts[-1])
        none = np.empty(0, np.uint32)
        terms, times = (np.concatenate([none, *(each[part] for each in read)])[entries] for part in (1, 2))
        return cls(Terms(starts, terms, times), vocabulary)

    def __len__(self) -> int:
        return len(self.bags.starts) - 1

    def part(self, some: slice) -> Queries:
        """Return those of a slice (with a start), uncopied."""
        return Queries(self.bags._replace(starts=self.bags.starts[some.start : some.stop + 1]), self.vocabulary)


class Part(NamedTuple):
    """Some documents of a pool.

    Attributes:
        documents: up to :data:`BLOCK_DOCUMENTS` of them.
        longest: tokens of the longest.
        counts: uint16 ``[terms + 1]``, how many of them have each term, where that is kept; the last takes all terms
            that no query has, overflows, and means nothing.
    """

    documents: Documents
    longest: int
    counts: npt.NDArray[np.uint16] | None


class Block(NamedTuple):
    """Some documents of a pool, and the same turned round.

    Attributes:
        documents: those of a part.
        postings: what turned round they are.
    """

    documents: Documents
    postings: Postings


@dataclass(frozen=True)
class Collection:
    """The documents of a pool under the terms of some queries.

    Attributes:
        idf: float32 ``[terms]``.
        average: mean length of the documents that have a term, 1 where none has.
        parts: the documents; their order says nothing.
    """

    idf: lucene_formula.Floats
    average: float
    parts: list[Part]

    @classmethod
    def read(cls, store: TermStore, rows: Rows, vocabulary: pa.Array, threads: int = 1, memory: int = 0) -> Collection:
        """Count what scores depend on, in one pass over the bags of the papers at rising ``rows``.

        Args:
            store: where the bags are.
            rows: the documents.
            vocabulary: the terms of the queries.
            threads: how many work.
            memory: bytes of counts to keep; the others are counted again whenever they are needed.
        """
        sought, kind = Sought(vocabulary), _unsigned(len(vocabulary))
        pieces = list(store.pieces(rows))
        room = 2 * (len(vocabulary) + 1)
        parts_before = np.cumsum([0, *(-(-len(piece.rows) // BLOCK_DOCUMENTS) for piece in pieces)])
        kept = (parts_before[1:] * room <= memory).tolist()

        def count(piece: Piece, keep: bool) -> tuple[list[Part], Offsets, int, int]:
            lengths = piece.bags.lengths[piece.members].astype(np.int64)
            numbers, found = sought.numbers(piece.bags.vocabulary, kind), np.zeros(len(vocabulary) + 1, np.int64)
            codes, parts = lucene_formula.length_codes(lengths), []
            for start in range(0, len(codes), BLOCK_DOCUMENTS):
                some = slice(start, start + BLOCK_DOCUMENTS)
                documents = Documents(
                    piece.rows[some], codes[some], piece.members[some], piece.bags.offsets, piece.bags.entries, numbers
                )
                counts = _counts(documents, len(vocabulary))
                found += counts
                parts.append(Part(documents, int(lengths[some].max()), counts if keep else None))
            return parts, found, int(np.count_nonzero(lengths)), int(lengths.sum())

        parts, frequencies, documents, tokens = [], np.zeros(len(vocabulary) + 1, np.int64), 0, 0
        with ThreadPoolExecutor(threads) as pool:
            for read, found, some_documents, some_tokens in pool.map(count, pieces, kept):
                parts += read
                frequencies += found
                documents += some_documents
                tokens += some_tokens
        return cls(lucene_formula.idf(frequencies[:-1], documents), tokens / documents if documents else 1.0, parts)

    def counts(self, part: Part) -> npt.NDArray[np.uint16]:
        """Return how many documents of a part have each term, uint16 ``[terms + 1]``, the last without meaning."""
        return _counts(part.documents, len(self.idf)) if part.counts is None else part.counts

    def block(self, part: Part) -> Block:
        """Return the documents of a part, turned round as well."""
        edges = np.concatenate([[0], np.cumsum(self.counts(part)[:-1], dtype=np.int64)])
        size, frequency = int(edges[-1]), _unsigned(part.longest)
        postings = Postings(edges, np.empty(size, np.uint16), np.empty(size, frequency))
        kernels.invert(part.documents, postings)
        return Block(part.documents, postings)


def removed_from(rows: Rows, excluded: Exclusions) -> Removed:
    """Return what is excluded among rising ``rows``, by position there."""
    offsets, removed = excluded
    if not len(rows) or not len(removed):
        return Removed(np.zeros_like(offsets), np.empty(0, np.int64))
    place = np.searchsorted(rows, removed)
    here = rows[np.minimum(place, len(rows) - 1)] == removed
    return Removed(np.concatenate([[0], np.cumsum(here)])[offsets], place[here])


def decoded(piece: Piece, numbers: npt.NDArray[np.integer]) -> Terms:
    """Return the terms of papers, ``numbers[term]`` for each term of their block."""
    bags, members = piece.bags, piece.members
    room = int(np.diff(bags.offsets)[members].sum())
    times = np.empty(room, _unsigned(int(bags.lengths[members].max(initial=0))))
    read = Terms(np.zeros(len(members) + 1, np.int64), np.empty(room, numbers.dtype), times)
    kernels.decode(bags.offsets, bags.entries, members, numbers, read)
    starts, terms, times = read
    return Terms(starts, terms[: starts[-1]], times[: starts[-1]])


def _words_of(piece: Piece) -> tuple[npt.NDArray[np.bool_], pa.Array]:
    """Return which terms of a block the piece's papers have, and those."""
    used = np.zeros(len(piece.bags.vocabulary), bool)
    kernels.mark(piece.bags.offsets, piece.bags.entries, piece.members, used)
    return used, piece.bags.vocabulary.filter(pa.array(used))


def _counts(documents: Documents, terms: int) -> npt.NDArray[np.uint16]:
    counts = np.zeros(terms + 1, np.uint16)
    kernels.tally(documents, counts)
    return counts


def _unsigned(most: int) -> type[np.uint16 | np.uint32]:
    return np.uint16 if most < 1 << 16 else np.uint32
