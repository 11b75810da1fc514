"""Exact search by torch, on the CPU or a GPU: the default engine.

Each block of candidates is multiplied with all queries, once for all pools; estimates have a proven error bound
(:mod:`pipeline.retrieve.estimates`). A candidate filter keeps what can still be among the best of any pool: what
reaches the threshold of a query, the ``depth``-th greatest lower bound known so far. On the CPU a compiled loop reads
each tile of products once and puts survivors into a buffer for each query; a buffer that fills raises the threshold and
is cut by it. On a GPU a tile is a block, and masks do the same. When a block is done, its survivors are scored
canonically, hardly more than ``depth`` a query, and merged into the lists; their floors are the thresholds of the next
block.

Where the bound separates nothing (thousands of equal vectors), full buffers are scored canonically before the block
ends: slower, never approximate.

Memory beside the queries: the caller's blocks, also as float32 (half of ``memory``, see
:func:`pipeline.retrieve.base.block_rows`), tiles of products (an eighth), buffers (an eighth), pairs that are scored (a
sixteenth), and eight bytes an entry of the result.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.core.compiled import compiled
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve.base import Block, Done
from pipeline.retrieve.estimates import Floats, TileVectors
from pipeline.retrieve.search import Candidates, DenseEngine, Search, grouped
from pipeline.retrieve.topk import best_first

TILE = 2_048
"""Candidates of a tile on the CPU, where memory allows."""

_PAIR, _ENTRY, _PRODUCT = 100, 12, 24
"""Bytes of a pair that is scored, of an entry of a buffer, and of a product on a GPU with its masks."""

_GROUP = 64
"""Candidates that the filter passes over together where none reaches a threshold."""

_LOW_PAYS, _GPU_PAYS = 4e9, 4e11
"""Operations from which bfloat16, or a GPU under ``--device auto``, saves more time than starting it takes."""

_FEW = 32
"""Queries below which memory, not arithmetic, is what products wait for."""


class Buffers:
    """Candidates of a block that may still be among the best, for each query.

    An entry is the upper and the lower bound of an estimate, and a position in the block.
    """

    def __init__(self, search: Search, block: Candidates, tile: int, memory: int) -> None:
        most = min(memory // 8 // (_ENTRY * max(search.queries, 1)) - tile, 4 * search.depth * len(search.subsets))
        self.most = int(np.clip(most, tile, max(len(block.rows), tile)))
        shape = search.queries, self.most + tile
        self.upper, self.lower = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self.positions = np.empty(shape, np.int32)
        self.count, self.limit = np.zeros(search.queries, np.int64), np.full(search.queries, 2 * search.depth)
        self._search, self._block, self._pairs = search, block, max(memory // 16 // _PAIR, 1)

    def add(
        self, queries: slice, tile: Floats, first: int, points: TileVectors, length: Floats, offset: Floats
    ) -> None:
        """Add what reaches the thresholds of some queries from a tile ``[queries, m]`` of candidates from ``first`` on.

        Where a buffer stays full after it was cut, it is scored.
        """
        search, block = self._search, self._block
        loss = np.float32(search.bounds.loss)
        entries = self.upper, self.lower, self.positions, self.count
        terms = points.bias.numpy(), points.spread.numpy(), points.extra.numpy()
        candidates = *terms, block.members[first : first + tile.shape[1]]
        _filter(tile, queries.start, first, candidates, length, loss, search.threshold, entries)
        limit = np.minimum(self.limit, self.most)
        cut = self.count[queries] > limit[queries]
        _cut(queries.start, queries.stop, limit, search.depth, search.threshold, offset, block.members, entries)
        count = self.count[queries]
        self.limit[queries][cut] = np.maximum(2 * search.depth, 2 * count[cut])
        full = np.flatnonzero(count > self.most) + queries.start
        self.score(full.tolist())

    def flush(self, queries: slice, offset: Floats) -> None:
        """Score what is left of some queries."""
        search = self._search
        entries = self.upper, self.lower, self.positions, self.count
        limit = np.full(search.queries, search.depth)
        _cut(queries.start, queries.stop, limit, search.depth, search.threshold, offset, self._block.members, entries)
        for some in grouped(self.count[queries], self._pairs):
            self.score(range(queries.start + some.start, queries.start + some.stop))

    def score(self, queries: Sequence[int]) -> None:
        """Score the entries of some queries, which rise, and empty their buffers."""
        if not len(queries):
            return
        counts = self.count[list(queries)]
        positions, lower, upper = (
            np.concatenate([entries[query, : self.count[query]] for query in queries])
            for entries in (self.positions, self.lower, self.upper)
        )
        owners = np.repeat(np.asarray(queries, np.int64), counts)
        members = self._block.members[positions]
        self._search.rescore(self._block, owners, positions.astype(np.int64), members, (lower, upper))
        self.count[list(queries)] = 0
        self._search.raise_thresholds(np.asarray(queries))


class ExactEngine(DenseEngine):
    """Blocked products with canonical scores; see :class:`pipeline.retrieve.search.DenseEngine`.

    Args:
        operations: of the products to come, where known; they decide in which precision and on which device ``auto``
            makes them.
        low: whether products on a CPU are of bfloat16; None: where that is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None) -> None:
        self.operations, self.low = operations, low

    def low_pays(self, queries: int, resources: Resources) -> bool:
        """Return whether products should be in bfloat16; on a GPU they never are."""
        if device_of(resources.device, self.operations).type != "cpu":
            return False
        if self.low is None:
            return queries >= _FEW and self.operations >= _LOW_PAYS and bfloat16_pays()
        return self.low

    def rank(self, search: Search, blocks: Iterable[Block], resources: Resources, done: Done) -> None:
        """Score from each block what could be among the best, on the CPU or a GPU."""
        device = device_of(resources.device, self.operations)
        if device.type == "cpu":
            filter_on_cpu(search, blocks, resources, done)
        else:
            filter_on_device(search, blocks, device, resources, done)


