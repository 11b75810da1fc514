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
from pipeline.retrieve.postings.store import Piece, TermStore
from pipeline.retrieve.postings.types import Codes, Documents, Numbers, Offsets, Postings, Removed, Terms

BLOCK_DOCUMENTS = 16_384
"""Documents scored together: their scores stay in a core's cache, and their postings in the processor's."""


_TOKEN_BYTES = 4
"""What a token takes while it is decoded, but for very long texts and very many queries."""


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
                return _decode(piece, numbers, len(vocabulary))

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


class Part(NamedTuple):
    """Some documents of a pool.

    Attributes:
        piece: where their bags are.
        numbers: of the bags' terms among those of the queries; as many as there are of these where no query has it.
        codes: uint8 ``[n]``, stored length of each.
        terms: what decoding gives, where it is kept.
    """

    piece: Piece
    numbers: Numbers
    codes: Codes
    terms: Terms | None


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
        parts: the documents, each part up to :data:`BLOCK_DOCUMENTS` of them; their order says nothing.
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
            memory: bytes of decoded documents to keep; the others are decoded whenever they are needed.
        """
        pieces = list(store.pieces(rows))
        lengths = [np.diff(piece.bags.offsets)[piece.members] for piece in pieces]
        sizes = np.array([each.sum() for each in lengths], np.int64)
        kept = (np.cumsum(sizes) * _TOKEN_BYTES <= memory).tolist()

        def count(piece: Piece, lengths: Offsets, keep: bool) -> tuple[list[Part], Offsets]:
            numbers, found = _numbers(piece, vocabulary), np.zeros(len(vocabulary), np.int64)
            codes, parts = lucene_formula.length_codes(lengths), []
            for start in range(0, len(codes), BLOCK_DOCUMENTS):
                some = slice(start, start + BLOCK_DOCUMENTS)
                mine = Piece(piece.rows[some], piece.members[some], piece.bags)
                terms = _decode(mine, numbers, len(vocabulary))
                kernels.tally(terms.terms, found)
                parts.append(Part(mine, numbers, codes[some], terms if keep else None))
            return parts, found

        parts, frequencies = [], np.zeros(len(vocabulary), np.int64)
        with ThreadPoolExecutor(threads) as pool:
            for read, found in pool.map(count, pieces, lengths, kept):
                parts += read
                frequencies += found
        documents, tokens = sum(int(np.count_nonzero(each)) for each in lengths), int(sizes.sum())
        return cls(lucene_formula.idf(frequencies, documents), tokens / documents if documents else 1.0, parts)

    def documents(self, part: Part) -> Documents:
        """Return the documents of a part with those of their terms that queries have."""
        terms = _decode(part.piece, part.numbers, len(self.idf)) if part.terms is None else part.terms
        return Documents(part.piece.rows, part.codes, terms)

    def block(self, part: Part) -> Block:
        """Return the documents of a part, turned round as well."""
        documents = self.documents(part)
        size = len(documents.bags.terms)
        edges = np.zeros(len(self.idf) + 2, np.int64)
        postings = Postings(edges, np.empty(size, np.uint16), np.empty(size, documents.bags.times.dtype))
        kernels.invert(documents.bags, postings)
        return Block(documents, postings)


def removed_from(rows: Rows, excluded: Exclusions) -> Removed:
    """Return what is excluded among rising ``rows``, by position there."""
    offsets, removed = excluded
    if not len(rows) or not len(removed):
        return Removed(np.zeros_like(offsets), np.empty(0, np.int64))
    place = np.searchsorted(rows, removed)
    here = rows[np.minimum(place, len(rows) - 1)] == removed
    return Removed(np.concatenate([[0], np.cumsum(here)])[offsets], place[here])


def _words_of(piece: Piece) -> tuple[npt.NDArray[np.bool_], pa.Array]:
    """Return which terms of a block the piece's papers have, and those."""
    used = np.zeros(len(piece.bags.vocabulary), bool)
    kernels.mark(piece.bags.offsets, piece.bags.tokens, piece.members, used)
    return used, piece.bags.vocabulary.filter(pa.array(used))


def _numbers(piece: Piece, vocabulary: pa.Array) -> Numbers:
    found = pc.fill_null(pc.index_in(piece.bags.vocabulary, vocabulary), len(vocabulary))
    numbers: Numbers = found.to_numpy(zero_copy_only=False).astype(_unsigned(len(vocabulary)))
    return numbers


def _decode(piece: Piece, numbers: Numbers, terms: int) -> Terms:
    bags, members = piece.bags, piece.members
    lengths = np.diff(bags.offsets)[members]
    room = int(lengths.sum())
    decoded = Terms(
        np.zeros(len(members) + 1, np.int64),
        np.empty(room, _unsigned(terms)),
        np.empty(room, _unsigned(int(lengths.max(initial=0)))),
    )
    kernels.decode(bags.offsets, bags.tokens, members, numbers, terms, decoded)
    starts, found, times = decoded
    return Terms(starts, found[: starts[-1]], times[: starts[-1]])


def _unsigned(most: int) -> type[np.uint16 | np.uint32]:
    return np.uint16 if most < 1 << 16 else np.uint32
