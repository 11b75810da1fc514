"""One search under way, whatever pass feeds it: the frame, the exclusions and the best of each query so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve import kernels
from pipeline.retrieve.base import Block, Exclusions, Metric, Vectors, block_rows, check_depth
from pipeline.retrieve.frame import CODES, Doubles, Frame, FramedBlock
from pipeline.retrieve.toplists import Positions, TopLists


class Search:
    """The state of one search.

    A pass estimates scores, drops what lies below the floors of ``best`` by more than its bound, and gives the rest to
    :meth:`absorb`. Several threads may do so at once for different queries.

    Attributes:
        best: the best of each query among the candidates absorbed.
        frame: where estimates are made; there is one once :meth:`framed` gave its first block.
    """

    def __init__(self, queries: Vectors, metric: Metric, depth: int, excluded: Exclusions) -> None:
        check_depth(depth)
        offsets, removed = excluded
        if len(offsets) != len(queries) + 1:
            raise InputError(
                f"exclusions are of {len(offsets) - 1} queries, {len(queries)} are searched", "Give both of one pool"
            )
        self._queries, self._metric = queries, metric
        self._owner: Positions = np.repeat(np.arange(len(queries)), np.diff(offsets))
        self._removed = removed
        self.depth = depth
        self.best = TopLists(len(queries), depth)

    def framed(self, blocks: Iterable[Block], resources: Resources) -> Iterator[FramedBlock]:
        """Yield the candidates in the frame, in blocks that fit in memory; the first of them places the frame."""
        frame = None
        for rows, matrix in _rising(blocks):
            size = block_rows(matrix.shape[-1], resources.memory)
            for start in range(0, len(rows), size):
                part = matrix[start : start + size]
                if frame is None:
                    frame = self.frame = Frame(self._queries, self._metric, part)
                yield frame.block((rows[start : start + size], part))

    def removed(self, block: FramedBlock) -> tuple[Positions, Positions]:
        """Return the exclusions that fall in a block: queries (rising) and positions in the block."""
        if not len(self._removed):
            return self._owner, self._owner
        positions = np.searchsorted(block.rows, self._removed)
        here = block.rows[np.minimum(positions, len(block) - 1)] == self._removed
        return self._owner[here], positions[here]

    def absorb(
        self, block: FramedBlock, queries: Positions, positions: Positions, estimates: Doubles, bound: Doubles
    ) -> None:
        """Score pairs canonically and keep the best of each query.

        Args:
            block: where the candidates are.
            queries: int64 ``[n]``, queries by position, rising.
            positions: int64 ``[n]``, candidates by position in the block; none excluded for its query, none absorbed
                before.
            estimates: float64 ``[n]``, what the pass says of each pair, as a canonical score.
            bound: float64 ``[n]``, how far that can be off.
        """
        canonical, keys = np.empty(len(queries)), np.empty(len(queries), np.uint64)
        kernels.score(
            CODES[self._metric],
            self.frame.queries,
            self.frame.norms,
            block.vectors,
            block.norms,
            block.rows,
            queries,
            positions,
            np.argsort(positions),
            canonical,
            keys,
        )
        self.frame.check(estimates, canonical, bound)
        self.best.add(queries, keys)


def _rising(blocks: Iterable[Block]) -> Iterator[tuple[Rows, Vectors]]:
    last = -1
    for rows, matrix in blocks:
        if not len(rows):
            continue
        if int(rows[0]) <= last or (rows[1:] <= rows[:-1]).any():
            raise InputError(
                f"candidate rows do not rise after row {last}", "Give each candidate once, in order, with one vector"
            )
        last = int(rows[-1])
        yield rows, matrix
