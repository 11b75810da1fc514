"""Candidates that could be among the best of some queries, kept by estimate until they are scored."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Protocol, TypeVar

import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from pipeline.core.errors import StageError
from pipeline.retrieve.dense import products, sieves, trims
from pipeline.retrieve.dense.frame import FramedBlock
from pipeline.retrieve.dense.pairs import Doubles, Pairs
from pipeline.retrieve.dense.rounded import WHOLE, Closer, Floats
from pipeline.retrieve.dense.scan import Members, Scored, Search
from pipeline.retrieve.toplists import Each, Positions

_Share = TypeVar("_Share")

QUERY_TILE = 256
SMALLEST_QUERY_TILE = 32
ROW_TILE = 2_048
"""A tile of products, 1 MiB in bfloat16, 2 in int32, 4 in float32: between the product and the comparison it stays in a
core's cache, or most of it does."""

KEEP = 3
"""How many times what is wanted of all pools a reservoir may hold."""

ENTRY = 12 + 8
"""Bytes of an entry of a reservoir, its pools included."""

SCORED = 200_000
"""Pairs that are scored together, where memory is not known to allow more."""

_LOWEST = -3e38
"""Below any estimate."""

_RESERVOIRS = 64 << 20
"""Bytes of the reservoirs of one tile of queries, unless there are very many pools."""


def collect(search: Search, block: FramedBlock, queries: Positions, workers: int) -> None:
    """Absorb from a block every candidate that could be among the best of some of the queries, in every pool.

    Args:
        search: the search under way.
        block: the candidates.
        queries: int64 ``[n]``, which queries, rising.
        workers: threads.
    """
    if not len(queries):
        return
    members, bound = search.members(block.rows), search.frame.bound(block.radius)

    def work(share: Positions) -> None:
        held = reservoir(search, share)
        held.enter(bound[share], block.lengths[share])
        points = search.frame.rounded[block.points.dtype].points[share]
        for start in range(0, len(block), ROW_TILE):
            tile = products.product(points, block.points[start : start + ROW_TILE])
            held.sift(tile, start, block, members, block, 0)
        flush([held], block)

    in_threads(search, workers, work, np.array_split(queries, tiles(len(queries), workers, most=affordable(search))))


def affordable(search: Search) -> int:
    """Return of how many queries a thread may hold reservoirs."""
    return _RESERVOIRS // (ENTRY * entries(search))


def entries(search: Search, share: float = 1.0, width: int = ROW_TILE) -> int:
    """Return how many entries a query's reservoir has room for, of all pools together; see :class:`Reservoir`."""
    wanted = _likely(search.depth + search.excluded.max(initial=0), share)
    return capacity(search.pools * int(wanted), width)


