"""Exact search by torch, on the CPU or a GPU: the default engine, and the proof of all exact engines.

For each block of candidates an engine *nominates*: it scores the most promising candidates canonically, which gives the
lists floors, and returns a *goal* that no other candidate exceeds. A query whose goals do not exceed its floors is
done. For other queries the block is searched again in float32 with the floors as goals. If the error bounds
(:mod:`pipeline.retrieve.estimates`) separate nothing (thousands of equal vectors), that is brute force: slower, never
approximate.

The default engine multiplies tiles of a block with all queries, once for all pools. A tile is every n-th candidate, so
the first tile is a sample of the block and gives the goals; pairs whose estimate plus bound exceeds a goal are scored.
From the second block on, the floors of full lists are the goals, and few candidates are nominated. On a CPU each worker
has its own tile.

Memory beside the queries: the caller's blocks, also as float32 (half of ``memory``, see
:func:`pipeline.retrieve.base.block_rows`), tiles of estimates (an eighth), pairs to score (a sixteenth), 8 bytes for
each entry of the results, and about 100 for each entry of one pool during a merge. On a GPU, a block is sent while the
previous one is searched.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import starmap

import numpy as np
import torch
from torch import Tensor

from pipeline.core.errors import InputError
from pipeline.core.parallel import in_order
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Block, Done, Groups, Metric, Ranking, Subset, Vectors, ignored
from pipeline.retrieve.estimates import Candidates
from pipeline.retrieve.search import Search

TILE = 8_192
"""Maximum vectors of a tile on the CPU."""

_ENTRY = 64
"""Bytes of an estimate with its mask and indices, if all candidates reach the threshold."""

_LOW_PAYS, _GPU_PAYS = 4e9, 4e11
"""Operations above which bfloat16, or a GPU under ``--device auto``, saves more time than its start takes."""

_FEW = 32
"""Queries below which products are bound by memory, not by arithmetic."""


class DenseEngine(ABC):
    """Exact nearest-neighbour search that reads candidates once."""

    def search_pools(
        self,
        queries: Vectors | Groups,
        blocks: Iterable[Block],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = ignored,
    ) -> list[Ranking]:
        """Return the rankings of several pools from one pass over their union.

        Args:
            queries: float16 or float32 ``[q, d]``, the same for all pools; or groups, if papers have several vectors.
                Then rows of candidates repeat within a block, and the score of two papers is that of their best pair
                of vectors.
            blocks: the candidates of all pools, read once and in order; their size is
                :func:`pipeline.retrieve.base.block_rows`.
            subsets: the pools, at most :data:`pipeline.retrieve.base.MAX_SUBSETS`.
            metric: ``l2`` (negated squared distance), ``inner_product`` or ``cosine`` (0 where a vector is zero).
            depth: 1 to :data:`pipeline.retrieve.base.MAX_DEPTH`; a query has fewer entries if fewer candidates remain.
            resources: memory in bytes for everything but ``queries`` and the current block, threads, device.
            done: progress callback; receives the number of candidates processed since the last call.

        Raises:
            InputError: shapes are wrong, rows do not rise, vectors are not finite or too large for float32, or the
                device is missing.
        """
        search = Search(queries, metric, depth, subsets, resources, self.device(resources))
        try:
            with _one_thread():
                for block in _prefetch(search.blocks(blocks), search.device):
                    if search.queries:
                        self._rank(search, block)
                    done(len(block.rows))
                return search.rankings()
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"the memory of {search.device} is too short for a block of candidates ({error})",
                "Free it from other programs, lower --memory (blocks are smaller then), or choose --device=cpu",
            ) from error

    def device(self, resources: Resources) -> torch.device:  # noqa: ARG002
        """Return the device of the search."""
        return torch.device("cpu")

    @abstractmethod
    def nominate(self, search: Search, block: Candidates) -> Tensor:
        """Score the most promising candidates of a block.

        Returns:
            An upper bound of ``e`` of all other candidates, float32 ``[pools, queries]``; -inf if there are none.
        """

    def _rank(self, search: Search, block: Candidates) -> None:
        before = search.best.lists().clone()
        goal = self.nominate(search, block)
        needed = search.needed()
        unproven = (goal > needed).any(0).nonzero()[:, 0]
        if len(unproven):
            search.best.replace(unproven, before[:, unproven])
            scan(search, block, unproven, needed[:, unproven])


def scan(
    search: Search, block: Candidates, queries: Tensor, goal: Tensor, *, bfloat16: bool = False, guess: bool = False
) -> Tensor:
    """Score the candidates of a block that may exceed a goal in one of their pools.

    Args:
        search: receives the scores.
        block: the candidates.
        queries: int64 ``[q]``, rising.
        goal: float32 ``[pools, q]``.
        bfloat16: whether to multiply in bfloat16.
        guess: whether the first tile, a sample, gives missing goals.

    Returns:
        The goal.
    """
    estimates = search.estimates(bfloat16)
    count = min(-(-len(block.papers.vectors) // tile_size(search)), len(block.rows))

    def exceeding(offset: int, chunk: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the pairs of a tile and of some queries that may exceed their goal, as :meth:`Search.rescore` does."""
        torch.set_num_threads(1)  # the setting is local to a thread
        index, ends = _by_smallest_pool(block, offset, count, len(search.subsets))
        tile = estimates.tile(block, index, queries[chunk])
        members = block.members[tile.positions]
        if guess and offset == 0:
            for pool in (goal[:, chunk] == -torch.inf).any(1).nonzero()[:, 0]:
                sampled = tile.goal((members >> pool & 1).bool(), search.depth, count)
                goal[pool, chunk] = torch.maximum(goal[pool, chunk], sampled)
        limits = goal[:, chunk]
        spans = zip([0, *ends[:-1]], ends, strict=True)
        pairs = [
            tile.above(torch.stack([limits[pool] for pool in search.by_size[place:]]).amin(0), start, end)
            for place, (start, end) in enumerate(spans)
            if end > start
        ]
        owners, columns, bounds = map(torch.cat, zip(*pairs, strict=True))
        pools = torch.zeros_like(owners)
        for pool, limit in enumerate(limits):
            pools |= (bounds > limit[owners]).long() << pool
        return queries[chunk[owners]], tile.positions[columns], pools & members[columns], bounds

    cpu = search.device.type == "cpu"
    workers = search.resources.workers if cpu else 1
    all_queries = torch.arange(len(queries), device=search.device)
    chunks = all_queries.split(max(-(-len(all_queries) // workers), _FEW))
    for jobs in ([(0, chunk) for chunk in chunks], [(offset, all_queries) for offset in range(1, count)]):
        results = in_order(lambda job: exceeding(*job), jobs, workers) if cpu else starmap(exceeding, jobs)
        for pairs in results:
            search.rescore(block, *pairs)
    return goal


def _by_smallest_pool(block: Candidates, offset: int, tiles: int, pools: int) -> tuple[slice | Tensor, list[int]]:
    """Return the candidates of a tile, those of smaller pools first, and the end of those of each pool by rising size.

    A smaller pool has lower floors, which candidates outside it need not reach.
    """
    every = slice(offset, None, tiles)
    smallest = block.smallest[every]
    if pools == 1:
        return every, [len(smallest)]
    order = smallest.argsort(stable=True) * tiles + offset
    return order, torch.bincount(smallest, minlength=pools).cumsum(0).cpu().numpy().tolist()


class ExactEngine(DenseEngine):
    """Products of tiles; see :class:`DenseEngine`.

    Args:
        operations: expected number of operations, 0 if unknown; decides precision, and the device of ``auto``.
        bfloat16: whether to multiply in bfloat16; None: if that is faster.
    """

    def __init__(self, operations: float = 0.0, *, bfloat16: bool | None = None) -> None:
        self.operations, self.bfloat16 = operations, bfloat16

    def device(self, resources: Resources) -> torch.device:
        """Return the device of the search; ``auto`` is a GPU if there is one and the search is large enough."""
        name = "cpu" if resources.device == "auto" and self.operations < _GPU_PAYS else resources.device
        index = gpu_number(name, gpus(), "torch", "Choose --device=cpu, or install torch for CUDA")
        return torch.device("cpu") if index is None else torch.device("cuda", index)

    def nominate(self, search: Search, block: Candidates) -> Tensor:
        """Score candidates that may exceed the floors, or a guess of them; see :class:`DenseEngine`."""
        bfloat16 = search.side.offsets is None and self._use_bfloat16(search)
        queries = torch.arange(search.queries, device=search.device)
        return scan(search, block, queries, search.needed(), bfloat16=bfloat16, guess=True)

    def _use_bfloat16(self, search: Search) -> bool:
        if self.bfloat16 is not None:
            return self.bfloat16
        if search.device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return search.queries >= _FEW and self.operations >= _LOW_PAYS and bfloat16_pays()


def tile_size(search: Search) -> int:
    """Return the vectors of a tile: tiles of all workers take an eighth of memory, that of a GPU half of its memory."""
    memory, largest = search.resources.memory // 8 // search.resources.workers, TILE
    if search.device.type == "cuda":
        cached = torch.cuda.memory_reserved(search.device) - torch.cuda.memory_allocated(search.device)
        memory, largest = (torch.cuda.mem_get_info(search.device)[0] + cached) // 2, 1 << 17
    return int(np.clip(memory // (_ENTRY * max(len(search.side.vectors), 1)), 64, largest))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Restrict torch to one thread, since we run the workers and torch's threads busy-wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prefetch(blocks: Iterator[Candidates], device: torch.device) -> Iterator[Candidates]:
    """Yield blocks; on a GPU, a separate stream sends the next block while the current one is searched."""
    if device.type != "cuda":
        yield from blocks
        return
    stream = torch.cuda.Stream(device)

    def send() -> Candidates | None:
        with torch.cuda.stream(stream):
            block = next(blocks, None)
            stream.synchronize()
            return block

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(send)
        while (block := future.result()) is not None:
            future = pool.submit(send)
            yield block
            torch.cuda.current_stream(device).synchronize()  # nothing reads the block any more


def gpus() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@functools.cache
def bfloat16_pays() -> bool:
    """Return whether this processor multiplies bfloat16 much faster than float32, measured in some milliseconds."""
    seconds = []
    with _one_thread():
        for dtype in (torch.float32, torch.bfloat16):
            a, b = torch.ones((128, 768), dtype=dtype), torch.ones((1_024, 768), dtype=dtype)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                torch.mm(a, b.T)
                times.append(time.perf_counter() - start)
            seconds.append(min(times))
    return seconds[1] < 0.7 * seconds[0]
