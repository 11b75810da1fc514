"""Rankings of the largest pools: recall by depth, loss of MAP by rank, recall by citations, training papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.measure.inputs import Qrels, query_of
from pipeline.measure.statistics import Floats, interval
from pipeline.scores.facts import Gaps, gaps_of
from pipeline.scores.page.parts import Chart
from pipeline.scores.store import Rankings, open_rankings
from pipeline.scores.tables import Cell, Table, cell, frame_table, grid
from pipeline.studies.common import BRACKETS, series

DATASET = "dataset"
"""Name of the dataset-level pools, in the fields of a recipe and in tables."""

POOLS_NOTE = "Largest pool of each field, first sample; every query counts once."

_DEPTHS = (1, 5, 10, 20, 30, 50, 100, 200, 500)
_BANDS = ((1, 10), (11, 30), (31, 100))
"""Bands of ranks whose loss is added up; further bands are the rest of the ranking, and positives not retrieved."""
_CUTOFF = 30

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PoolRankings(Rankings):
    """The rankings of one pool, with its field and metadata gaps.

    Attributes:
        group: its field, or :data:`DATASET`.
        gaps: counts of positives and negatives that lack metadata.
    """

    group: str
    gaps: Gaps

    def attribute(self, name: str) -> npt.NDArray[np.int64]:
        """Return an attribute of the positives, int64 ``[positives]``."""
        return np.asarray(self.pool.corpus.attributes[name][self.qrels.rows].astype(np.int64))

    def means(self, values: npt.NDArray[np.generic]) -> Floats:
        """Return the mean of values ``[positives]`` over the positives of each query, float64 ``[queries]``, or NaN.

        Positives whose value is NaN are left out.
        """
        floats, query = values.astype(np.float64), query_of(self.qrels.offsets)
        valid, queries = ~np.isnan(floats), len(self.pool.query_rows)
        counts = np.bincount(query[valid], minlength=queries)
        sums = np.bincount(query[valid], floats[valid], queries)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def rankings_of(runs: pl.DataFrame) -> PoolRankings:
    """Open the rankings of one pool (:func:`pipeline.scores.store.open_rankings`)."""
    rankings, row = open_rankings(runs), runs.row(0, named=True)
    group, gaps = row["field"] or DATASET, gaps_of(row)
    return PoolRankings(rankings.pool, rankings.qrels, rankings.runs, group, gaps)


def scopes(rankings: Sequence[PoolRankings]) -> dict[str, list[PoolRankings]]:
    """Return the dataset-level pools and the pools of fields, by scope."""
    pools_of: dict[str, list[PoolRankings]] = {}
    for pool in sorted(rankings, key=lambda pool: pool.group != DATASET):
        pools_of.setdefault("dataset" if pool.group == DATASET else "fields", []).append(pool)
    return pools_of


def systems_of(pools: Sequence[PoolRankings]) -> list[str]:
    """Return the systems that ranked all pools."""
    return [system for system in pools[0].runs if all(system in pool.runs for pool in pools)]


def _over_queries(
    rankings: Sequence[PoolRankings], seed: int, values_of: Callable[[PoolRankings, str, str], Mapping[str, Floats]]
) -> dict[tuple[str, str], Cell | None]:
    """Return the mean of each value of ``values_of(pool, system, scope)`` over the queries of all pools of a scope."""
    cells = {}
    for scope, pools in scopes(rankings).items():
        for system in systems_of(pools):
            values = [values_of(pool, system, scope) for pool in pools]
            for name in values[0]:
                over_pools = np.concatenate([pool_values[name] for pool_values in values])
                cells[f"{scope} {system}", name] = cell(*interval(over_pools, seed, scope))
    return cells


def recall(rankings: Sequence[PoolRankings], seed: int, depth: int) -> Table:
    """Return recall by depth."""

    def values_of(pool: PoolRankings, system: str, _scope: str) -> dict[str, Floats]:
        ranks = pool.ranks[system]
        return {str(last): pool.means((ranks > 0) & (ranks <= last)) for last in _DEPTHS if last <= depth}

    cells = _over_queries(rankings, seed, values_of)
    return grid("recall-by-depth", "Recall by depth", "system", cells, [POOLS_NOTE, BRACKETS])


def recall_chart(table: Table, source: str) -> Chart:
    """Return recall against depth, a view for the dataset level and for fields."""
    scope, system = pl.col("system").str.split_exact(" ", 1), pl.col("system").str.replace(r"^\S+ ", "")
    frame = table.frame.with_columns(system, pl.col("column").cast(pl.Float64), scope=scope.struct[0])
    by_scope = frame.partition_by("scope", maintain_order=True)
    views = {rows["scope"][0]: list(series(rows, "system", "column")) for rows in by_scope}
    ticks = {float(depth): str(depth) for depth in (1, 10, 30, 100, 500)}
    return Chart("Recall against depth", "rank", "recall in %", views, log=True, ticks=ticks, provenance=source)


def losses(rankings: Sequence[PoolRankings], seed: int, depth: int) -> Table:
    """Return the loss of MAP due to the positives in each band of ranks."""

    def values_of(pool: PoolRankings, system: str, _scope: str) -> dict[str, Floats]:
        ranks, query = pool.ranks[system], query_of(pool.qrels.offsets)
        costs = loss(ranks, pool.qrels)
        bands = {
            f"{first} to {min(last, depth)}": (ranks >= first) & (ranks <= last)
            for first, last in (*_BANDS, (_BANDS[-1][1] + 1, depth))
            if first <= depth
        }
        bands["not retrieved"] = ranks == 0
        queries = len(pool.pool.query_rows)
        return {name: np.bincount(query[band], costs[band], queries).astype(float) for name, band in bands.items()}

    note = "Points of MAP that the positives at these ranks lack; they sum to 100 less MAP."
    cells = _over_queries(rankings, seed, values_of)
    return grid("losses", "What the rank of positives costs", "system", cells, [note, POOLS_NOTE, BRACKETS])


def loss(ranks: Integers, qrels: Qrels) -> Floats:
    """Return the loss of average precision due to each positive, float64 ``[positives]``.

    In a perfect ranking, the precision at each positive is 1. The loss of a positive is 1 minus the precision at its
    rank (0 if it was not retrieved), divided by the query's number of positives. The losses of a query sum to 1 - AP.
    """
    query = query_of(qrels.offsets)
    order = np.lexsort((np.where(ranks > 0, ranks, np.iinfo(np.int64).max), query))
    nth = np.arange(len(ranks)) - qrels.offsets[query[order]] + 1
    precision = np.zeros(len(ranks))
    precision[order] = np.where(ranks[order] > 0, nth / np.maximum(ranks[order], 1), 0.0)
    return (1 - precision) / qrels.positives()[query]


def training(rankings: Sequence[PoolRankings], trained: npt.NDArray[np.bool_]) -> Table:
    """Return the papers of training lists by field, and the number of queries left out (section 4.2 of the paper).

    ``trained`` are the papers of the lists, bool ``[papers of the corpus]``; a paper of several fields counts in each.
    """
    masks = rankings[0].pool.corpus.attributes["fields"][trained]
    counts = {field: int(np.count_nonzero(masks >> np.uint32(FIELD_BIT[field]) & np.uint32(1))) for field in MAG_FIELDS}
    rows = [(field, count, 100 * count / max(len(masks), 1)) for field, count in counts.items() if count]
    frame = pl.DataFrame(rows, {"field": pl.String, "papers": pl.Int64, "share in %": pl.Float64}, orient="row")
    left_out = []
    for pool in rankings:
        counts_of_pool = pool.pool.artifact.manifest.counts
        eligible = counts_of_pool["eligible_queries"] + counts_of_pool["excluded_queries"]
        left_out.append(f"{pool.group} {counts_of_pool['excluded_queries']:,} of {eligible:,}")
    notes = [
        f"Papers of the training lists that the corpus has: {len(masks):,}.",
        f"Queries left out of those that may be drawn: {'; '.join(left_out)}.",
    ]
    return frame_table("training", "Training queries by field", frame, notes)


def popularity(rankings: Sequence[PoolRankings], seed: int) -> Table:
    """Return recall at 30 by the citations of the positives."""

    def cited(pool: PoolRankings) -> npt.NDArray[np.int64]:
        return pool.pool.corpus.citations[pool.qrels.rows]

    bounds_of = {scope: thirds(np.concatenate(list(map(cited, pools)))) for scope, pools in scopes(rankings).items()}

    def values_of(pool: PoolRankings, system: str, scope: str) -> dict[str, Floats]:
        retrieved = (pool.ranks[system] > 0) & (pool.ranks[system] <= _CUTOFF)
        third = np.searchsorted(bounds_of[scope], cited(pool))
        names = ("least cited", "middle", "most cited")
        return {name: pool.means(np.where(third == index, retrieved, np.nan)) for index, name in enumerate(names)}

    bounds_text = "; ".join(
        f"{scope}: least up to {low:,}, middle up to {high:,} citations" for scope, (low, high) in bounds_of.items()
    )
    note = f"Thirds of the positives by citations that the release lists, or else the corpus holds ({bounds_text})."
    title = f"R@{_CUTOFF} by citations of the positives"
    cells = _over_queries(rankings, seed, values_of)
    return grid("popularity", title, "system", cells, [note, POOLS_NOTE, BRACKETS])


def thirds(counts: npt.NDArray[np.integer]) -> list[int]:
    """Return the largest count of each of the first two thirds; equal counts are in the same third."""
    return [int(bound) for bound in np.quantile(counts, [1 / 3, 2 / 3], method="lower")]
