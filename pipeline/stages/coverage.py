"""What of a pool has vectors, where they were made elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.task import Inputs
from pipeline.corpus.reader import Rows
from pipeline.encode.spec import Missing
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.stages.embed import store_of
from pipeline.stages.search import open_pool

SKIPPED = "exact, of those with a vector"
"""What the configuration of a ranking calls an exact search that passes over papers without a vector."""

_SHOWN = 3
"""Ids an error names."""


@dataclass(frozen=True)
class PoolWithVectors:
    """The candidates and queries of a pool that have a vector.

    Attributes:
        starts: int64 ``[shards + 1]``, first row of each corpus shard.
        candidates: uint32, rising rows.
        query_rows: uint32 ``[queries]``, rising rows.
        exclusions: what is removed from the ranking of each of these queries.
        kept: int64 ``[queries]``, their positions in the pool; None: all of it is here.
        counts: what is left out, if papers may lack a vector.
    """

    starts: npt.NDArray[np.int64]
    candidates: Rows
    query_rows: Rows
    exclusions: Exclusions
    kept: npt.NDArray[np.int64] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def renumbered(self, ranking: Ranking) -> Ranking:
        """Return a ranking of these queries with their positions in the pool."""
        if self.kept is None:
            return ranking
        return dataclasses.replace(ranking, query=self.kept[ranking.query].astype(np.uint32))


def pool_with_vectors(inputs: Inputs, missing: Missing | None, name: str) -> PoolWithVectors:
    """Return what of a pool can be ranked.

    Raises:
        InputError: some have none, and are not to be skipped; or nothing is left.
    """
    pool = open_pool(inputs)
    whole = PoolWithVectors(pool.corpus.starts, pool.candidates, pool.query_rows, pool.exclusions)
    if missing is None:
        return whole
    lacking = store_of(inputs["paper"]).missing(pool.candidates)
    unasked = store_of(inputs.get("query", inputs["paper"])).missing(pool.query_rows)
    counts = {"candidates_without_vector": len(lacking), "queries_without_vector": len(unasked)}
    if not (len(lacking) or len(unasked)):
        return dataclasses.replace(whole, counts=counts)
    kept = np.isin(pool.query_rows, unasked, invert=True)
    if missing == "error" or not kept.any() or len(lacking) == len(pool.candidates):
        papers = lacking if len(lacking) or not pool.queries_are_papers else unasked
        first = pool.corpus.ids(papers[:_SHOWN]) if len(papers) else [pool.query_ids()[int(np.argmin(kept))]]
        raise InputError(
            f"{name} must have a vector of each paper of {pool.artifact.name}, got none for {len(lacking):,} of "
            f"{len(pool.candidates):,} candidates and {len(unasked):,} of {len(kept):,} queries (first: "
            f"{', '.join(first)})",
            "Make them, or rank without them: missing=skip" if missing == "error" else "Make some of them",
        )
    offsets, rows = pool.exclusions
    lengths = np.diff(offsets)
    exclusions = np.append(0, np.cumsum(lengths[kept])), rows[np.repeat(kept, lengths)]
    candidates = pool.candidates[np.isin(pool.candidates, lacking, invert=True)]
    return PoolWithVectors(
        whole.starts, candidates, pool.query_rows[kept], exclusions, np.flatnonzero(kept), {**counts}
    )
