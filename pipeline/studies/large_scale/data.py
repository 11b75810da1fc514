"""What the analyses read: the rankings of one pool as arrays, and what is known of its papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError
from pipeline.corpus.marks import counted
from pipeline.corpus.pool import Pool
from pipeline.measure.inputs import Mask, Qrels, Run, query_of
from pipeline.measure.statistics import Floats
from pipeline.scores.store import artifact, opened_pool


@dataclass(frozen=True, eq=False)
class PoolRuns:
    """One pool, of a field or ``dataset``, with its positives and the rankings of all systems."""

    group: str
    pool: Pool
    qrels: Qrels
    runs: Mapping[str, Run]

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.qrels.offsets) - 1


def read(group: str, chosen: pl.DataFrame) -> PoolRuns:
    """Open the rankings of one pool (:data:`pipeline.scores.store.RUNS`), by the labels of their systems.

    Raises:
        InputError: the corpus is gone.
    """
    pool = opened_pool(chosen.row(0, named=True))
    if pool is None:
        raise InputError(f"the corpus {chosen['corpus'][0]} must be there to name papers", "Build it again")
    queries = len(pool.query_rows)
    rows = chosen.iter_rows(named=True)
    runs = {run["label"]: Run.from_table(artifact(run, "ranking").arrow("ranking.arrow"), queries) for run in rows}
    return PoolRuns(group, pool, Qrels.from_table(pool.qrels, queries), runs)


def marks_of(ranked: PoolRuns) -> dict[str, dict[str, int]]:
    """Return how many positives and negatives of a pool have each mark (:func:`pipeline.corpus.marks.counted`)."""
    return counted(ranked.pool.corpus.attributes, np.unique(ranked.qrels.rows), ranked.pool.candidates)


def restricted(run: Run, kept: Mask) -> Run:
    """Return a run without some of its papers; ``kept`` is bool ``[papers of the corpus]``."""
    entries = kept[run.rows]
    return Run(_offsets(run.offsets, entries), run.rows[entries])


def restricted_qrels(qrels: Qrels, kept: Mask) -> Qrels:
    """Return judgements without some of their positives; ``kept`` is bool ``[positives]``."""
    return Qrels(_offsets(qrels.offsets, kept), qrels.rows[kept], qrels.grades[kept])


def means_by_query(values: npt.NDArray[Any], qrels: Qrels) -> Floats:
    """Return the mean of a value over the positives of each query, float64 ``[queries]``; NaN without any.

    Positives whose value is NaN are left out.
    """
    known, queries = ~np.isnan(values), len(qrels.offsets) - 1
    query = query_of(qrels.offsets)[known]
    counts = np.bincount(query, minlength=queries)
    sums = np.bincount(query, values[known].astype(np.float64), queries)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _offsets(offsets: npt.NDArray[np.int64], kept: Mask) -> npt.NDArray[np.int64]:
    counts = np.bincount(query_of(offsets)[kept], minlength=len(offsets) - 1)
    return np.concatenate([[0], np.cumsum(counts)])
