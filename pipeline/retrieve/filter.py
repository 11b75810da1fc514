"""The filter of exact search: which candidates of a tile can still be among the best, by one product a tile."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.retrieve.search import Candidates, Search

_GROUP = 64
"""Candidates whose greatest estimate is compared first."""

_SHIFTED = 2.0**-21
"""What adding a query's shift to an estimate can change, as a share of the shift."""


class Tile(NamedTuple):
    """Estimates of candidates that follow one another.

    Attributes:
        values: float32 ``[q, m]``, of ``e``; -inf where a candidate is excluded.
        slack: float32 ``[q]``, what the error of any of them is at most.
        length: float32 ``[q]``, of the queries.
        bias: float32 ``[m]``, in the values.
        spread: float32 ``[m]``, times the length: an error bound.
        extra: float32 ``[m]``, added to that.
        loss: times the product: added to that.
    """

    values: Tensor
    slack: Tensor
    length: Tensor
    bias: Tensor
    spread: Tensor
    extra: Tensor
    loss: float

    def most(self, owner: Tensor, position: Tensor) -> Tensor:
        """Return what ``e`` of some pairs is at most."""
        values, length, bias = self.values[owner, position], self.length[owner], self.bias[position]
        return values + (length * self.spread[position] + self.extra[position] + self.loss * (values - bias).abs())

    def best(self, depth: int, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``depth`` best pairs of each query with some candidates: queries, rising, and positions."""
        values, place = self.values[:, columns].topk(min(depth, len(columns)), sorted=False)
        owner, column = (values > -torch.inf).nonzero(as_tuple=True)
        return owner, columns[place[owner, column]]

    def reached(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Return which pairs may exceed thresholds ``[q]``: queries, rising, and positions."""
        limit, values = threshold - self.slack, self.values
        if beyond := -values.shape[1] % _GROUP:
            values = torch.nn.functional.pad(values, (0, beyond), value=-torch.inf)
        groups = values.view(len(limit), -1, _GROUP)
        owner, group = (groups.amax(2) > limit[:, None]).nonzero(as_tuple=True)
        pair, place = (groups[owner, group] > limit[owner, None]).nonzero(as_tuple=True)
        return owner[pair], group[pair] * _GROUP + place


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
        numbers = torch.arange(search.queries, device=search.device) if some is None else some
        starts, self._counts = search.side.spans(numbers)
        vectors = _ranges(starts, self._counts)
        self._estimates = estimates = search.estimates(low)
        self._points = estimates.points[vectors]
        self._length = _greatest(estimates.length[vectors], self._counts)
        self._shift = (estimates.shift[vectors] / estimates.scale).float()
        self._place = torch.full((search.queries,), -1, device=search.device)
        self._place[numbers] = torch.arange(len(numbers), device=search.device)

    def estimate(self, block: Candidates, tile: tuple[int, int]) -> Tile:
        """Return estimates of a tile of a block, whose first and last positions are given."""
        first, last = tile
        loss, offsets = self._estimates.loss, block.papers.offsets
        if offsets is None:
            placed = self._estimates.place(block.papers.vectors[first:last], block.rows[first:last])
            bias, spread, extra = placed.bias, placed.spread, placed.extra
            values = self._estimates.products(self._points, placed)
            stored = torch.maximum(values.amax(1), -values.amin(1)) if loss else torch.zeros_like(self._length)
            values += bias
        else:
            values, spread, extra = self._best_pairs(block, first, offsets[first : last + 1])
            bias, stored = torch.zeros_like(extra), torch.zeros_like(self._length)
        owner, position, _ = block.excluded
        here = (self._place[owner] >= 0) & (position >= first) & (position < last)
        values[self._place[owner[here]], position[here] - first] = -torch.inf
        slack = self._length * spread.amax() + extra.amax() + loss * stored
        return Tile(values, slack, self._length, bias, spread, extra, loss)

    def _best_pairs(self, block: Candidates, first: int, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return estimates of papers ``[queries, m]``, and the terms of their bounds ``[m]``."""
        counts = offsets.diff()
        rows = block.rows[first : first + len(counts)].repeat(counts.cpu().numpy())
        placed = self._estimates.place(block.papers.vectors[int(offsets[0]) : int(offsets[-1])], rows)
        products = self._estimates.products(self._points, placed).T + placed.bias[:, None] + self._shift
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
