"""The filter of exact search: which candidates of a tile can still be among the best, by one product a tile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline.retrieve.search import Candidates, Search

_SHIFTED = 2.0**-21
"""What adding a query's shift to an estimate can change, as a share of the shift."""

_DEVIATIONS = 4.0
"""By how many standard deviations of a sample's count a goal is on the safe side."""


class Tile(NamedTuple):
    """Estimates of some candidates of a block.

    Attributes:
        positions: int64 ``[m]``, in the block.
        values: float32 ``[q, m]``, of ``e``; -inf where a candidate is excluded. The next tile is written over them.
        length: float32 ``[q]``, of the queries.
        spread: float32 ``[m]``, times the length: an error bound.
        extra: float32 ``[m]``, added to that.
    """

    positions: Tensor
    values: Tensor
    length: Tensor
    spread: Tensor
    extra: Tensor

    def most(self, owner: Tensor, column: Tensor) -> Tensor:
        """Return what ``e`` of some pairs is at most."""
        return self.values[owner, column] + (self.length[owner] * self.spread[column] + self.extra[column])

    def goal(self, members: Tensor, depth: int, tiles: int) -> Tensor:
        """Return what the ``depth``-th best of a pool will hardly be below, float32 ``[q]``; -inf: no one knows.

        Args:
            members: bool ``[m]``, the pool.
            depth: of the lists.
            tiles: the block's; this one is a sample of their candidates.
        """
        mean = depth / tiles
        rank = int(np.ceil(mean + _DEVIATIONS * (mean * (1 - 1 / tiles)) ** 0.5)) + (tiles > 1)
        if rank > int(members.sum()):
            return torch.full_like(self.length, -torch.inf)
        values = self.values if bool(members.all()) else self.values[:, members]
        return values.topk(rank, sorted=False).values.amin(1)

    def reached(self, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Return which pairs may exceed a goal float32 ``[q]``: queries, rising, and columns."""
        limit = goal - (self.length * self.spread.amax() + self.extra.amax())
        above = self.values > limit[:, None]
        if above.is_cuda:
            owner, column = above.nonzero(as_tuple=True)
            return owner, column
        pairs = torch.from_numpy(np.flatnonzero(above.numpy()))  # a quarter of torch's time
        owner = torch.div(pairs, above.shape[1], rounding_mode="floor")
        return owner, pairs - owner * above.shape[1]


class Filter:
    """Estimates of all or some queries of a search.

    Where papers have several vectors, the estimate of two papers is the greatest of their pairs', shift included; it is
    off by no more than the greatest of their bounds.

    Args:
        search: the queries and the origin.
        low: whether products are of bfloat16.
        some: int64, rising: the queries; None: all.
    """

    def __init__(self, search: Search, *, low: bool = False, some: Tensor | None = None) -> None:
        self.numbers = torch.arange(search.queries, device=search.device) if some is None else some
        starts, self._counts = search.side.spans(self.numbers)
        vectors = _ranges(starts, self._counts)
        self._estimates = estimates = search.estimates(low)
        self._points = estimates.points[vectors]
        self._length = _greatest(estimates.length[vectors], self._counts)
        self._shift = (estimates.shift[vectors] / estimates.scale).float()
        self._place = torch.full((search.queries,), -1, device=search.device)
        self._place[self.numbers] = torch.arange(len(self.numbers), device=search.device)

    def tiles(self, block: Candidates, count: int) -> Iterator[Tile]:
        """Yield estimates of every candidate of a block: each tile has every ``count``-th."""
        owners, excluded, _ = block.excluded
        for first in range(count):
            positions = torch.arange(first, len(block.rows), count, device=self._length.device)
            if block.papers.offsets is None:
                placed = self._estimates.place(block.papers.vectors[first::count], block.rows[first::count])
                values, spread, extra = self._estimates.products(self._points, placed), placed.spread, placed.extra
            else:
                values, spread, extra = self._best_pairs(block, positions)
            here = (self._place[owners] >= 0) & (excluded % count == first)
            values[self._place[owners[here]], excluded[here] // count] = -torch.inf
            yield Tile(positions, values, self._length, spread, extra)

    def _best_pairs(self, block: Candidates, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return estimates of papers ``[queries, m]``, and the terms of their bounds ``[m]``."""
        starts, counts = block.papers.spans(positions)
        rows = block.rows[positions.cpu().numpy()].repeat(counts.cpu().numpy())
        placed = self._estimates.place(block.papers.vectors[_ranges(starts, counts)], rows)
        products = self._estimates.products(self._points, placed).T + self._shift
        estimate = _greatest(_greatest(products, counts).T.contiguous(), self._counts)
        extra = _greatest(placed.extra, counts) + self._shift.abs().amax() * _SHIFTED
        return estimate, _greatest(placed.spread, counts), extra


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return ``starts[i], starts[i] + 1, ...``, ``counts[i]`` of them, one after the other."""
    ends = counts.cumsum(0)
    within = torch.arange(int(counts.sum()), device=starts.device)
    return within + torch.repeat_interleave(starts - ends + counts, counts)


def _greatest(values: Tensor, counts: Tensor) -> Tensor:
    """Return the greatest of each ``counts[i]`` neighbours along the first axis."""
    if len(counts) == len(values):
        return values
    return torch.segment_reduce(values, "max", lengths=counts, axis=0)
