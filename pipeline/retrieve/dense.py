"""Exact search by torch, on the CPU or a GPU: the default engine, and the proof of all exact engines.

Scores are estimated by matrix products of tiles (:mod:`pipeline.retrieve.estimates`); pairs that a proven error bound
cannot rule out are scored canonically (:mod:`pipeline.retrieve.canonical`). The ``depth``-th greatest lower bound of a
query and the last canonical score of a full list are *limits*: a pair whose upper bound is below has no place in the
ranking. If the bounds separate nothing (thousands of equal vectors), that is brute force: slower, never approximate.

Tiles are samples of a block, the first ones small, so limits are known early. Memory beside the queries: the caller's
blocks, also as float32 (half of ``memory``, see :func:`pipeline.retrieve.base.block_rows`), tiles of estimates (an
eighth), pairs that wait to be scored (an eighth), and 24 bytes for each entry of the results.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.core.csr import Groups, find_sorted, offsets_of, pack
from pipeline.core.errors import InputError, StageError, require_known
from pipeline.core.order import Rows, Scores
from pipeline.core.parallel import in_order
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve import base
from pipeline.retrieve.base import Done, Metric, Ranking, Subset, VectorBlock, Vectors
from pipeline.retrieve.canonical import CODES, Side, lengths, score_pairs
from pipeline.retrieve.estimates import Candidates, Estimates, bfloat16_pays, check_lengths, one_thread, unit
from pipeline.retrieve.topk import EMPTY, MARGIN, Bits, Ints, Pairs, TopK, from_keys, reaching, sift, to_keys

TILE = 8_192
"""Maximum vectors of a tile on the CPU."""

_CROWD = 8
"""Pairs that wait, for each entry of the results, before limits are applied again; bfloat16 ends if half remain."""

_FEW, _LOW_PAYS, _GPU_PAYS = 32, 4e9, 4e11
"""Queries below which products are bound by memory; operations above which bfloat16, or a GPU under ``--device auto``,
saves more time than its start takes."""

_SLACK = 2.0**-40
"""Relative error of canonical scores and shifts in float64, by far."""

Job = tuple[slice, Ints]
"""A sample of the candidates of a block, and queries."""


class Search:
    """The state of one search.

    Attributes:
        queries: number of queries.
        side: the vectors of the queries, on the device of the search.
        norms: their lengths, float64.
        subsets: the pools by rising size; pools are counted in this order.
        estimates: in float32 (False) and bfloat16 (True).
        shift: float64 ``[queries]``; 0 if papers have several vectors.
        excluded: offsets of queries, uint32 rows, and uint64 pools of exclusions.
        limits: float32 ``[pools, queries]``, rounded down: pairs whose ``e`` is below have no place.
    """

    first = 2_048
    """Maximum candidates of a block's first sample, all of which pass while there are no limits."""

    def __init__(
        self,
        queries: Vectors | Groups,
        metric: Metric,
        depth: int,
        subsets: Sequence[Subset],
        resources: Resources,
        device: torch.device | str = "cpu",
        *,
        bfloat16: bool = False,
    ) -> None:
        base.check_depth(depth)
        require_known(metric, CODES, f"there is no metric {metric!r}")
        offsets, vectors = queries if isinstance(queries, Groups) else (None, queries)
        if offsets is not None and len(empty := np.flatnonzero(np.diff(offsets) < 1)):
            raise InputError(f"query {empty[0]} has no vector", "Give each query one or more")
        if not 1 <= len(subsets) <= base.MAX_SUBSETS:
            raise ValueError(f"{len(subsets)} pools in one pass")
        self.metric, self.depth, self.resources = metric, depth, resources
        self.device, self._low = torch.device(device), bfloat16 and offsets is None
        self.side = Side(
            torch.tensor(np.asarray(vectors, np.float32), device=device),
            None if offsets is None else torch.from_numpy(offsets).to(device),
        )
        self.queries, cpu = len(vectors) if offsets is None else len(offsets) - 1, self.device.type == "cpu"
        self.norms = lengths(self.side.vectors)
        check_lengths(self.norms, "query")
        self._workers = resources.workers if cpu else 1
        self._threads = ThreadPoolExecutor(self._workers) if cpu else None
        sizes = [np.inf if candidates is None else len(candidates) for candidates, _ in subsets]
        self._by_size = sorted(range(len(subsets)), key=sizes.__getitem__)
        self.subsets = [subsets[pool] for pool in self._by_size]
        self._best, self._lows = self._lists(EMPTY), self._lists(np.float32(-np.inf))
        self.shift = np.zeros(self.queries)
        self._raise_limits()
        self.estimates: dict[bool, Estimates] = {}
        pairs, pools = [], []
        for pool, (_, excluded) in enumerate(self.subsets):
            base.check_queries("exclusions", excluded, self.queries)
            pairs.append(pack(np.repeat(np.arange(self.queries), np.diff(excluded[0])), excluded[1]))
            pools.append(np.full(len(pairs[-1]), 1 << pool, np.uint64))
        distinct, inverse = np.unique(np.concatenate(pairs), return_inverse=True)
        bits = np.zeros(len(distinct), np.uint64)
        np.bitwise_or.at(bits, inverse, np.concatenate(pools))
        self.excluded = offsets_of(distinct >> np.uint64(32), self.queries), distinct.astype(np.uint32), bits

    def blocks(self, blocks: Iterable[VectorBlock]) -> Iterator[Candidates]:
        """Yield blocks of candidates on the device; if queries have several vectors, candidates may too."""
        last_row = -1
        for rows, matrix in blocks:
            if matrix.ndim != 2 or matrix.shape[1] != self.side.vectors.shape[1]:
                raise InputError(
                    f"candidates have shape {matrix.shape}, queries {self.side.vectors.shape[1]} dimensions",
                    "Embed both with the same encoder",
                )
            if not len(rows):
                continue
            papers, offsets = rows, None
            if self.side.offsets is not None:
                starts = np.flatnonzero(np.diff(rows.astype(np.int64), prepend=-1))
                papers, offsets = rows[starts], torch.from_numpy(np.append(starts, len(rows))).to(self.device)
            if (np.diff(papers.astype(np.int64), prepend=last_row) <= 0).any():
                raise InputError(
                    f"candidate rows do not rise after row {last_row}",
                    "Give each candidate once, in order, with one vector",
                )
            vectors = torch.as_tensor(matrix, device=self.device).float().contiguous()
            if last_row < 0:
                self._start(vectors, rows)
            last_row = int(papers[-1])
            yield Candidates(papers, Side(vectors, offsets), *self._members(papers))

    def _start(self, vectors: Tensor, rows: Rows) -> None:
        """Make the estimates, with the mean of a sample of the first block as origin."""
        step = -(-len(vectors) // 512)
        sample = vectors[::step].double()
        check_lengths(torch.linalg.vector_norm(sample, dim=1), "candidate", rows[::step])
        origin = (unit(sample) if self.metric == "cosine" else sample).mean(0).float()
        for low in {False, self._low}:
            self.estimates[low] = Estimates(self.side, self.metric, origin, bfloat16=low)
        if self.side.offsets is None:
            self.shift = self.estimates[False].shift.cpu().numpy()

    def _members(self, rows: Rows) -> tuple[Bits, Ints]:
        members: Bits = np.zeros(len(rows), np.uint64)
        smallest: Ints = np.full(len(rows), len(self.subsets))
        for pool, (candidates, _) in reversed(list(enumerate(self.subsets))):
            inside = np.ones(len(rows), np.bool_)
            if candidates is not None:
                start, end = np.searchsorted(candidates, [rows[0], np.int64(rows[-1]) + 1])
                inside = np.isin(rows, candidates[start:end], assume_unique=True)
            members[inside] |= np.uint64(1 << pool)
            smallest[inside] = pool
        return members, smallest

    def _lists(self, empty: np.generic) -> Any:
        """Return empty lists of keys."""
        return TopK(len(self.subsets), self.queries, self.depth, empty)

    def scan(self, block: Candidates, queries: Ints, scored: Bits | None = None) -> None:
        """Score all candidates of a block that may be in the rankings of queries, int64 ``[q]``.

        ``scored`` are packed pairs of queries and positions that were scored before, rising.
        """
        waiting: list[Pairs] = []
        count, low, crowd = 0, self._low, _CROWD * len(self.subsets) * len(queries) * self.depth
        fits = self.resources.memory // 8 // 64
        for jobs in self._jobs(len(block.rows), queries):
            found = functools.partial(self._pairs, self.estimates[low], block)
            for pairs in in_order(found, jobs, self._workers, self._threads) if self._threads else map(found, jobs):
                waiting.append(self._bound(pairs))
                count += len(waiting[-1].owners)
                if count > min(crowd, fits):
                    waiting = [self._reaching(waiting)]
                    count = len(waiting[0].owners)
                    low = low and count < crowd / 2
                    if count > fits / 2:
                        self.score(block, waiting.pop(), scored)
                        count = 0
        if count:
            self.score(block, self._reaching(waiting), scored)

    def _jobs(self, count: int, queries: Ints) -> Iterator[list[Job]]:
        """Yield the jobs of a block in rounds: a sample, then always as many candidates as before."""
        largest = self._tile_size()
        step = 1 << max(-(-count // min(self.first, largest)) - 1, 0).bit_length()
        rounds = [(0, step), *((step >> n, step >> n - 1) for n in range(1, step.bit_length()))]
        for start, step in rounds:
            tiles = max(-(-count // step // largest), 1)
            chunks = max(min(-(-self._workers // tiles), len(queries) // _FEW), 1)
            samples = (
                slice(first, None, step * tiles) for first in range(start, min(start + step * tiles, count), step)
            )
            yield list(itertools.product(samples, np.array_split(queries, chunks)))

    def _tile_size(self) -> int:
        """Return the vectors of a tile; all workers' tiles take an eighth of memory."""
        memory = self.resources.memory // 8 // self._workers
        return int(np.clip(memory // (64 * max(len(self.side.vectors), 1)), 64, TILE))

    def _pairs(self, estimates: Estimates, block: Candidates, job: Job) -> Pairs:
        """Return the pairs of a tile that may be in a ranking."""
        sample, queries = job
        torch.set_num_threads(1)  # the setting is local to a thread
        tile = estimates.tile(block, sample, torch.from_numpy(queries))
        stride = tile.values.stride(0)
        values = torch.as_strided(tile.values, (stride * len(queries),), (1,)).numpy()
        positions = np.arange(len(block.rows))
        columns_of = positions, block.rows, block.members, block.smallest
        candidates = (np.ascontiguousarray(column[sample]) for column in columns_of)
        known: list[Any] = [queries, self.limits, *self.excluded]
        return Pairs._make(sift(values, stride, *(column.numpy() for column in tile[1:]), *candidates, *known))

    def _bound(self, pairs: Pairs) -> Pairs:
        """Raise the limits by the lower bounds of new pairs; return those that may still be in a ranking."""
        self._lows.add(pairs.owners, pairs.lowers, pairs.pools)
        self._raise_limits()
        return pairs

    def _reaching(self, waiting: Sequence[Pairs]) -> Pairs:
        """Return the pairs that reach limits."""
        return Pairs._make(map(np.concatenate, zip(*(reaching(*pairs, self.limits) for pairs in waiting), strict=True)))

    def score(self, block: Candidates, pairs: Pairs, scored: Bits | None = None) -> None:
        """Score pairs canonically, but for those scored before, and keep the best.

        Raises:
            StageError: a score exceeds its bound, for instance if the machine multiplies in less than float32.
        """
        if scored is not None:
            new = ~find_sorted(scored, pack(pairs.owners, pairs.positions))[1]
            pairs = Pairs._make(column[new] for column in pairs)
        size = self._score_size()
        shifts = torch.as_tensor(self.shift, device=self.device)
        for start in range(0, len(pairs.owners), size):
            *some, pools = (column[start : start + size] for column in pairs)
            owners, positions, uppers, lowers = (torch.as_tensor(column, device=self.device) for column in some)
            scores, shift = self._scores(block, owners, positions), shifts[owners]
            slack = _SLACK * (scores.abs() + shift.abs()) + 2.0**-140
            if ((scores - shift > uppers + slack) | (scores - shift < lowers - slack)).any():
                raise StageError(
                    "the fast pass is further from the exact scores than float32 arithmetic can be",
                    "Unset NVIDIA_TF32_OVERRIDE and similar settings, or search with --device=cpu",
                )
            self._best.add(some[0], self._keys(scores, block.rows, positions), pools)
        self._raise_limits()

    def _score_size(self) -> int:
        """Return the number of pairs that are scored at once."""
        return max(self.resources.memory // 16 // 256, 1)

    def _scores(self, block: Candidates, owners: Tensor, positions: Tensor) -> Tensor:
        """Return canonical scores of pairs before rounding, float64 ``[n]``."""
        known = self.metric, self.side, self.norms, block.papers
        return score_pairs(*known, owners, positions, self.resources.workers)

    def _keys(self, scores: Tensor, rows: Rows, positions: Tensor) -> Any:
        """Return the keys of scored candidates at ``positions`` of the rows of a block."""
        return to_keys(scores.numpy(), rows[positions.numpy()])

    def _raise_limits(self) -> None:
        """Compute the limits from the last scores and lower bounds of full lists, with a margin.

        Scores are rounded to float32, and an entry whose score then ties with the last one may enter by its row.
        """
        scores = np.where(self._best.least == EMPTY, np.float32(-np.inf), from_keys(self._best.least)[0])
        known = np.maximum(self._lows.least, scores - self.shift)
        self.limits: Scores = (known - (np.abs(known) + np.abs(self.shift)) * MARGIN - 2.0**-147).astype(np.float32)

    def rankings(self) -> list[Ranking]:
        """Return the ranking of each pool."""
        return [self._best.ranking(self._by_size.index(pool)) for pool in range(len(self.subsets))]


class ExactEngine:
    """Exact nearest-neighbour search that reads candidates once.

    Args:
        operations: expected number of operations, 0 if unknown; decides precision, and the device of ``auto``.
        bfloat16: whether to multiply in bfloat16; None: if that is faster.
    """

    def __init__(self, operations: float = 0.0, *, bfloat16: bool | None = None) -> None:
        self.operations, self.bfloat16 = operations, bfloat16

    def search_pools(
        self,
        queries: Vectors | Groups,
        blocks: Iterable[VectorBlock],
        subsets: Sequence[Subset],
        *,
        metric: Metric,
        depth: int,
        resources: Resources,
        done: Done = base.ignored,
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
        device = self.device(resources)
        search = self.state(device)(
            queries, metric, depth, subsets, resources, device, bfloat16=self._low(len(queries), device)
        )
        try:
            with one_thread():
                for block in _prefetch(search.blocks(blocks), device):
                    if search.queries:
                        self.rank(search, block)
                    done(len(block.rows))
                return search.rankings()
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"the memory of {device} is too short for a block of candidates ({error})",
                "Free it from other programs, lower --memory (blocks are smaller then), or choose --device=cpu",
            ) from error

    def state(self, device: torch.device) -> type[Search]:
        """Return the class of the state of a search on a device."""
        if device.type == "cpu":
            return Search
        from pipeline.retrieve.gpu import GpuSearch

        return GpuSearch

    def rank(self, search: Search, block: Candidates) -> None:
        """Add the candidates of a block to the rankings."""
        search.scan(block, np.arange(search.queries))

    def device(self, resources: Resources) -> torch.device:
        """Return the device of the search; ``auto`` is a GPU if there is one and the search is large enough."""
        name = "cpu" if resources.device == "auto" and self.operations < _GPU_PAYS else resources.device
        index = gpu_number(name, gpus(), "torch", "Choose --device=cpu, or install torch for CUDA")
        return torch.device("cpu") if index is None else torch.device("cuda", index)

    def _low(self, queries: int, device: torch.device) -> bool:
        if self.bfloat16 is not None:
            return self.bfloat16
        if device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return queries >= _FEW and self.operations >= _LOW_PAYS and bfloat16_pays()


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
