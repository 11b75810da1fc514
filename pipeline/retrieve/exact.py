"""Exact search on the CPU: the default engine.

A matrix product estimates the scores of a tile of candidates. What comes within the error bound of the worst entry kept
so far goes to its list's reservoir; a reservoir that has doubled is trimmed to what its own estimates cannot rule
out. Where memory allows, what is left after many blocks is scored canonically, hardly more than ``depth`` candidates a
list; else after each block, while its vectors are at hand. Where the bound separates nothing (thousands of equal
vectors) all candidates are scored canonically: slower, never approximate.

Products are made in float32, in bfloat16 where the processor has instructions for it and the search is large enough,
and in whole numbers (int8) where those are much faster still (:mod:`pipeline.retrieve.dense.products`) and separate
enough: the first candidates of each chunk are multiplied so, and how many come near decides about the rest. What comes
near gets a closer product before it is kept.

Some candidates of each block, spread over it, are multiplied as soon as it is read, before those of earlier blocks that
still wait: they show what is likely too bad to be among the best, so that little is kept. The lists show in the end
whether all that was dropped is worse than what they hold: queries for which it is not sure are searched again, without
a guess.

Several pools with the same queries share the products: what is near enough for any of them is looked at for each.

Threads divide the candidates, and lock the reservoirs they put them in. While they work at some blocks of the caller's,
the next ones are read.

Memory beside the queries: two blocks of the caller's (half of ``memory`` at most, see
:func:`pipeline.retrieve.base.block_rows`), vectors that wait to be multiplied and scored (a quarter, and what blocks
leave of their half), reservoirs (an eighth, or 64 MB a thread), points (an eighth), pairs that are scored (a sixteenth,
when products are over), and eight bytes an entry of the result.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.order import Rows
from pipeline.core.resources import Resources
from pipeline.retrieve.base import Block, DenseEngine, Done, Metric, Ranking, Subset, Vectors, ignored
from pipeline.retrieve.dense import products
from pipeline.retrieve.dense.frame import stored
from pipeline.retrieve.dense.reservoirs import (
    ENTRY,
    QUERY_TILE,
    ROW_TILE,
    Reservoir,
    collect,
    entries,
    flush,
    reservoir,
    threads,
    tiles,
)
from pipeline.retrieve.dense.rounded import WHOLE
from pipeline.retrieve.dense.scan import Search
from pipeline.retrieve.dense.stretch import Chunk, Stretch
from pipeline.retrieve.toplists import Positions

_Thing = TypeVar("_Thing")

CHUNK = 3 << 20
"""Coordinates of the candidates that a thread takes at once, at most."""

TRIAL = 128
"""Candidates of a chunk that are tried in whole numbers."""

SCOUTS = 64
"""One of so many candidates of a block is multiplied ahead, to show what is too bad to be kept."""

AHEAD = 8
"""Blocks that are read before another one is done."""

_SCOUT_TILE = 512
"""Scouts of a tile: a reservoir of theirs needs little room beside what is wanted."""

NEAR = 1 / 5
"""Where more of the pairs tried come near than this, making their products closer costs more than whole numbers save.

