"""Fusion of rankings: reciprocal ranks (Cormack et al. 2009), and weighted sums of scores scaled to 0 to 1.

The formulas are ranx's ``rrf`` and ``wsum`` after ``min-max``; tests compare both. We use array operations for two
reasons: ranx reads rankings as dictionaries of strings, which takes minutes for millions of entries, and it breaks
ties, of which reciprocal ranks have many, by the order of those dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import pack
from pipeline.retrieve.base import Ranking, check_depth

Method = Literal["rrf", "wsum"]

RRF_K = 60
"""Added to every rank (Cormack et al. 2009)."""

_LEAST_SPREAD = 1e-9
"""Minimum divisor of the scores of a query, for equal scores."""


class Fusion:
    """Several rankings of the same queries, to be fused with any weights.

    Args:
        rankings: one or more; their contributions are added in this order.
        queries: number of queries.
        method: ``rrf`` or ``wsum``.
    """

    def __init__(self, rankings: Sequence[Ranking], queries: int, method: Method) -> None:
        pairs = [pack(run.query, run.row) for run in rankings]
        self._queries = queries
        self._pairs, position = np.unique(np.concatenate(pairs), return_inverse=True)
        self._positions = np.split(position, np.cumsum([len(keys) for keys in pairs])[:-1])
        contribute = _reciprocal if method == "rrf" else _scaled
        self._contributions = [contribute(run, queries) for run in rankings]

    def ranking(self, depth: int, weights: Sequence[float] | None = None) -> Ranking:
        """Return the ``depth`` best entries of each query by weighted sums of contributions; weights default to 1."""
        from pipeline.retrieve.topk import TopK, to_keys  # here, because it brings Numba

        check_depth(depth)
        total = np.zeros(len(self._pairs))
        for position, values, weight in zip(
            self._positions, self._contributions, weights or [1.0] * len(self._positions), strict=True
        ):
            total[position] += weight * values
        best, keys = TopK(self._queries, depth), to_keys(total, self._pairs.astype(np.uint32))
        best.add((self._pairs >> np.uint64(32)).astype(np.int64), keys)
        return best.ranking()


def _reciprocal(ranking: Ranking, _queries: int) -> npt.NDArray[np.float64]:
    return 1.0 / (RRF_K + ranking.rank.astype(np.float64))


def _scaled(ranking: Ranking, queries: int) -> npt.NDArray[np.float64]:
    """Return scores scaled from 0 to 1 within each query."""
    score, query = ranking.score.astype(np.float64), ranking.query
    lowest, highest = np.full(queries, np.inf), np.full(queries, -np.inf)
    np.minimum.at(lowest, query, score)
    np.maximum.at(highest, query, score)
    spread = np.maximum(np.where(np.isfinite(lowest), highest - lowest, 1.0), _LEAST_SPREAD)
    scaled: npt.NDArray[np.float64] = (score - lowest[query]) / spread[query]
    return scaled
