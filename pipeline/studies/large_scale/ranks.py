"""What the ranks of the positives say: recall by depth, what each rank costs, results by popularity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.measure.inputs import Qrels, Run, pairs, places, query_of
from pipeline.measure.statistics import Floats
from pipeline.studies.large_scale.data import means_by_query

DEPTHS = (1, 5, 10, 20, 30, 50, 100, 200, 500)
BANDS = (10, 30, 100)
"""Last ranks of the bands whose cost is shown; then the rest of the ranking, and what was not retrieved."""

Integers = npt.NDArray[np.int64]


def ranks_of(run: Run, qrels: Qrels) -> Integers:
    """Return the rank of each positive from 1, 0 where it was not retrieved: int64 ``[positives]``."""
    query = query_of(run.offsets)
    entries = pairs(query, run.rows)
    order = np.argsort(entries)
    place = places(pairs(query_of(qrels.offsets), qrels.rows), entries[order])
    rank = np.arange(len(entries)) - run.offsets[query] + 1
    found: Integers = np.where(place >= 0, rank[order][place] if len(entries) else 0, 0)
    return found


def recall_by_depth(ranks: Integers, qrels: Qrels, depths: Sequence[int]) -> Floats:
    """Return the share of each query's positives at ranks up to each depth, float64 ``[depths, queries]``."""
    return np.stack([means_by_query((ranks > 0) & (ranks <= depth), qrels) for depth in depths])


def loss(ranks: Integers, qrels: Qrels) -> Floats:
    """Return what each positive takes from its query's average precision, float64 ``[positives]``.

    A positive at rank 1 to n of a perfect ranking has a precision of 1. At its rank, the precision is lower by its
    loss; one that was not retrieved loses all. The losses of a query, over its positives, sum to 1 - AP.
    """
    query = query_of(qrels.offsets)
    order = np.lexsort((np.where(ranks > 0, ranks, np.iinfo(np.int64).max), query))
    nth = np.arange(len(ranks)) - qrels.offsets[query[order]] + 1
    precision = np.zeros(len(ranks))
    precision[order] = np.where(ranks[order] > 0, nth / np.maximum(ranks[order], 1), 0.0)
    return (1 - precision) / qrels.positives()[query]


def band_of(ranks: Integers) -> Integers:
    """Return the band of each rank: a place in :data:`BANDS`, then the rest, then not retrieved."""
    return np.where(ranks == 0, len(BANDS) + 1, np.searchsorted(BANDS, ranks))


def band_names(depth: int) -> list[str]:
    """Return the names of the bands, in order; empty for those below the ranking."""
    starts = [1, *(last + 1 for last in BANDS)]
    ends = zip(starts, (*BANDS, depth), strict=True)
    return [*(f"{first} to {min(last, depth)}" if first <= depth else "" for first, last in ends), "not retrieved"]


def loss_by_band(ranks: Integers, qrels: Qrels) -> Floats:
    """Return what the positives of each band cost each query, float64 ``[bands, queries]``."""
    query, queries, bands = query_of(qrels.offsets), len(qrels.offsets) - 1, len(BANDS) + 2
    costs = np.bincount(band_of(ranks) * queries + query, loss(ranks, qrels), bands * queries)
    return costs.reshape(bands, queries).astype(np.float64)


def recall_by_class(ranks: Integers, qrels: Qrels, classes: Integers, count: int, cutoff: int) -> Floats:
    """Return the recall at a cutoff of the positives of each class, float64 ``[classes, queries]``; NaN without any.

    ``ranks`` and ``classes``, from 0 to ``count`` - 1, are of each positive.
    """
    found = (ranks > 0) & (ranks <= cutoff)
    return np.stack([means_by_query(np.where(classes == each, found, np.nan), qrels) for each in range(count)])


def thirds(counts: npt.NDArray[np.integer]) -> list[int]:
    """Return the greatest counts of the first two thirds; equal counts are in one third."""
    return list(map(int, np.quantile(counts, [1 / 3, 2 / 3], method="lower")))
