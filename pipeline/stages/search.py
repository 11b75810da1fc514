"""What the stages that rank have in common: the file of a ranking and its counts."""

from __future__ import annotations

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.schema import RANKING
from pipeline.core.task import Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.retrieve.base import Ranking

DEFAULT_DEPTH = 500
"""Entries ranked a query (protocol 4)."""


def write_ranking(ranking: Ranking, pool: Pool, depth: int, out: Workdir) -> Counts:
    """Write the ranking of a pool and return what is to be counted of it."""
    queries = len(pool.query_rows)
    counts = {
        "queries": queries,
        "queries_without_results": queries - len(np.unique(ranking.query)),
        "candidates": len(pool.candidates),
        "excluded": len(pool.exclusions[1]),
        "entries": len(ranking),
        "depth": depth,
    }
    out.arrow("ranking.arrow", ranking.table(), RANKING, **counts)
    return counts


def slug_of(pool: Task | Artifact) -> str:
    """Return the readable name of a pool."""
    return pool.slug if isinstance(pool, Task) else pool.manifest.slug
