"""A pool as frames, returned by :class:`pipeline.api.Workspace`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.schema import NO_YEAR
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Rows
from pipeline.exchange.export import qrels_table


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
        pool, texts = self.pool, [text for block in self.pool.query_texts() for text in block]
        columns = {"title": [text.title for text in texts], "abstract": [text.abstract for text in texts]}
        frame = pl.DataFrame({"query_id": pool.query_ids()} | columns, dict.fromkeys(("query_id", *columns), pl.String))
        years = self._years(pool.query_rows) if pool.queries_are_papers else pl.lit(None, pl.Int16).alias("year")
        return frame.with_columns(years)

    @cached_property
    def candidates(self) -> pl.DataFrame:
        """Candidates in order of id: ``paper_id``, ``title``, ``abstract``, ``year``."""
        frame = pl.DataFrame(self.pool.corpus.take(self.pool.candidates, ["paper_id", "title", "abstract"]))
        return frame.with_columns(self._years(self.pool.candidates))

    def _years(self, rows: Rows) -> pl.Series:
        return pl.Series("year", self.pool.corpus.attributes["year"][rows], pl.Int16).replace(NO_YEAR, None)

    @cached_property
    def qrels(self) -> pl.DataFrame:
        """Judgements: ``query_id``, ``paper_id``, ``grade``."""
        return pl.DataFrame(qrels_table(self.pool))

    def entries(self, ranking: Artifact) -> pl.DataFrame:
        """Return a ranking of the pool: ``query_id, paper_id, rank, score`` and ``grade`` (else 0), in order."""
        table = ranking.arrow("ranking.arrow")
        query, row, rank, score = (table.column(name).to_numpy() for name in ("query", "row", "rank", "score"))
        query_ids = np.array(self.pool.query_ids(), object)[query].tolist()
        columns = {"query_id": query_ids, "paper_id": self.pool.corpus.ids(row), "rank": rank, "score": score}
        entries = pl.DataFrame(columns)
        judged = entries.join(self.qrels, on=["query_id", "paper_id"], how="left", maintain_order="left")
        return judged.with_columns(pl.col("grade").fill_null(0))
