"""Pairs of a query and a candidate: as a pass leaves them, and in the order in which they are scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.retrieve.dense import trims
from pipeline.retrieve.dense.products import aligned
from pipeline.retrieve.toplists import Keys, Positions

Doubles = npt.NDArray[np.float64]
Whole = npt.NDArray[np.signedinteger]


class Pairs(NamedTuple):
    """Pairs that may have to be scored, those of a query together.

    Attributes:
        queries: whole numbers ``[n]``, rising.
        positions: whole numbers ``[n]``, candidates by position in their block.
        estimates: float64 ``[n]``, what the pass says of each pair, as a canonical score.
        bounds: float64 ``[n]``, how far off that can be.
        pools: uint64 ``[n]``, a bit for each pool whose ranking it may come into.
    """

    queries: Whole
    positions: Whole
    estimates: Doubles
    bounds: Doubles
    pools: Keys

    @classmethod
    def room(cls, count: int) -> Pairs:
        """Return room for so many."""
        room = aligned(4 * count, np.uint64)  # in one piece: memory for them all is had sooner
        whole = room[:count].view(np.int32).reshape(2, count)
        real = room[count : 3 * count].view(np.float64).reshape(2, count)
        return cls(whole[0], whole[1], real[0], real[1], room[3 * count :])

    def part(self, first: int, last: int) -> Pairs:
        """Return some of them."""
        here = slice(first, last)
        return Pairs(
            self.queries[here], self.positions[here], self.estimates[here], self.bounds[here], self.pools[here]
        )


class Visits(NamedTuple):
    """Pairs in the order in which they are scored: candidates are then read in a row.

    Attributes:
        packed: int64 ``[n]``, position of the candidate, query, and the number of the pair, from high to low; the
            positions rise.
        query_bits: how many bits the query has.
        index_bits: how many the number has.
    """

    packed: Positions
    query_bits: int
    index_bits: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[Whole, Whole]], queries: int, places: range) -> Visits:
        """Order the pairs of some candidates.

        Args:
            pairs: queries and positions of pairs, which are numbered in that order.
            queries: more than the greatest query.
            places: positions of the candidates.
        """
        count = sum(len(each) for each, _ in pairs)
        query_bits, index_bits = queries.bit_length(), count.bit_length()
        if places.stop.bit_length() + query_bits + index_bits > 63:
            raise ValueError(f"{count} pairs are too many at once")
        starts, number = np.zeros(len(places) + 1, np.int64), 0
        for _, positions in pairs:
            trims.tally(positions, places.start, starts[1:])
        np.cumsum(starts, out=starts)
        packed = np.empty(starts[-1], np.int64)
        for owners, positions in pairs:
            trims.visit(owners, positions, places.start, number, query_bits, index_bits, starts[:-1], packed)
            number += len(owners)
        return cls(packed, query_bits, index_bits)
