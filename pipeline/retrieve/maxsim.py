"""Exact search of papers that have several vectors (MaxSim): the score of two papers is that of their best pair.

Estimates are made as in :mod:`pipeline.retrieve.dense`, pair by pair; the greatest of two papers is off by no more than
the greatest of their bounds, so it passes through the same filter, and survivors are scored canonically, all pairs of
vectors of each pair of papers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from pipeline.core.resources import Resources
from pipeline.retrieve.base import Block, Done
from pipeline.retrieve.dense import Buffers, threads
from pipeline.retrieve.estimates import Floats, TileVectors
from pipeline.retrieve.search import Candidates, DenseEngine, Search

_TILE = 2_048
"""Vectors of a tile, where the papers have fewer each and memory allows."""


class MaxSimEngine(DenseEngine):
    """Exact search by the best pair of vectors, on the CPU."""

    def rank(self, search: Search, blocks: Iterable[Block], resources: Resources, done: Done) -> None:
        """Score from each block what could be among the best: estimates of papers, then buffers by queries."""
        with threads(resources.workers) as run:
            for block in search.blocks(blocks, resources.memory):
                if search.queries:
                    search.rescore_excluded(block)
                    tiles = _Tiles(search, block, resources.memory)
                    shares = np.array_split(np.arange(search.queries), min(search.queries, 4 * resources.workers))
                    list(run(tiles.collect, [slice(int(share[0]), int(share[-1]) + 1) for share in shares]))
                    search.raise_thresholds()
                done(len(block.rows))


class _Tiles:
    """Estimates of a block's papers: each the greatest of the pairs of vectors, query's shift included."""

    def __init__(self, search: Search, block: Candidates, memory: int) -> None:
        self._search, self._block = search, block
        bounds, self._starts = search.bounds, search.offsets[:-1]
        points = bounds.place(torch.from_numpy(block.vectors), np.repeat(block.rows, np.diff(block.offsets)))
        self._points = points
        self._shift: Floats = (bounds.shift / bounds.scale).astype(np.float32)
        size = int(np.clip(memory // 16 // (8 * len(bounds.points)), 64, _TILE))
        self._edges = [0]
        while self._edges[-1] < len(block.rows):
            first = self._edges[-1]
            last = int(np.searchsorted(block.offsets, block.offsets[first] + size, "right")) - 1
            self._edges.append(max(first + 1, last))
        widest = int(np.diff(self._edges).max())
        self._buffers = Buffers(search, block, widest, memory)
        self._length: Floats = np.maximum.reduceat(bounds.length, self._starts)
        rounding = np.abs(self._shift).max() * np.float32(2.0**-21)
        spread, extra = (torch.from_numpy(np.maximum.reduceat(part.numpy(), block.offsets[:-1])) for part in points[2:])
        self._papers = TileVectors(points.points, torch.zeros_like(extra), spread, extra + float(rounding))
        self._nothing: Floats = np.zeros(search.queries, np.float32)

    def collect(self, queries: slice) -> None:
        """Put what could be among the best of some queries into their buffers, and score it."""
        block, papers = self._block, self._papers
        here = slice(int(self._search.offsets[queries.start]), int(self._search.offsets[queries.stop]))
        points = self._search.bounds.points[here]
        starts = self._starts[queries] - here.start
        owners, positions, _ = block.excluded
        of_share = (owners >= queries.start) & (owners < queries.stop)
        owners, positions = owners[of_share] - queries.start, positions[of_share]
        for first, last in zip(self._edges[:-1], self._edges[1:], strict=True):
            inside = slice(int(block.offsets[first]), int(block.offsets[last]))
            tile = torch.addmm(self._points.bias[inside], points, self._points.points[inside].T).numpy()
            tile += self._shift[here, None]
            best = np.maximum.reduceat(tile, block.offsets[first:last] - inside.start, axis=1)
            best = np.maximum.reduceat(best, starts, axis=0)
            gone = (positions >= first) & (positions < last)
            best[owners[gone], positions[gone] - first] = np.nan
            some = TileVectors(papers.points, *(part[first:last] for part in papers[1:]))
            self._buffers.add(queries, best, first, some, self._length, self._nothing)
        self._buffers.flush(queries, self._nothing)