Those tried are the first of a chunk: later ones have higher thresholds to reach."""

MANY = 600_000
"""Pairs a thread that are scored together, where memory allows: the more there are, the more share a candidate."""

_PAIR = 100
"""Bytes that a pair takes while it is scored."""

_LONGEST = 1 << 24
"""Positions from here on are not exact in float32."""


class ExactEngine(DenseEngine):
    """Blocked products with canonical rescoring; see :class:`pipeline.retrieve.base.DenseEngine`.

    Args:
        operations: of the products to come; what is known of them decides in which precision they are made.
        low: whether they are made in bfloat16, not in float32; None: where that is faster.
        whole: whether they may be made in whole numbers, where that separates enough; None: where it is faster.
    """

    def __init__(self, operations: float = 0.0, *, low: bool | None = None, whole: bool | None = None) -> None:
        self.low = products.halves_pay(operations) if low is None else low
        self.whole = products.wholes_pay(operations) if whole is None else whole

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
        """Return the rankings of several pools (:meth:`pipeline.retrieve.base.DenseEngine.search_pools`)."""
        whole = self.whole and queries.shape[-1] <= products.MOST_WHOLES
        search = Search(queries, metric, depth, subsets, low=self.low, whole=whole)
        room = entries(search) + entries(search, 1 / SCOUTS, _SCOUT_TILE)
        if ENTRY * search.queries * room > resources.memory // 8:
            for block in search.framed(blocks, resources):
                collect(search, block, np.arange(search.queries), resources.workers)
                done(len(block))
            return search.rankings()
        with threads(search, resources.workers) as workers:
            together = _Together(search, resources, workers, done)
            for rows, vectors in blocks:
                together.add(rows, vectors)
            together.flush()
            return search.rankings(resources.workers, workers.map)


class _Together:
    """Scores candidates of several blocks at once: most of what a block lets through falls later.

    Args:
        search: the search under way.
        resources: limits of memory.
        workers: threads.
        done: told how many more candidates are multiplied.
    """

    def __init__(self, search: Search, resources: Resources, workers: ThreadPoolExecutor, done: Done) -> None:
        self._search, self._resources, self._workers, self._done = search, resources, workers, done
        self._groups: list[_Group] = []
        self._scouts: list[Reservoir] = []
        self._stretch = Stretch()
        self._jobs: deque[Callable[[], None]] = deque()
        self._running: deque[tuple[list[Future[None]], int]] = deque()
        self._own = threading.local()

    def add(self, rows: Rows, vectors: Vectors) -> None:
        """Take a block in, when few others wait; return while threads work at them."""
        search = self._search
        if len(rows) != len(vectors):
            raise InputError(f"a block has {len(rows)} rows and {len(vectors)} vectors", "Give one vector a row")
        if not len(rows):
            return  # no mean to place the frame at
        search.check_rise(rows)
        dimension = search.start(vectors).dimension
        self._finish(AHEAD)
        most = min(self._waiting(len(rows), dimension), _LONGEST)
        if not self._groups:
            self._groups = _groups(search, np.arange(search.queries), self._resources.workers)
            self._scouts = [
                Reservoir(search, held.queries, held.shift, 1 / SCOUTS, _SCOUT_TILE) for held in self._held()
            ]
        for start in range(0, len(rows), most):
            end = min(start + most, len(rows))
            if len(self._stretch) + end - start > most:
                self.flush()
            surveys = self._surveys(rows[start:end], vectors[start:end])
            chunks = self._stretch.add(rows[start:end], vectors[start:end], self._chunks(end - start, dimension))
            self._start(chunks, surveys, end - start)

    def _waiting(self, count: int, dimension: int) -> int:
        """Return how many vectors may wait to be scored, where the caller's blocks have so many."""
        quarter = self._resources.memory // 4
        return max(quarter, 3 * quarter - 8 * count * dimension) // (4 * dimension) + 1

    def _surveys(self, rows: Rows, vectors: Vectors) -> list[Callable[[], None]]:
        """Return jobs that multiply some candidates, spread over all, and tell the reservoirs what they show."""
        search, frame = self._search, self._search.frame
        if not self._scouts or len(rows) < SCOUTS * search.depth // 2:
            return []
        some, vectors = rows[::SCOUTS], stored(vectors[::SCOUTS], frame.dimension)
        block = frame.place(some, vectors, products.aligned(vectors.shape, frame.kind))
        members, bound = search.members(some), frame.bound(block.radius)

        def survey(scouts: Reservoir, held: Reservoir) -> None:
            points = frame.rounded[frame.kind].points[held.queries]
            with scouts.lock:
                scouts.enter(bound[held.queries], block.lengths[held.queries])
                for start in range(0, len(block), _SCOUT_TILE):
                    tile = products.product(points, block.points[start : start + _SCOUT_TILE])
                    scouts.survey(tile, start, block, members)
                scouts.tidy()
                with held.lock:
                    held.believe(scouts)

        return [functools.partial(survey, *pair) for pair in zip(self._scouts, self._held(), strict=True)]

    def _chunks(self, count: int, dimension: int) -> int:
        """Return into how many chunks to divide so many candidates: a whole number for every thread."""
        workers = self._resources.workers
        largest = min(CHUNK, self._resources.memory // (32 * workers)) // dimension
        return -(-count // (workers * max(largest, 1))) * workers

    def _start(self, chunks: Sequence[Chunk], surveys: Sequence[Callable[[], None]] = (), count: int = 0) -> None:
        """Have threads sift chunks of so many new candidates after all that waits, and make surveys before it."""
        self._jobs.extendleft(surveys)
        self._jobs.extend(functools.partial(self._sift, chunk) for chunk in chunks)
        jobs = [self._workers.submit(lambda: self._jobs.popleft()()) for _ in range(len(surveys) + len(chunks))]
        self._running.append((jobs, count))

    def _finish(self, ahead: int = 0) -> None:
        """Wait until the threads have done what they were given, but for the last few blocks."""
        while len(self._running) > ahead:
            jobs, count = self._running.popleft()
            for each in jobs:
                each.result()
            self._done(count)

    def flush(self) -> None:
        """Score what is left of the blocks so far; where guesses failed, begin again."""
        doubtful = self._score()
        self._scouts = []
        if len(doubtful):
            search, workers = self._search, self._resources.workers
            self._groups = []  # before there are others: reservoirs are large
            self._groups = _groups(search, doubtful, workers)
            search.best.clear(doubtful)
            self._start(self._stretch.chunks)
            self._score()
            self._groups = []
            self._groups = _groups(search, np.arange(search.queries), workers)
        self._stretch = Stretch()

    def _score(self) -> Positions:
        """Score what the reservoirs hold when the threads are done; return the queries that lost something."""
        self._finish()
        held = self._held()
        if not held:
            return np.empty(0, np.int64)
        together = min(MANY * self._resources.workers, self._resources.memory // (16 * _PAIR))
        flush(held, self._stretch, together, self._workers.map)
        return np.concatenate([each.doubtful() for each in held])

    def _held(self) -> list[Reservoir]:
        return [held for group in self._groups for held in group.reservoirs]

    def _sift(self, chunk: Chunk) -> None:
        """Move a chunk into the frame and put what is near enough into the reservoirs."""
        search = self._search
        chunk.vectors = stored(chunk.vectors, search.frame.dimension)
        kind, first = search.frame.kind, 0
        if search.whole:
            first = min(TRIAL, len(chunk))
            pairs = first * sum(len(held.queries) for held in self._held())
            kind = WHOLE if self._sweep(chunk, 0, first, WHOLE) <= NEAR * pairs else kind
        self._sweep(chunk, first, len(chunk), kind)

    def _sweep(self, chunk: Chunk, first: int, last: int, kind: np.dtype[Any]) -> int:
        """Sift some candidates of a chunk, multiplied as points of a kind; return how many pairs came near."""
        return sum(
            self._sift_tile(chunk, slice(start, min(start + ROW_TILE, last)), kind)
            for start in range(first, last, ROW_TILE)
        )

    def _sift_tile(self, chunk: Chunk, here: slice, kind: np.dtype[Any]) -> int:
        search, frame = self._search, self._search.frame
        shape = here.stop - here.start, frame.dimension
        points, rests = self._room("points", kind, shape), self._room("rests", WHOLE, shape) if kind == WHOLE else None
        block = frame.place(chunk.rows[here], chunk.vectors[here], points, rests=rests)
        chunk.norms[here] = block.norms
        members, bound = search.members(block.rows), frame.bound(block.radius)
        reached = 0
        for group in _rotated(self._groups, chunk.number):
            queries = frame.rounded[kind].points[group.queries]
            tile = self._room("products", products.STORED[kind], (len(queries), len(block)))
            products.product(queries, block.points, tile)
            waiting = _rotated(list(zip(group.reservoirs, group.rows, strict=True)), chunk.number)
            while waiting:
                held, rows = waiting.pop(_free(waiting))
                try:
                    held.enter(bound[held.queries], block.lengths[held.queries])
                    reached += held.sift(tile[rows], 0, block, members, self._stretch, chunk.start + here.start)
                finally:
                    held.lock.release()
        return reached

    def _room(self, use: str, kind: np.dtype[Any], shape: tuple[int, int]) -> Any:
        """Return memory of this thread, used again: what is asked for anew is slow."""
        rooms = self._own.__dict__
        name, count = f"{use} {kind}", shape[0] * shape[1]
        if name not in rooms or len(rooms[name]) < count:
            rooms[name] = products.aligned(count, kind)
        return rooms[name][:count].reshape(shape)


class _Group(NamedTuple):
    """Queries that are multiplied together.

    Attributes:
        queries: which of all.
        reservoirs: of some of them each, in order.
        rows: where those queries are in the group.
    """

    queries: slice | Positions
    reservoirs: list[Reservoir]
    rows: list[slice]


def _free(waiting: list[tuple[Reservoir, slice]]) -> int:
    """Lock the first reservoir that no other thread holds, or wait for the first of all; return which."""
    for number, (held, _) in enumerate(waiting):
        if held.lock.acquire(blocking=False):
            return number
    waiting[0][0].lock.acquire()
    return 0


def _rotated(things: list[_Thing], turn: int) -> list[_Thing]:
    """Return things in another order each turn, so that threads seldom wait for each other."""
    first = turn % max(len(things), 1)
    return things[first:] + things[:first]


def _groups(search: Search, queries: Positions, workers: int) -> list[_Group]:
    """Return reservoirs of some queries: as many as threads, so that they seldom wait, in groups worth a product."""
    shares = np.array_split(queries, tiles(len(queries), workers))
    most = QUERY_TILE if search.rounded and not products.has_tiles() else 2 * QUERY_TILE
    together = max(1, most // max(len(shares[0]), 1))
    groups = []
    for first in range(0, len(shares), together):
        some = [share for share in shares[first : first + together] if len(share)]
        if some:
            own, ends = np.concatenate(some), np.cumsum([0, *map(len, some)]).tolist()
            rows = [slice(start, end) for start, end in itertools.pairwise(ends)]
            span = slice(int(own[0]), int(own[-1]) + 1)  # uncopied, where it is them all
            in_a_row = span.stop - span.start == len(own)
            groups.append(_Group(span if in_a_row else own, [reservoir(search, share) for share in some], rows))
    return groups
