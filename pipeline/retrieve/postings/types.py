"""What passes between the postings engine and its compiled kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.order import Rows

Numbers = npt.NDArray[np.uint16 | np.uint32]
"""uint32, or uint16 where that is enough."""

Entries = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.uint64]
"""A score and a row each, see :mod:`pipeline.retrieve.toplists`."""


class Terms(NamedTuple):
    """Distinct terms of some texts.

    Attributes:
        starts: int64 ``[texts + 1]``, where each text's terms start.
        terms: their numbers.
        times: how often the text has each.
    """

    starts: Offsets
    terms: Numbers
    times: Numbers


class Documents(NamedTuple):
    """Some documents of a pool: where their bags are in a block of the store.

    Attributes:
        rows: uint32 ``[n]``, rising.
        codes: uint8 ``[n]``, stored length of each.
        members: int64 ``[n]``, which of the block's bags is whose.
        offsets: int64 ``[bags + 1]``, where each bag starts.
        entries: uint32, the bags, see :mod:`pipeline.retrieve.postings.entries`.
        numbers: ``[block's terms]``, number of each term among those of the queries; as many as there are of these
            where no query has it.
    """

    rows: Rows
    codes: Codes
    members: Offsets
    offsets: Offsets
    entries: Entries
    numbers: Numbers


class Postings(NamedTuple):
    """Documents turned round.

    Attributes:
        edges: int64 ``[terms + 1]``; the postings of term ``t`` stand from ``edges[t]`` to ``edges[t + 1]``.
        documents: uint16 ``[postings]``, position of the document, rising for each term.
        frequencies: ``[postings]``, how often the document has the term.
    """

    edges: Offsets
    documents: npt.NDArray[np.uint16]
    frequencies: Numbers


class Weights(NamedTuple):
    """Documents turned round, and what terms add to their scores at most: impacts, whole numbers of 16 bits.

    Attributes:
        edges: int64 ``[terms + 1]``; the postings of term ``t`` stand from ``edges[t]`` to ``edges[t + 1]``; a term
            that has a line has none.
        postings: uint32, position of a document in the upper half and impact in the lower.
        line_of: int32 ``[terms + 1]``, line of each term that many documents have, else -1.
        lines: uint16 ``[tiles, lines, TILE]``, the impacts of such a term by document, 0 where it has it not.
    """

    edges: Offsets
    postings: npt.NDArray[np.uint32]
    line_of: npt.NDArray[np.int32]
    lines: npt.NDArray[np.uint16]


class Removed(NamedTuple):
    """Documents that queries may not find.

    Attributes:
        starts: int64 ``[queries + 1]``.
        positions: int64, of documents.
    """

    starts: Offsets
    positions: Offsets


class Best(NamedTuple):
    """The best documents met so far.

    Attributes:
        keys: uint64 ``[queries, more than depth]``, in no order.
        counts: int64 ``[queries]``, keys of each.
        floors: uint64 ``[queries]``, the least of the best ``depth``, 0 while there are fewer.
    """

    keys: Keys
    counts: Offsets
    floors: Keys


class Near(NamedTuple):
    """Documents that may be among the best, to be scored when all documents were met.

    Attributes:
        keys: uint64 ``[queries, more than depth]``, in no order: units that a document has at most, and its number.
        counts: int64 ``[queries]``, keys of each.
        floors: int64 ``[queries]``, units that a document must have for it may be among the best.
        slack: int64 ``[queries]``, how many units less than at most a document may have.
    """

    keys: Keys
    counts: Offsets
    floors: Offsets
    slack: Offsets


class Places(NamedTuple):
    """Where the points of a grid lie on the scores of documents, one line a stored length.

    Attributes:
        line_of: uint8 ``[256]``, line of each stored length.
        table: float32 ``[frequencies * lines * nodes]``, what a term of weight 1 adds, for small frequencies.
        nodes: float64 ``[lines, nodes]``, norms, rising.
        shape: float64 ``[lines, nodes]``, the values there of a falling convex function above 0.
        interval: int64 ``[lines, points]``, the node before the norm of each point.
        chord: float64 ``[lines, points]``, the straight line between the shape's values, at that norm.
    """

    line_of: Codes
    table: npt.NDArray[np.float32]
    nodes: npt.NDArray[np.float64]
    shape: npt.NDArray[np.float64]
    interval: Offsets
    chord: npt.NDArray[np.float64]


class Standing(NamedTuple):
    """How the relevant documents of every query stand at every point.

    Attributes:
        offsets: int64 ``[queries + 1]``, where the relevant documents of each query start.
        relevant: uint64 ``[offsets[-1], points]``, their keys, rising within a query; 0 where one is not found.
        met: int64 ``[offsets[-1] + queries, points]``: line ``offsets[q] + q + i`` counts the documents met that lie
            above ``i`` of the relevant.
        lowest: int64 ``[queries, points]``, the lowest relevant document that may be among the best.
        above: int64 ``[queries, points]``, documents met above that one.
    """

    offsets: Offsets
    relevant: Keys
    met: Offsets
    lowest: Offsets
    above: Offsets


class Pairs(NamedTuple):
    """Pairs of a query and a row.

    Attributes:
        starts: int64 ``[queries + 1]``.
        rows: uint32, rising within a query.
    """

    starts: Offsets
    rows: Rows