def tiles(queries: int, workers: int, *, vectors: float = 1.0, most: int = QUERY_TILE) -> int:
    """Return into how many tiles to divide queries of so many vectors each: a whole number for every thread."""
    size = max(int(SMALLEST_QUERY_TILE / vectors), min(int(QUERY_TILE / vectors), most), 1)
    count = -(-max(queries, 1) // size)
    return min(-(-max(count, min(workers, queries)) // workers) * workers, max(queries, 1))


@contextmanager
def threads(search: Search, workers: int) -> Iterator[ThreadPoolExecutor]:
    """Yield threads whose products have no further threads."""
    with (
        _libraries().limit(limits=1, user_api="blas"),
        products.single_threaded(search.rounded) as initializer,
        ThreadPoolExecutor(workers, initializer=initializer) as found,
    ):
        try:
            yield found
        except BaseException:
            found.shutdown(wait=False, cancel_futures=True)
            raise


@functools.cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    """Return the libraries that multiply for NumPy; to look for them takes a millisecond."""
    return threadpoolctl.ThreadpoolController()


def in_threads(search: Search, workers: int, work: Callable[[_Share], None], shares: Iterable[_Share]) -> None:
    """Do the work of each share in a thread of its own."""
    with threads(search, workers) as found:
        list(found.map(work, shares))


def capacity(wanted: int, width: int = ROW_TILE) -> int:
    """Return how many entries a reservoir has room for, of which so many are wanted in all pools: a multiple of 64."""
    return -(-(KEEP * wanted + width) // 64) * 64


class Estimated(Protocol):
    """What is known of candidates beside their products (:class:`pipeline.retrieve.dense.frame.FramedBlock`)."""

    @property
    def bias(self) -> Floats:
        """Float32 ``[m]``, added."""

    @property
    def spread(self) -> Floats:
        """Float32 ``[m]``, how far off a product can be, as a share of the query's length."""

    @property
    def grains(self) -> Floats:
        """Float32 ``[m]``, units of whole numbers."""

    @property
    def closer(self) -> Closer:
        """What makes products of whole numbers closer."""


class Reservoir:
    """Candidates that could be among the best of some queries in any pool, by estimate; not yet scored.

    Each is there once, however many pools it is in.

    Args:
        search: the search under way.
        queries: int64 ``[n]``, whose lists, rising.
        shift: float64 ``[n]``, added to estimates.
        share: of the candidates that it meets, spread over them. Of those wanted of all, such a share hardly ever holds
            more than four deviations and five above the expected number (once in 30,000 lists, if they lie at random).
        width: of the widest tile it is given.

    Attributes:
        lock: held by who changes a reservoir that several threads share.
    """

    def __init__(
        self, search: Search, queries: Positions, shift: Doubles, share: float = 1.0, width: int = ROW_TILE
    ) -> None:
        self.search, self.queries = search, queries
        self.lock = threading.Lock()
        self.lengths, self.shift = np.empty(0, np.float32), shift
        self.units, self.parts = {}, search.frame.parts.some(queries[:0])
        if search.whole:
            self.units[np.dtype(np.int32)] = search.frame.rounded[WHOLE].grains[queries]
            self.parts = search.frame.parts.some(queries)
        self.ones = np.ones(len(queries), np.float32)
        self.scale = search.frame.scale
        self.lists = search.lists(queries)
        self.wanted = _likely(search.depth + search.excluded[self.lists], share)
        size = capacity(int(self.wanted.sum(axis=1).max()), width)
        self.records = np.empty((len(queries), size, 3), np.float32)
        self.masks = np.empty((len(queries), size if search.pools > 1 else 0), _unsigned(search.pools))
        self.most = KEEP * self.wanted.sum(axis=1)
        self.bound = np.zeros(len(queries))
        self.guessed = False
        self.dropped = np.full(self.lists.shape, -np.inf)
        self.thresholds = np.full(self.lists.shape, _LOWEST, np.float32)
        self.empty()

    def enter(self, bound: Doubles, lengths: Floats) -> None:
        """Prepare for candidates with another bound; those met before keep theirs, so the larger one counts.

        Args:
            bound: float64 ``[n]``, how far off estimates can be beside their margins.
            lengths: float32 ``[n]``, what the candidates' spread is a share of.
        """
        self.lengths = lengths
        larger = np.maximum(self.bound, bound)
        if (larger > self.bound).any():
            self._note_dropped()
            self.thresholds = _down(self.thresholds - 2.0 * (larger - self.bound)[:, None] / self.scale)
            self.bound = larger

    def tidy(self) -> None:
        """Drop what cannot be among the best."""
        trims.tidy(*self._reservoirs())

    def empty(self) -> None:
        """Begin again: what was kept is scored."""
        self.counts = np.zeros(len(self.queries), np.int64)
        self.limits = self.wanted.max(axis=1) * 2
        self._raise_thresholds()

    def survey(self, tile: Any, start: int, block: Estimated, members: Members) -> None:
        """Learn from a tile what the best are like, where nothing is to be scored; arguments as of :meth:`sift`."""
        self._sieve(tile, start, block, members, 0)
        self.counts[self.counts > self.most] = 0  # what they have shown stays true

    def believe(self, scouts: Reservoir) -> None:
        """Keep no more of what a share of the candidates, surveyed for the same queries, shows as likely too bad.

        That is a guess: :meth:`doubtful` tells where it was wrong.
        """
        away = 2.0 * np.maximum(self.bound - scouts.bound, 0.0)[:, None] / self.scale
        self.thresholds = np.maximum(self.thresholds, _down(scouts.thresholds - away))
        self.guessed = True

    def doubtful(self) -> Positions:
        """Return the queries that may have lost some of their best to guesses, now that all is scored; forget these.

        Their lists hold what was found, none of it wrong: their floors are true.
        """
        if not self.guessed:
            return self.queries[:0]
        self._note_dropped()
        floors = self.search.best.floors(self.lists)
        lost = (self.dropped + self.shift[:, None] > floors).any(axis=1)
        self.guessed = False
        self.thresholds = np.full_like(self.thresholds, _LOWEST)
        self.empty()
        return self.queries[lost]

    def _note_dropped(self) -> None:
        """Note below what, as scores are measured less the shift, candidates of each list were dropped."""
        below = np.where(self.thresholds > np.float32(_LOWEST), self.thresholds.astype(np.float64), -np.inf)
        self.dropped = np.maximum(self.dropped, self.scale * below + self.bound[:, None])

    def _raise_thresholds(self) -> None:
        """Let in only what can be better than the worst of each list."""
        floors = self.search.best.floors(self.lists)
        self.thresholds = np.maximum(self.thresholds, _down((floors - (self.shift + self.bound)[:, None]) / self.scale))

    def sift(self, tile: Any, start: int, block: Estimated, members: Members, scored: Scored, base: int) -> int:
        """Sift a tile of products (:func:`pipeline.retrieve.dense.sieves.sieve`); score if too much stays.

        Args:
            tile: ``[n, w]``.
            start: of its first candidate, in the block.
            block: what is known of the candidates.
            members: uint64 ``[m]``, the pools of each.
            scored: what scores them, and those met before.
            base: position of the block's first there.

        Returns:
            How many products were made closer.

        Raises:
            StageError: a product of whole numbers is wrong.
        """
        reached = self._sieve(tile, start, block, members, base)
        if (self.counts > self.most).any():
            flush([self], scored)
        return reached

    def _sieve(self, tile: Any, start: int, block: Estimated, members: Members, base: int) -> int:
        units = self.units.get(tile.dtype, self.ones)
        rounding = np.float32(products.ROUNDING if tile.dtype == np.uint16 else 0.0)
        known = block.bias, block.spread, block.grains, members
        parts = self.parts if tile.dtype == np.int32 else self.parts.some(self.queries[:0])
        reached: int = sieves.sieve(
            tile,
            start,
            base,
            *known,
            units,
            self.lengths,
            rounding,
            tuple(parts),
            tuple(block.closer),
            *(*self._reservoirs(), self.limits, self.most),
        )
        if reached < 0:
            raise StageError(
                "a product of whole numbers is wrong", "Unset ONEDNN_ settings, or search with the engine 'faiss'"
            )
        return reached

    def settle(self, share: int, shares: int) -> tuple[Pairs, Pairs]:
        """Return what is kept of a share of the queries, those pairs first that are most likely to stay."""
        first, last = (len(self.queries) * number // shares for number in (share, share + 1))
        room = Pairs.room(2 * int(self.counts[first:last].sum()))
        known = self.queries, self.scale, self.shift, self.bound, self.wanted, self.thresholds
        ahead, behind = trims.settle(first, last, *known, self.records, self.masks, self.counts, room)
        middle = len(room.queries) // 2
        return room.part(0, ahead), room.part(middle, middle + behind)

    def _reservoirs(self) -> tuple[Any, ...]:
        slack = self.search.frame.slack(self.bound)
        return self.wanted, slack, self.shift / self.scale, self.thresholds, self.records, self.masks, self.counts


def reservoir(search: Search, queries: Positions) -> Reservoir:
    """Return a reservoir of some queries with one vector each."""
    return Reservoir(search, queries, search.frame.shift[queries])


def flush(held: Sequence[Reservoir], scored: Scored, together: int = SCORED, each: Each = map) -> None:
    """Score what some reservoirs of a search keep, and empty them.

    Args:
        held: the reservoirs, of different queries each.
        scored: what scores candidates, all those met since they were last empty.
        together: how many pairs to score at a time, about.
        each: as of :meth:`pipeline.retrieve.dense.scan.Search.absorb`.
    """
    search = held[0].search
    removed = search.removed(scored.rows)
    list(each(Reservoir.tidy, held))
    shares = max(1, -(-sum(int(one.counts.sum()) for one in held) // together))
    for share in range(shares):
        for some in zip(*each(Reservoir.settle, held, repeat(share), repeat(shares)), strict=True):
            likely = list(each(search.likely, some, repeat(removed)))
            search.absorb(scored, likely, each)
    for one in held:
        one.empty()


def _likely(wanted: Any, share: float) -> Any:
    """Return how many of those wanted of all a share of the candidates has at most, all but surely."""
    expected = share * wanted
    return np.minimum(wanted, expected + 4.0 * np.sqrt(expected) + 5.0).astype(np.int64)


def _unsigned(pools: int) -> type[np.uint16 | np.uint64]:
    """Return numbers with a bit for each pool."""
    return np.uint16 if pools <= 16 else np.uint64


def _down(values: Doubles) -> Floats:
    """Return float32 that are less, and finite."""
    found: Floats = np.nextafter(np.maximum(values, _LOWEST).astype(np.float32), np.float32(-np.inf))
    return found
