"""Fusion of rankings: reciprocal ranks (Cormack et al. 2009), and weighted sums of scores scaled to 0 to 1.

The formulas are ranx's ``rrf`` and ``wsum`` after ``min-max``, which the tests hold them to. They are stated again as
array operations for two reasons: ranx takes rankings as dictionaries of strings, at minutes for millions of entries,
and it leaves ties, of which reciprocal ranks make many, in the order of those dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.retrieve.base import Ranking, check_depth

Method = Literal["rrf", "wsum"]

RRF_K = 60
"""Added to every rank, as Cormack et al. do."""

_LEAST_SPREAD = 1e-9
"""What the scores of a query are divided by where they are all equal."""


class Fusion:
    """Several rankings of the same queries, ready to be fused with any weights.

    Args:
        rankings: one or more, in the order in which their contributions are added.
        queries: how many queries there are.
        method: ``rrf`` or ``wsum``.
    """

    def __init__(self, rankings: Sequence[Ranking], queries: int, method: Method) -> None:
        pairs = [run.query.astype(np.uint64) << np.uint64(32) | run.row.astype(np.uint64) for run in rankings]
        self._queries = queries
        self._pairs, place = np.unique(np.concatenate(pairs), return_inverse=True)
        self._places = np.split(place, np.cumsum([len(keys) for keys in pairs])[:-1])
        contribute = _reciprocal if method == "rrf" else _scaled
        self._contributions = [contribute(run, queries) for run in rankings]

    def ranking(self, depth: int, weights: Sequence[float] | None = None) -> Ranking:
        """Return the ``depth`` best of each query by the weighted sum of what each ranking contributes.

        Without weights, each counts 1.
        """
        check_depth(depth)
        total = np.zeros(len(self._pairs))
        for place, values, weight in zip(
            self._places, self._contributions, weights or [1.0] * len(self._places), strict=True
        ):
            total[place] += weight * values
        query, rows = (self._pairs >> np.uint64(32)).astype(np.int64), self._pairs.astype(np.uint32)
        scores = total.astype(np.float32) + np.float32(0)
        order = np.lexsort((~rows, -scores, query))
        starts = np.searchsorted(query, np.arange(self._queries + 1))
        order = order[np.arange(len(order)) - starts[query] < depth]
        return Ranking.from_counts(np.minimum(np.diff(starts), depth), rows[order], scores[order])


def _reciprocal(ranking: Ranking, _queries: int) -> npt.NDArray[np.float64]:
    return 1.0 / (RRF_K + ranking.rank.astype(np.float64))


def _scaled(ranking: Ranking, queries: int) -> npt.NDArray[np.float64]:
    """Return the scores, the least of each query at 0 and its greatest at 1."""
    score, query = ranking.score.astype(np.float64), ranking.query
    least, greatest = np.full(queries, np.inf), np.full(queries, -np.inf)
    np.minimum.at(least, query, score)
    np.maximum.at(greatest, query, score)
    spread = np.maximum(np.where(np.isfinite(least), greatest - least, 1.0), _LEAST_SPREAD)
    scaled: npt.NDArray[np.float64] = (score - least[query]) / spread[query]
    return scaled
