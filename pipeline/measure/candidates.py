"""The check that a ranking ranks its pool: candidates only, and none that the query excludes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import Ranking


def refuse_strangers(ranking: Ranking, pool: Pool) -> None:
    """Raise where a ranking holds what its pool does not let its query retrieve (protocol 2).

    Raises:
        InputError: a row is no candidate, or is excluded for its query; the first one is named.
    """
    rows = ranking.rows
    _refuse(~_among(rows, pool.candidates), ranking, pool, "is no candidate of")
    offsets, excluded = pool.exclusions
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)).astype(np.uint64)
    query = np.repeat(np.arange(len(ranking.offsets) - 1), ranking.retrieved()).astype(np.uint64)
    shift = np.uint64(32)
    _refuse(_among(query << shift | rows, owner << shift | excluded), ranking, pool, "is excluded for this query by")


def _among(values: npt.NDArray[np.unsignedinteger], known: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.bool_]:
    """Return which values are among some rising ones."""
    if not len(known):
        return np.zeros(len(values), dtype=bool)
    place = np.searchsorted(known, values)
    np.minimum(place, len(known) - 1, out=place)
    found: npt.NDArray[np.bool_] = known[place] == values
    return found


def _refuse(broken: npt.NDArray[np.bool_], ranking: Ranking, pool: Pool, how: str) -> None:
    if broken.any():
        at = int(np.flatnonzero(broken)[0])
        query = int(np.searchsorted(ranking.offsets, at, side="right")) - 1
        raise InputError(
            f"row {ranking.rows[at]}, ranked for query {query}, {how} {pool.artifact.name}",
            "Rank this pool, with its exclusions, before scoring",
        )
