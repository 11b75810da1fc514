"""Exact search by torch on one GPU, with the results of :mod:`pipeline.retrieve.exact`, bit for bit.

Candidates are copied to the device block by block, so they need not fit there. Their products with a tile of queries
are made there in float32, once for all pools, and compared there with what a candidate has to reach: the floor of each
list and, where that lets too much through, what as many candidates of the block as are wanted surely reach. Only what
is left comes back, to be scored canonically. Queries for which the bound separates too little (thousands of equal
vectors) are collected from the block by the exact pass instead.

It runs on the CPU as well, slower than :mod:`pipeline.retrieve.exact`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Block, DenseEngine, Done, Metric, Ranking, Subset, Vectors, ignored
from pipeline.retrieve.dense import reservoirs
from pipeline.retrieve.dense.frame import FramedBlock
from pipeline.retrieve.dense.pairs import Pairs
from pipeline.retrieve.dense.rounded import FLOAT
from pipeline.retrieve.dense.scan import Search
from pipeline.retrieve.toplists import Each, Positions

_PRODUCT = 24
"""Bytes of the device that a product takes, with what is made of it."""

_MOST = 8 << 30
"""Bytes of the device that products take at most."""

_PAIR = 100
"""Bytes that a pair takes on its way to its canonical score."""


class TorchEngine(DenseEngine):
    """Blocked products by torch; see :class:`pipeline.retrieve.base.DenseEngine`."""

    def search_pools(
        self,
        queries: Vectors,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return the rankings of several pools (:meth:`pipeline.retrieve.base.DenseEngine.search_pools`).

        Raises:
            InputError: also where the device is not there or its memory is too short for a block.
        """
        gpu = gpu_number(resources.device, gpus(), "torch", "Choose --device cpu, or install torch for CUDA")
        device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        search = Search(queries, metric, depth, subsets)
        try:
            with ThreadPoolExecutor(resources.workers) as threads:
                for block in search.framed(blocks, resources):
                    _collect_all(search, block, device, resources, threads.map)
                    done(len(block))
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"the memory of {device} is too short for a block of candidates ({error})",
                "Free it from other programs, lower --memory (blocks are smaller then), or choose --device cpu",
            ) from error
        return search.rankings()


def gpus() -> int:
    """Return how many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class _Candidates:
    """A block of candidates on the device.

    Attributes:
        points: float32 ``[m, d]``.
        bias: float32 ``[m]``, added to products.
        members: int64 ``[m]``, bit ``p`` for those of pool ``p``.
        places: int64, positions of each pool's; None where it has them all.
    """

    def __init__(self, block: FramedBlock, search: Search, device: torch.device) -> None:
        self.points = torch.from_numpy(block.points).to(device)
        self.bias = torch.from_numpy(block.bias).to(device)
        self.members = torch.from_numpy(search.members(block.rows).view(np.int64)).to(device)
        self.places: list[torch.Tensor | None] = []
        for pool in range(search.pools):
            inside = (self.members >> pool & 1).bool()
            self.places.append(None if bool(inside.all()) else inside.nonzero()[:, 0])

    def __len__(self) -> int:
        return len(self.points)

    def of(self, pool: int, tile: torch.Tensor) -> torch.Tensor:
        """Return a pool's columns of a tile."""
        places = self.places[pool]
        return tile if places is None else tile.index_select(1, places)


def _collect_all(search: Search, block: FramedBlock, device: torch.device, resources: Resources, each: Each) -> None:
    """Absorb from a block what could be among the best of any query in any pool."""
    candidates = _Candidates(block, search, device)
    wanted = search.depth + search.excluded.reshape(search.pools, search.queries)
    most = reservoirs.KEEP * int(wanted.sum(axis=0).max(initial=1))
    room = min(_free(device, resources) // (_PRODUCT * len(block)), resources.memory // (16 * _PAIR * most))
    size, removed = max(int(room), 1), search.removed(block.rows)
    for start in range(0, search.queries, size):
        some = np.arange(start, min(start + size, search.queries))
        pairs, left = _pairs(search, block, candidates, some, wanted[:, some].max(axis=1).tolist(), most)
        edges = np.searchsorted(pairs.queries, some[:: -(-len(some) // resources.workers)])
        parts = [pairs.part(*ends) for ends in itertools.pairwise([*edges.tolist(), len(pairs.queries)])]
        likely = list(each(search.likely, parts, itertools.repeat(removed)))
        search.absorb(block, likely, each)
        reservoirs.collect(search, block, left, resources.workers)


def _free(device: torch.device, resources: Resources) -> int:
    """Return how many bytes products may take."""
    if device.type == "cpu":
        return resources.memory // 8
    free: int = torch.cuda.mem_get_info(device)[0]
    kept: int = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min((free + kept) // 2, _MOST)


def _pairs(
    search: Search, block: FramedBlock, candidates: _Candidates, queries: Positions, wanted: Sequence[int], most: int
) -> tuple[Pairs, Positions]:
    """Return the pairs of some queries that come near, but for queries that are near to too many, and these queries.

    Args:
        search: the search under way.
        block: the candidates.
        candidates: the same, on the device.
        queries: int64 ``[n]``, which queries: in a row.
        wanted: of each pool, excluded ones included.
        most: more candidates are too many.
    """
    frame, device = search.frame, candidates.points.device
    shift, bound = frame.shift[queries], frame.bound(block.radius)[queries]
    points = torch.from_numpy(frame.rounded[FLOAT].points[queries]).to(device)
    tile = points @ candidates.points.T
    tile += candidates.bias
    floors = search.best.floors(search.lists(queries))
    needed = torch.from_numpy((floors - (shift + bound)[:, None]) / frame.scale).to(device)
    near = _near(tile, candidates, needed)
    if bool((near.sum(1) > most).any()):
        slack = torch.from_numpy(frame.slack(bound)).to(device)
        offset = torch.from_numpy(np.abs(shift) / frame.scale).to(device)
        for pool, count in enumerate(wanted):
            own = candidates.of(pool, tile)
            if own.shape[1] > count:
                least = own.topk(count, sorted=False).values.amin(1).double()
                away = (least.abs() + offset) * 2.0**-22  # scores are rounded to float32
                needed[:, pool] = torch.maximum(needed[:, pool], least - slack - away)
        near = _near(tile, candidates, needed)
    crowded = near.sum(1) > most
    near[crowded] = False
    row, column = near.nonzero(as_tuple=True)
    estimates, pools = tile[row, column].double(), candidates.members[column]
    owner = row.cpu().numpy()
    pairs = Pairs(
        queries[owner],
        column.cpu().numpy(),
        frame.scale * estimates.cpu().numpy() + shift[owner],
        bound[owner],
        pools.cpu().numpy().view(np.uint64),
    )
    return pairs, queries[crowded.cpu().numpy()]


def _near(tile: torch.Tensor, candidates: _Candidates, needed: torch.Tensor) -> torch.Tensor:
    """Return which estimates ``[q, m]`` reach what is needed ``[q, p]`` in a pool of their candidate."""
    lowest = torch.nextafter(needed.float(), torch.tensor(-torch.inf, device=needed.device))
    if candidates.places == [None]:
        return tile >= lowest
    near = torch.zeros_like(tile, dtype=torch.bool)
    for pool, places in enumerate(candidates.places):
        reached = candidates.of(pool, tile) >= lowest[:, pool, None]
        if places is None:
            near |= reached
        else:
            near[:, places] |= reached
    return near
