"""Pools and rankings as frames, returned by :class:`pipeline.api.Workspace`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.exchange.export import ScoresByQuery, candidate_table, qrels_table, query_table, run_dict


@dataclass(frozen=True)
class PoolView:
    """A pool as frames.

    Attributes:
        pool: the pool by row, as the stages read it.
        task: the task that makes it, for :meth:`Workspace.evaluate`.
    """

    pool: Pool
    task: Task

    @property
    def name(self) -> str:
        """Folder name of the artifact."""
        return self.pool.artifact.name

    def __repr__(self) -> str:
        counts = self.pool.artifact.manifest.counts
        sizes = ", ".join(f"{counts[name]:,} {name}" for name in ("queries", "candidates", "positives"))
        return f"<pool {self.name}: {sizes}>"

    @cached_property
    def queries(self) -> pl.DataFrame:
        """Queries in order: ``query_id``, ``title``, ``abstract``, ``year``; an ad-hoc query's text is its title."""
        return pl.DataFrame(query_table(self.pool))

    @cached_property
    def candidates(self) -> pl.DataFrame:
        """Candidates in order of id: ``paper_id``, ``title``, ``abstract``, ``year``."""
        return pl.DataFrame(candidate_table(self.pool))

    @cached_property
    def qrels(self) -> pl.DataFrame:
        """Judgements: ``query_id``, ``paper_id``, ``grade``."""
        return pl.DataFrame(qrels_table(self.pool))


@dataclass(frozen=True)
class RankingView:
    """A ranking as a frame.

    Attributes:
        artifact: the stored ranking.
        pool: the ranked pool.
        system: name of the system in tables.
    """

    artifact: Artifact
    pool: PoolView
    system: str

    def __repr__(self) -> str:
        return f"<ranking of {self.pool.name} by {self.system}>"

    @cached_property
    def frame(self) -> pl.DataFrame:
        """Entries in order: ``query_id, paper_id, rank`` (from 1), ``score`` (higher is better), ``grade`` (else 0)."""
        query, row, rank, score = (self._table.column(name).to_numpy() for name in ("query", "row", "rank", "score"))
        query_ids = np.array(self.pool.pool.query_ids(), object)[query].tolist()
        columns = {"query_id": query_ids, "paper_id": self.pool.pool.corpus.ids(row), "rank": rank, "score": score}
        entries = pl.DataFrame(columns)
        judged = entries.join(self.pool.qrels, on=["query_id", "paper_id"], how="left", maintain_order="left")
        return judged.with_columns(pl.col("grade").fill_null(0))

    def to_dict(self) -> ScoresByQuery:
        """Return ``{query_id: {paper_id: score}}``, as pytrec_eval and ir_measures take it; ties keep their order."""
        return run_dict(self._table, self.pool.pool)

    @property
    def _table(self) -> pa.Table:
        return self.artifact.arrow("ranking.arrow")
