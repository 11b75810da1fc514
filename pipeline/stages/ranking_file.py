"""Shared by the stages that rank: the file of a ranking, its counts and settings, and the segments of stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact, published
from pipeline.core.manifest import MANIFEST, Counts, Manifest
from pipeline.core.schema import RANKING
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import column
from pipeline.retrieve.base import Ranking

FILE = "ranking.arrow"
"""The file of a ranking in its artifact."""

RECORDED = ("encoder", "query_encoder", "parts")
"""Entries of a ranking's provenance that determine it but are settings of its inputs."""


def write_ranking(ranking: Ranking, pool: Pool, depth: int, out: Workdir) -> Counts:
    """Write the ranking of a pool and return its counts."""
    queries = len(pool.query_rows)
    counts = {
        "queries": queries,
        "queries_without_results": queries - len(np.unique(ranking.query)),
        "candidates": len(pool.candidates),
        "excluded": len(pool.exclusions[1]),
        "entries": len(ranking),
        "depth": depth,
    }
    out.arrow(FILE, ranking.table(), RANKING, **counts)
    return counts


def read_ranking(artifact: Artifact) -> Ranking:
    """Return the entries of a published ranking, as they are stored."""
    return ranking_of(artifact.arrow(FILE))


def ranking_of(table: pa.Table) -> Ranking:
    """Return the entries of a table of schema :data:`pipeline.core.schema.RANKING`."""
    return Ranking(*(column(table, name) for name in RANKING.names))


def open_pool(inputs: Inputs) -> Pool:
    """Open the pool among a task's inputs."""
    return Pool(inputs["pool"], Corpus(inputs["corpus"]))


def stored_segments(root: Path, tasks_of: Callable[[Artifact], Iterable[Task]]) -> list[Task]:
    """Return the tasks of the published segments of a store, to repair damaged ones; ``tasks_of`` has those of a pool.

    A segment whose pool is gone is left out: it can be read but not rebuilt.
    """
    tasks = [task for pool in published(root / POOLS) for task in tasks_of(pool)]
    return [task for task in tasks if (task.path(root) / MANIFEST).exists()]


def settings_of(ranking: Manifest) -> dict[str, Any]:
    """Return all settings that determine a ranking, besides its pool, as plain data."""
    return {**ranking.config, **{name: ranking.provenance[name] for name in RECORDED if name in ranking.provenance}}
