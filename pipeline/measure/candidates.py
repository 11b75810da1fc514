"""The check that a run ranks its pool: candidates only, and no paper that the query excludes."""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import Mask, Run, pairs, places, query_of


def check_candidates(run: Run, pool: Pool) -> None:
    """Check that a run holds only what its pool lets each query retrieve (protocol 2).

    Raises:
        InputError: a row is not a candidate, or is excluded for its query; the message names the first.
    """
    _refuse(places(run.rows, pool.candidates) < 0, run, pool, "is not a candidate of")
    offsets, excluded = pool.exclusions
    known = pairs(query_of(offsets), excluded)
    _refuse(places(pairs(query_of(run.offsets), run.rows), known) >= 0, run, pool, "is excluded for this query by")


def _refuse(broken: Mask, run: Run, pool: Pool, how: str) -> None:
    if broken.any():
        at = int(np.flatnonzero(broken)[0])
        query = int(np.searchsorted(run.offsets, at, side="right")) - 1
        raise InputError(
            f"row {run.rows[at]}, ranked for query {query}, {how} {pool.artifact.name}",
            "Rank this pool, with its exclusions, before scoring",
        )
