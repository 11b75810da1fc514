"""Read a pool: queries, candidates, qrels, and the papers excluded from the queries' rankings."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.csr import Ints, offsets_of
from pipeline.core.schema import MISSING
from pipeline.corpus.reader import Corpus, Rows, Text


class Pool:
    """A published pool of one corpus; papers are given by row."""

    def __init__(self, artifact: Artifact, corpus: Corpus) -> None:
        self.artifact = artifact
        self.corpus = corpus

    @property
    def queries_are_papers(self) -> bool:
        """Whether query rows are rows of the corpus's papers; otherwise they are rows of its query texts."""
        return bool(self.artifact.manifest.config["queries_are"] == "papers")

    @functools.cached_property
    def query_rows(self) -> Rows:
        """Rows of the queries, uint32 ``[queries]``, rising."""
        return self._column("queries.arrow", "row")

    @property
    def query_papers(self) -> tuple[Ints, Ints]:
        """Row of each query's paper (for a citation context, its citing paper; -1: none), and the query's year."""
        rows = self.query_rows.astype(np.int64)
        if self.queries_are_papers:
            return rows, self.corpus.attributes["year"][rows]
        years, citing = (column.to_numpy()[rows] for column in self.corpus.contexts.columns)
        return citing, years

    @property
    def papers(self) -> Rows:
        """Rows of the candidates and, if queries are papers, of the queries, rising."""
        return np.union1d(self.candidates, self.query_rows) if self.queries_are_papers else self.candidates

    @functools.cached_property
    def candidates(self) -> Rows:
        """Rows of the candidates, uint32 ``[candidates]``, rising."""
        return self._column("candidates.arrow", "row")

    @functools.cached_property
    def qrels(self) -> pa.Table:
        """Judgements, schema :data:`pipeline.core.schema.JUDGEMENTS`."""
        return self.artifact.arrow("qrels.arrow")

    @functools.cached_property
    def missing(self) -> pa.Table:
        """Positives that the corpus lacks, schema :data:`pipeline.core.schema.MISSING`; empty if queries are papers."""
        return MISSING.empty_table() if self.queries_are_papers else self.artifact.arrow("missing.arrow")

    @functools.cached_property
    def exclusions(self) -> tuple[Ints, Rows]:
        """CSR of the candidates excluded from each query's ranking: offsets ``[queries + 1]``, rows."""
        query = self._column("exclusions.arrow", "query")
        offsets = offsets_of(query, len(self.query_rows))
        return offsets, self._column("exclusions.arrow", "row")

    def excluded(self, query: int) -> Rows:
        """Return the rows of the candidates excluded from one query's ranking."""
        offsets, rows = self.exclusions
        return rows[offsets[query] : offsets[query + 1]]

    def candidate_texts(self) -> Iterator[list[Text]]:
        """Yield lists of the candidates' texts, in order of row."""
        return self.corpus.texts(self.candidates)

    def query_texts(self, block: int = 8192) -> Iterator[list[Text]]:
        """Yield lists of the queries' texts, in order; an ad-hoc query has only a title."""
        if self.queries_are_papers:
            yield from self.corpus.texts(self.query_rows, block)
            return
        for start in range(0, len(self.query_rows), block):
            yield self.corpus.ad_hoc(self.query_rows[start : start + block])

    def query_ids(self) -> list[str]:
        """Return the queries' ids, in order."""
        if self.queries_are_papers:
            return self.corpus.ids(self.query_rows)
        ids: list[str] = self.corpus.query_texts.column("query_id").take(self.query_rows).to_pylist()
        return ids

    def _column(self, file: str, name: str) -> Rows:
        column: Rows = self.artifact.arrow(file).column(name).chunk(0).to_numpy()
        return column
