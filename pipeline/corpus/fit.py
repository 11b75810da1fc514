"""The largest pools that a corpus has papers for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Ints
from pipeline.core.errors import InsufficientDataError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.rng import smallest
from pipeline.core.settings import Count
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import drawable
from pipeline.corpus.prefilter import Mask, prefilter
from pipeline.corpus.queries import Queries, choose_queries, draw_priorities, queries_by_year
from pipeline.corpus.reader import Corpus

_NONE = np.empty(0, np.int64)


def largest(
    corpus: Corpus,
    config: PoolConfig,
    fields: Sequence[str | None],
    sizes: Sequence[Count],
    free: Collection[str],
    exclude: Sequence[str] = (),
    *,
    held_out: bool = False,
) -> dict[str, Any]:
    """Return the year, the number of queries and the size nearest to those of some pools that a corpus has papers for.

    Pools of several fields share them, so that they stand in one table. Of all fields, those with fewer queries are
    left out: the number is the one with most queries over the fields that have it.

    Args:
        corpus: the corpus.
        config: settings of the pools, with the year and the queries wanted.
        fields: of the pools; None is the dataset level.
        sizes: sizes wanted.
        free: which of ``year``, ``queries`` and ``size`` may change. The year changes to the one with most queries.
        exclude: ids of papers that may not be queries.
        held_out: whether as many queries must be left for validation.

    Returns:
        What changes, by setting; empty if nothing does, or nothing fits.
    """
    prefiltered = prefilter(corpus.attributes, config.prefilter)[0]
    rows = corpus.rows_of(exclude)
    excluded = rows[rows >= 0]
    asked = config = dataclasses.replace(config, split="test")
    every = len(fields) == len(MAG_FIELDS)
    shared = _most if every else min

    def pools_of(config: PoolConfig) -> list[_Drawn]:
        number: Count = "all" if config.queries == "all" else config.queries * (1 + held_out)
        configs = [dataclasses.replace(config, field=field, queries=number) for field in fields]
        return [_up_to(corpus, wanted, prefiltered, excluded, held_out) for wanted in configs]

    def lacking() -> bool:
        return (max if every else min)(pool.number for pool in pools) < (1 if asked.queries == "all" else asked.queries)

    pools = pools_of(config)
    if lacking() and "year" in free:
        by_field = [queries_by_year(corpus, pool.config, prefiltered, excluded) for pool in pools]
        best = [shared(counts) for counts in np.stack(by_field).T.tolist()]
        years = range((config.after_cutoff or -1) + 1, len(best))
        config = dataclasses.replace(config, year=max(years, key=lambda year: (best[year], year), default=config.year))
        pools = pools_of(config)
        if lacking() and "queries" not in free:
            return {}
    number = config.queries
    if lacking() and "queries" in free:
        number = shared([pool.number for pool in pools])
    pools = [pool for pool in pools if number == "all" or pool.number >= number]
    fitted = list(sizes)
    for pool in pools if "size" in free else ():
        fitted = [size if size == "all" else min(size, _room(corpus, pool, prefiltered, size)) for size in fitted]
    numbers = [size for size in fitted if size != "all"]
    if numbers and "queries" in free and number != "all":
        number = min([number, *(pool.within(min(numbers)) for pool in pools)])
    if number == 0:
        return {}
    fitting = {"year": config.year, "queries": number, "size": tuple(dict.fromkeys(fitted))}
    wanted = {"year": asked.year, "queries": asked.queries, "size": tuple(sizes)}
    return {name: value for name, value in fitting.items() if value != wanted[name]}


@dataclass(frozen=True)
class _Drawn:
    """A pool and its queries: as many as asked for, or all there are.

    Attributes:
        config: its settings.
        queries: those of the test pool; with ``held_out`` those of the validation pool too.
        keys: of the queries, uint64 ``[queries]``.
        held_out: whether as many queries are left for validation.
    """

    config: PoolConfig
    queries: Queries
    keys: npt.NDArray[np.uint64]
    held_out: bool

    @property
    def number(self) -> int:
        """How many queries a pool can have."""
        return len(self.keys) // (1 + self.held_out)

    def within(self, size: int) -> int:
        """Return how many queries, in the order drawn, have positives that fit in a pool of some size."""
        place = np.empty(len(self.keys), np.int64)
        place[smallest(draw_priorities(self.keys, self.config), len(self.keys))] = np.arange(len(self.keys))
        positives, inverse = np.unique(self.queries.positives, return_inverse=True)
        first = np.full(len(positives), len(self.keys), np.int64)
        np.minimum.at(first, inverse, place[self.queries.owner])
        fitting = int(np.searchsorted(np.cumsum(np.bincount(first, minlength=len(self.keys))), size, side="right"))
        return fitting // (1 + self.held_out)


def _most(counts: Sequence[int]) -> int:
    """Return the number with most queries over the fields that have at least so many."""
    return max(counts, key=lambda count: count * sum(other >= count for other in counts))


def _up_to(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints, held_out: bool) -> _Drawn:
    """Return a pool and its queries: as many as asked for, or all there are."""
    queries = Queries(np.empty(0, np.uint32), _NONE, np.empty(0, np.uint32), {})
    for number in (config.queries, "all"):
        with contextlib.suppress(InsufficientDataError):
            asked = dataclasses.replace(config, queries=number)
            queries = choose_queries(corpus, asked, prefiltered, excluded)
            break
    return _Drawn(config, queries, corpus.attributes["key"][queries.rows], held_out)


def _room(corpus: Corpus, pool: _Drawn, prefiltered: Mask, wanted: int) -> int:
    """Return how many candidates a pool can have; counting may stop beyond ``wanted``."""
    source = drawable(corpus, pool.config, prefiltered, wanted)
    if not pool.held_out:
        source[pool.queries.positives] = True
    return int(np.count_nonzero(source))
