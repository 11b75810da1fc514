"""Fusion of rankings by reciprocal ranks (Cormack et al. 2009).

The formula is ranx's ``rrf``; a test compares both. ranx reads rankings as dictionaries of strings, which takes minutes
for millions of entries, and breaks ties, of which reciprocal ranks have many, by the order of those dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.core.csr import pack
from pipeline.retrieve.base import Ranking

RRF_K = 60
"""Added to every rank (Cormack et al. 2009)."""


def fuse(rankings: Sequence[Ranking], queries: int, depth: int) -> Ranking:
    """Return the ``depth`` best entries of each query by the sum of their reciprocal ranks, added in this order."""
    from pipeline.retrieve.topk import TopK, to_keys  # here, because it brings Numba

    keys = [pack(run.query, run.row) for run in rankings]
    pairs, position = np.unique(np.concatenate(keys), return_inverse=True)
    positions = np.split(position, np.cumsum(list(map(len, keys)))[:-1])
    total = np.zeros(len(pairs))
    for of_run, run in zip(positions, rankings, strict=True):
        total[of_run] += 1.0 / (RRF_K + run.rank.astype(np.float64))
    best = TopK(queries, depth)
    best.add((pairs >> np.uint64(32)).astype(np.int64), to_keys(total, pairs.astype(np.uint32)))
    return best.ranking()