def filter_on_cpu(search: Search, blocks: Iterable[Block], resources: Resources, done: Done) -> None:
    """Score from each block what could be among the best: products by candidates, then buffers by queries."""
    workers, queries = resources.workers, search.queries
    shares = [slice(int(s[0]), int(s[-1]) + 1) for s in np.array_split(np.arange(queries), workers) if len(s)]
    with threads(workers) as run:
        for block in search.blocks(blocks, resources.memory):
            if queries:
                search.rescore_excluded(block)
                _filter_block(search, block, resources, shares, run)
                search.raise_thresholds()
            done(len(block.rows))


def _filter_block(
    search: Search, block: Candidates, resources: Resources, shares: Sequence[slice], run: Callable[..., Any]
) -> None:
    bounds, dimension = search.bounds, search.vectors.shape[1]
    tile = int(np.clip(resources.memory // 8 // resources.workers // (8 * search.queries + 10 * dimension), 64, TILE))
    buffers = Buffers(search, block, tile, resources.memory)
    offset = bounds.offset
    excluded = block.excluded

    def products(first: int) -> tuple[int, TileVectors, Floats]:
        last = min(first + tile, len(block.rows))
        points = bounds.place(torch.from_numpy(block.vectors[first:last]), block.rows[first:last])
        estimates = torch.mm(bounds.points, points.points.T).float().numpy()
        here = (excluded[1] >= first) & (excluded[1] < last)
        estimates[excluded[0][here], excluded[1][here] - first] = np.nan  # reaches no threshold
        return first, points, estimates

    def add(queries: slice, tiles: Sequence[tuple[int, TileVectors, Floats]]) -> None:
        for first, points, estimates in tiles:
            buffers.add(queries, estimates[queries], first, points, bounds.length, offset)

    step = tile * resources.workers
    for start in range(0, len(block.rows), step):
        tiles = list(run(products, range(start, min(start + step, len(block.rows)), tile)))
        list(run(functools.partial(add, tiles=tiles), shares))
    list(run(functools.partial(buffers.flush, offset=offset), shares))


@contextmanager
def threads(workers: int) -> Iterator[Callable[..., Any]]:
    """Yield the ``map`` of some threads, each of which makes its own products."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(before)


def filter_on_device(
    search: Search, blocks: Iterable[Block], device: torch.device, resources: Resources, done: Done
) -> None:
    """Score from each block what could be among the best: masks over tiles of some queries and the whole block."""
    most = max(resources.memory // 16 // _PAIR, 1)
    try:
        for block in search.blocks(blocks, resources.memory):
            if search.queries:
                search.rescore_excluded(block)
                bounds = search.bounds.on(device)
                points = bounds.place(torch.from_numpy(block.vectors).to(device), block.rows)
                size = max(int(_free(device, resources) // (_PRODUCT * len(block.rows))), 1)
                for start in range(0, search.queries, size):
                    _filter_tile(search, block, points, slice(start, min(start + size, search.queries)), most)
                search.raise_thresholds()
            done(len(block.rows))
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the memory of {device} is too short for a block of candidates ({error})",
            "Free it from other programs, lower --memory (blocks are smaller then), or choose --device=cpu",
        ) from error


def _filter_tile(search: Search, block: Candidates, points: TileVectors, queries: slice, most: int) -> None:
    """Score what could be among the best of some queries, at most ``most`` pairs or one query at once."""
    bounds, device = search.bounds, points.points.device

    def there(array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    products = bounds.points[queries] @ points.points.T + points.bias
    width = there(bounds.length[queries])[:, None] * points.spread + points.extra
    owners, positions, _ = block.excluded
    here = (owners >= queries.start) & (owners < queries.stop)
    products[there(owners[here] - queries.start), there(positions[here])] = -torch.inf
    upper, lower = products + width, products - width
    members, offset = there(block.members.view(np.int64)), there(bounds.offset[queries])
    near = torch.zeros_like(upper, dtype=torch.bool)
    for pool in range(len(search.subsets)):
        inside = (members >> pool & 1).bool()
        needed = there(search.threshold[pool, queries])
        if int(inside.sum()) >= search.depth:
            least = lower.masked_fill(~inside, -torch.inf).topk(search.depth, sorted=False).values.amin(1)
            needed = torch.maximum(needed, least - (least.abs() + offset) * 2.0**-21 - 2.0**-120)
        near |= (upper >= needed[:, None]) & inside & (upper > -torch.inf)
    for some in grouped(near.sum(1).cpu().numpy(), most):
        owner, position = near[some].nonzero(as_tuple=True)
        limits = tuple(bound[some][owner, position].cpu().numpy() for bound in (lower, upper))
        chosen = position.cpu().numpy()
        first = queries.start + some.start
        search.rescore(block, owner.cpu().numpy() + first, chosen, block.members[chosen], (limits[0], limits[1]))


def _free(device: torch.device, resources: Resources) -> int:
    """Return how many bytes of a device products may take."""
    if device.type == "cpu":
        return resources.memory // 8
    free: int = torch.cuda.mem_get_info(device)[0]
    kept: int = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min((free + kept) // 2, 8 << 30)


def gpus() -> int:
    """Return how many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def device_of(name: str, operations: float) -> torch.device:
    """Return the device of a name; ``auto`` is a GPU where there is one and the search is worth starting it."""
    if name == "auto" and operations < _GPU_PAYS:
        name = "cpu"
    number = gpu_number(name, gpus(), "torch", "Choose --device=cpu, or install torch for CUDA")
    return torch.device("cpu") if number is None else torch.device("cuda", number)


@functools.cache
def bfloat16_pays() -> bool:
    """Whether this processor multiplies bfloat16 much faster than float32: some milliseconds of products tell."""
    seconds = []
    with threads(1) as run:
        for kind in (torch.float32, torch.bfloat16):
            a, b = torch.ones((128, 768), dtype=kind), torch.ones((1_024, 768), dtype=kind)

            def once(_: int, a: torch.Tensor = a, b: torch.Tensor = b) -> float:
                start = time.perf_counter()
                torch.mm(a, b.T)
                return time.perf_counter() - start

            seconds.append(min(run(once, range(5))))
    return bool(seconds[1] < 0.7 * seconds[0])


@compiled
def _filter(
    tile: Any, query: Any, first: Any, candidates: Any, length: Any, loss: Any, threshold: Any, entries: Any
) -> None:
    """Append to buffers what reaches the threshold of a pool it is in: see :meth:`Buffers.add`."""
    bias, spread, extra, members = candidates
    width, bounds = np.empty(tile.shape[1], np.float32), np.empty(tile.shape[1], np.float32)
    reached = np.empty(tile.shape[1] + 1, np.int64)
    for row in range(len(tile)):
        products, queries, own_length = tile[row], query + row, length[query + row]
        for i in range(len(products)):  # by itself, so that it is compiled to vector instructions
            width[i] = extra[i] + own_length * spread[i] + loss * abs(products[i])
            bounds[i] = products[i] + bias[i] + width[i]
        upper, lower, positions = entries[0][queries], entries[1][queries], entries[2][queries]
        thresholds = threshold[:, queries].copy()
        place, least = entries[3][queries], thresholds.min()
        count = 0
        for start in range(0, len(products), _GROUP):
            group, some = bounds[start : start + _GROUP], 0
            for i in range(len(group)):  # vector instructions again
                some += group[i] >= least
            if some:
                for i in range(start, start + len(group)):  # written in any case: a branch would be mispredicted
                    reached[count] = i
                    count += bounds[i] >= least
        for i in reached[:count]:
            upper[place], lower[place] = bounds[i], products[i] + bias[i] - width[i]
            positions[place] = first + i
            place += _reaches(bounds[i], members[i], thresholds, least)
        entries[3][queries] = place


@compiled
def _reaches(bound: Any, pools: Any, threshold: Any, least: Any) -> Any:
    """Return 1 where an upper bound reaches the threshold of one of some pools, else 0; ``least`` of all thresholds."""
    if len(threshold) == 1:
        return np.int64(bound >= least) & np.int64(pools & np.uint64(1))
    if bound >= least:
        for pool in range(len(threshold)):
            if bound >= threshold[pool] and pools >> np.uint64(pool) & np.uint64(1):
                return np.int64(1)
    return np.int64(0)


@compiled
def _cut(
    first: Any, last: Any, limit: Any, depth: Any, threshold: Any, offset: Any, members: Any, entries: Any
) -> None:
    """Raise the thresholds of queries with more entries than their limit, and drop what does not reach them.

    A threshold is below the ``depth``-th greatest lower bound by what rounding a score to float32 can hide.
    """
    for query in range(first, last):
        count = entries[3][query]
        if count <= limit[query]:
            continue
        upper, lower, positions = entries[0][query][:count], entries[1][query][:count], entries[2][query][:count]
        room, pools = np.empty(count + 1, np.float32), np.empty(count, np.uint64)
        for i in range(count):
            pools[i] = members[positions[i]]
        for pool in range(len(threshold)):
            inside = 0
            for i in range(count):  # written in any case: branches on memberships are mispredicted
                room[inside] = lower[i]
                inside += pools[i] >> np.uint64(pool) & np.uint64(1) != 0
            if inside >= depth:
                least = best_first(room[:inside], depth)
                least -= (abs(least) + offset[query]) * np.float32(2.0**-21) + np.float32(2.0**-120)
                threshold[pool, query] = max(threshold[pool, query], least)
        thresholds = threshold[:, query].copy()
        kept, least = 0, thresholds.min()
        for i in range(count):
            reached = _reaches(upper[i], pools[i], thresholds, least)
            upper[kept], lower[kept], positions[kept] = upper[i], lower[i], positions[i]
            kept += reached
        entries[3][query] = kept
