"""Exact search by torch, on the CPU or a GPU: the default engine, and the proof that every exact engine has.

For each block of candidates an engine *nominates*: it scores the candidates that look best canonically, so that the
lists have floors, and names a *goal* that no other candidate exceeds. A query whose goals do not exceed its floors is
done. For any other, the block is searched again in float32 with the floors as goals. Where the error bounds
(:mod:`pipeline.retrieve.estimates`) separate nothing (thousands of equal vectors), that is brute force: slower, never
approximate.

The default engine multiplies tiles of a block with all queries, once for all pools. A tile is every n-th candidate, so
the first is a sample of the block and gives the goals; every pair whose estimate and bound exceed one is scored. From
the second block on, the floors of full lists are the goals, and few candidates are nominated. On a CPU each worker has
a tile of its own.

Memory beside the queries: the caller's blocks, also as float32 (half of ``memory``, see
:func:`pipeline.retrieve.base.block_rows`), tiles of estimates (an eighth), pairs that are scored (a sixteenth), 8
bytes an entry of the results, and about 100 an entry of one pool's while new ones are merged. On a GPU, a block is sent
while the one before is searched.
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
"""Vectors of a tile on the CPU, where memory allows."""

_ENTRY = 64
"""Bytes of an estimate, its mask, and its indices where every candidate reaches the threshold."""

_LOW_PAYS, _GPU_PAYS = 4e9, 4e11
"""Operations from which bfloat16, or a GPU under ``--device auto``, saves more time than starting it takes."""

_FEW = 32
"""Queries below which memory, not arithmetic, is what products wait for."""


class DenseEngine(ABC):
    """An exact nearest-neighbour search that reads its candidates once."""

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
        """Return the ranking of each of several pools, from one pass over their union.

        Args:
            queries: float16 or float32 ``[q, d]``, the same for every pool; or groups, where candidates may have
                several vectors too: then their rows repeat, within one block, and the score of two papers is that of
                their best pair of vectors (MaxSim).
            blocks: the candidates of all pools, read once and in order; of as many vectors as memory takes
                (:func:`pipeline.retrieve.base.block_rows`).
            subsets: the pools, at most :data:`pipeline.retrieve.base.MAX_SUBSETS`.
            metric: ``l2`` (negated squared distance), ``inner_product`` or ``cosine`` (0 where a vector is zero).
            depth: 1 to :data:`pipeline.retrieve.base.MAX_DEPTH`; a query has fewer entries where fewer remain.
            resources: memory in bytes for everything but ``queries`` and the block at hand, threads, device.
            done: progress callback; receives the number of candidates processed since the last call.

        Raises:
            InputError: wrong shapes, rows that do not rise, vectors that are not finite or too large for float32, or a
                device that is not there.
        """
        search = Search(queries, metric, depth, subsets, resources, self.device(resources))
        try:
            with _one_thread():
                for block in _ahead(search.blocks(blocks), search.device):
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
        """Return where the search runs."""
        return torch.device("cpu")

    @abstractmethod
    def nominate(self, search: Search, block: Candidates) -> Tensor:
        """Score the candidates of a block that look best.

        Returns:
            What ``e`` of any other candidate is at most, float32 ``[pools, queries]``; -inf where there is no other.
        """

    def _rank(self, search: Search, block: Candidates) -> None:
        before = search.best.lists().clone()
        goal = self.nominate(search, block)
        needed = search.needed()
        unsure = (goal > needed).any(0).nonzero()[:, 0]
        if len(unsure):
            search.best.put(unsure, before[:, unsure])
            scan(search, block, unsure, needed[:, unsure])


def scan(
    search: Search, block: Candidates, queries: Tensor, goal: Tensor, *, low: bool = False, guess: bool = False
) -> Tensor:
    """Score the candidates of a block that may exceed a goal in one of their pools.

    Args:
        search: where the scores go.
        block: the candidates.
        queries: int64 ``[q]``, rising.
        goal: float32 ``[pools, q]``.
        low: whether products are of bfloat16.
        guess: whether the first tile, a sample, gives a goal where there is none.

    Returns:
        The goal.
    """
    estimates, count = search.estimates(low), min(-(-len(block.papers.vectors) // tile_size(search)), len(block.rows))

    def exceeding(first: int, some: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return pairs of a tile and some of the queries that may exceed their goal: what is to be scored."""
        torch.set_num_threads(1)  # a worker has a setting of its own
        tile = estimates.tile(block, first, count, queries[some])
        members = block.members[tile.positions]
        if guess and first == 0:
            for pool in (goal[:, some] == -torch.inf).any(1).nonzero()[:, 0]:
                sampled = tile.goal((members >> pool & 1).bool(), search.depth, count)
                goal[pool, some] = torch.maximum(goal[pool, some], sampled)
        limits = goal[:, some]
        owners, columns, most = tile.above(limits.amin(0))
        pools = torch.zeros_like(owners)
        for pool, limit in enumerate(limits):
            pools |= (most > limit[owners]).long() << pool
        return queries[some[owners]], tile.positions[columns], pools & members[columns], most

    cpu = search.device.type == "cpu"
    workers = search.resources.workers if cpu else 1
    every = torch.arange(len(queries), device=search.device)
    parts = every.split(max(-(-len(every) // workers), _FEW))
    for jobs in ([(0, some) for some in parts], [(first, every) for first in range(1, count)]):
        found = in_order(lambda job: exceeding(*job), jobs, workers) if cpu else starmap(exceeding, jobs)
        for pairs in found:
            search.rescore(block, *pairs)
    return goal


class ExactEngine(DenseEngine):
    """Products of tiles; see :class:`DenseEngine`.

    Args:
        operations: of the products to come, where known; they decide in which precision and on which device ``auto``
            makes them.
        low: whether products are of bfloat16; None: where that is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None) -> None:
        self.operations, self.low = operations, low

    def device(self, resources: Resources) -> torch.device:
        """Return where the search runs; ``auto`` is a GPU where there is one and the search is worth starting it."""
        name = "cpu" if resources.device == "auto" and self.operations < _GPU_PAYS else resources.device
        number = gpu_number(name, gpus(), "torch", "Choose --device=cpu, or install torch for CUDA")
        return torch.device("cpu") if number is None else torch.device("cuda", number)

    def nominate(self, search: Search, block: Candidates) -> Tensor:
        """Score what may exceed the floors, or a guess of them; see :class:`DenseEngine`."""
        low = search.side.offsets is None and self._low_pays(search)
        queries = torch.arange(search.queries, device=search.device)
        return scan(search, block, queries, search.needed(), low=low, guess=True)

    def _low_pays(self, search: Search) -> bool:
        if self.low is not None:
            return self.low
        if search.device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return search.queries >= _FEW and self.operations >= _LOW_PAYS and bfloat16_pays()


def tile_size(search: Search) -> int:
    """Return how many vectors fit in a tile: those of all workers take an eighth of memory, or half of a GPU's."""
    room, most = search.resources.memory // 8 // search.resources.workers, TILE
    if search.device.type == "cuda":
        cached = torch.cuda.memory_reserved(search.device) - torch.cuda.memory_allocated(search.device)
        room, most = (torch.cuda.mem_get_info(search.device)[0] + cached) // 2, 1 << 17
    return int(np.clip(room // (_ENTRY * max(len(search.side.vectors), 1)), 64, most))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: the workers are ours. Threads of torch wait actively for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _ahead(blocks: Iterator[Candidates], device: torch.device) -> Iterator[Candidates]:
    """Yield blocks; on a GPU, each is sent on a stream of its own while the one before is searched."""
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
        coming = pool.submit(send)
        while (block := coming.result()) is not None:
            coming = pool.submit(send)
            yield block
            torch.cuda.current_stream(device).synchronize()  # nothing reads the block any more


def gpus() -> int:
    """Return how many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@functools.cache
def bfloat16_pays() -> bool:
    """Whether this processor multiplies bfloat16 much faster than float32: some milliseconds of products tell."""
    seconds = []
    with _one_thread():
        for kind in (torch.float32, torch.bfloat16):
            a, b = torch.ones((128, 768), dtype=kind), torch.ones((1_024, 768), dtype=kind)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                torch.mm(a, b.T)
                times.append(time.perf_counter() - start)
            seconds.append(min(times))
    return seconds[1] < 0.7 * seconds[0]
