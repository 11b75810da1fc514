"""Reduce pools to what a corpus has enough papers for."""

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
from pipeline.corpus.queries import Queries, QuerySource, choose_queries, draw_priorities, queries_by_year
from pipeline.corpus.reader import Corpus


def largest(
    corpus: Corpus,
    config: PoolConfig,
    fields: Sequence[str | None],
    sizes: Sequence[Count],
    free: Collection[str],
    exclude: Sequence[str] = (),
    *,
    held_out: bool = False,
) -> dict[str, Any] | None:
    """Return the year, the number of queries and the sizes, nearest to the requested ones, that a corpus can fill.

    Pools of several fields share these values, so that one table can hold them. If the pools are of all fields, fields
    with fewer queries are left out: the number of queries maximises the total over the fields that have so many.

    Args:
        corpus: the corpus.
        config: settings of the pools, with the requested year and number of queries.
        fields: fields of the pools; None is the dataset level.
        sizes: requested sizes.
        free: which of ``year``, ``queries`` and ``size`` may change. The year changes to the one with most queries.
        exclude: ids of papers that may not be queries.
        held_out: whether queries must remain for validation: the configuration's ``validation_queries``, or as many.

    Returns:
        The changed settings; None if nothing fits.
    """
    prefiltered = prefilter(corpus.attributes, config.prefilter)[0]
    rows = corpus.rows_of(exclude)
    excluded = rows[rows >= 0]
    requested = config = dataclasses.replace(config, split="test")
    all_fields = len(fields) == len(MAG_FIELDS)
    common_count = _best_count if all_fields else min

    def pools_of(config: PoolConfig) -> list[_PoolQueries]:
        count = config.queries
        if count != "all" and held_out:
            count += config.validation_queries or count
        configs = [dataclasses.replace(config, field=field, queries=count) for field in fields]
        return [_draw_queries(corpus, of_field, prefiltered, excluded, held_out) for of_field in configs]

    def too_few() -> bool:
        available = (max if all_fields else min)(pool.query_count for pool in pools)
        return available < (1 if requested.queries == "all" else requested.queries)

    pools = pools_of(config)
    if too_few() and "year" in free:
        by_field = [queries_by_year(corpus, pool.config, prefiltered, excluded) for pool in pools]
        best = [common_count(counts) for counts in np.stack(by_field).T.tolist()]
        years = range(config.cutoff + 1, len(best))
        config = dataclasses.replace(config, year=max(years, key=lambda year: (best[year], year), default=config.year))
        pools = pools_of(config)
        if too_few() and "queries" not in free:
            return None
    query_count = config.queries
    if too_few() and "queries" in free:
        query_count = common_count([pool.query_count for pool in pools])
    pools = [pool for pool in pools if query_count == "all" or pool.query_count >= query_count]
    with_negatives = [pool for pool in pools if _has_negatives(corpus, pool, prefiltered)]
    if not (pools := with_negatives if all_fields or len(with_negatives) == len(pools) else []):
        return None
    fitting_sizes = list(sizes)
    for pool in pools if "size" in free else ():
        fitting_sizes = [
            size if size == "all" else min(size, _count_candidates(corpus, pool, prefiltered, size))
            for size in fitting_sizes
        ]
    numeric_sizes = [size for size in fitting_sizes if size != "all"]
    if numeric_sizes and "queries" in free and query_count != "all":
        query_count = min([query_count, *(pool.queries_within(min(numeric_sizes)) for pool in pools)])
    if query_count == 0:
        return None
    fitting_values = {"year": config.year, "queries": query_count, "size": tuple(dict.fromkeys(fitting_sizes))}
    requested_values = {"year": requested.year, "queries": requested.queries, "size": tuple(sizes)}
    return {name: value for name, value in fitting_values.items() if value != requested_values[name]}


@dataclass(frozen=True)
class _PoolQueries:
    """A pool and its queries: the requested number, or all if there are fewer.

    Attributes:
        config: settings of the pool.
        queries: queries of the test pool and, with ``held_out``, of the validation pool.
        keys: keys of the queries, uint64 ``[queries]``.
        held_out: whether as many queries remain for validation.
    """

    config: PoolConfig
    queries: Queries
    keys: npt.NDArray[np.uint64]
    held_out: bool

    @property
    def query_count(self) -> int:
        """Number of queries that the pool can have."""
        return self._tested(len(self.keys))

    def queries_within(self, size: int) -> int:
        """Return the number of queries, in the order drawn, whose positives leave room in a pool of ``size``."""
        rank = np.empty(len(self.keys), np.int64)
        rank[smallest(draw_priorities(self.keys, self.config), len(self.keys))] = np.arange(len(self.keys))
        positives, inverse = np.unique(self.queries.positives, return_inverse=True)
        first_rank = np.full(len(positives), len(self.keys), np.int64)
        np.minimum.at(first_rank, inverse, rank[self.queries.owner])
        new_positives = np.bincount(first_rank, minlength=len(self.keys))
        return self._tested(int(np.searchsorted(np.cumsum(new_positives), size)))

    def _tested(self, count: int) -> int:
        """Return how many of ``count`` queries the test pool can have."""
        validation = self.config.validation_queries
        return count if not self.held_out else max(count - validation, 0) if validation else count // 2


def _best_count(counts: Sequence[int]) -> int:
    """Return the count that maximises count times the number of fields with at least so many queries."""
    return max(counts, key=lambda count: count * sum(larger >= count for larger in counts))


def _draw_queries(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints, held_out: bool
) -> _PoolQueries:
    """Return a pool and its queries: the requested number, or all if there are fewer."""
    queries = Queries(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.uint32), {})
    for query_count in (config.queries, "all"):
        with contextlib.suppress(InsufficientDataError):
            changed = dataclasses.replace(config, queries=query_count)
            queries = choose_queries(corpus, changed, prefiltered, excluded)
            break
    return _PoolQueries(config, queries, QuerySource.of(corpus, config).keys(queries.rows), held_out)


def _has_negatives(corpus: Corpus, pool: _PoolQueries, prefiltered: Mask) -> bool:
    """Return whether papers that are no positives can be drawn."""
    source = drawable(corpus, pool.config, prefiltered, len(pool.queries.positives) + 1)
    source[pool.queries.positives] = False
    return bool(source.any())


def _count_candidates(corpus: Corpus, pool: _PoolQueries, prefiltered: Mask, enough: int) -> int:
    """Return the number of candidates that a pool can have; counting may stop at ``enough``."""
    source = drawable(corpus, pool.config, prefiltered, enough)
    if not pool.held_out:
        source[pool.queries.positives] = True
    return int(np.count_nonzero(source))
