"""Pools of candidate lists, in which each query ranks its own list, and measures of their rankings."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.config import digest, file_name
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import table
from pipeline.corpus.reader import Corpus
from pipeline.measure.chance import by_chance
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, pairs
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import Floats
from pipeline.retrieve.base import Ranking
from pipeline.scores.page.browse import Typed
from pipeline.studies.mdcr.candidates import GRAPH, MOST_CITED, RANDOM, Rows
from pipeline.studies.mdcr.layout import TRUE, FieldLists, candidates_of
from pipeline.studies.pools import ExternalPoolConfig, write_pool

MEASURES = ("map", "ndcg", "recall@5")
"""What the benchmark reports, over the whole list but for recall."""

DEPTH = 5
"""Where recall is cut; it is 1 by construction in a field whose lists are all as short."""

MEANINGS = {
    GRAPH: "near the query in the citation graph, not cited",
    MOST_CITED: "among the most cited of the field, not cited",
    RANDOM: "any paper, not cited",
}
"""What a negative of each type is; further types are named after the system that ranks them high."""

SCHEMA = pa.schema(
    [
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
    ]
)
"""``lists.arrow`` of a pool: the candidates of each query (its position in the pool) with their type."""


@dataclass(frozen=True)
class ListsConfig(ExternalPoolConfig):
    """Settings of a pool of lists: their digest, and how many candidates the longest one has."""

    lists: str = ""
    longest: int = 0


_CHANCE_DRAWS = 100
"""Random orders of each list: the mean over some hundred queries is then exact to a few hundredths of a point."""


class Lists:
    """The lists of one pool.

    Attributes:
        pool: the pool.
        query: int64 ``[entries]``, position of each entry's query.
        row: int64 ``[entries]``, its candidate.
        type: its type, object ``[entries]``.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        entries = pool.artifact.arrow("lists.arrow")
        self.query, self.row = (entries.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
        self.type = np.array(entries.column("type").to_pylist(), object)

    @property
    def field(self) -> str:
        """The field of the queries."""
        return str(self.pool.artifact.manifest.config["field"])

    @property
    def types(self) -> list[str]:
        """The types of negatives, in order of first appearance."""
        return [name for name in dict.fromkeys(self.type) if name != TRUE]

    def typed(self) -> Typed:
        """Return the candidates with their types for a page."""
        kinds = {"positive": "cited by the query"}
        kinds |= {name: MEANINGS.get(name, f"ranked high by {name}, not cited") for name in self.types}
        place = {name: number for number, name in enumerate([TRUE, *self.types])}
        return Typed(kinds, self.query, self.row, np.array([place[name] for name in self.type], np.int64))

    def pairs(self, types: Container[str] | None = None) -> npt.NDArray[np.uint64]:
        """Return the pairs of query and candidate of some types and of ``true``, rising; None: of all types."""
        kept = [types is None or name == TRUE or name in types for name in self.type]
        return np.unique(pairs(self.query[kept], self.row[kept]))

    def values(self, ranking: Ranking, measures: Sequence[str], types: Container[str] | None = None) -> Floats:
        """Return measures of a ranking of complete lists, of some types and ``true``: ``[measures, queries]``."""
        queries = len(self.pool.query_rows)
        kept = np.isin(pairs(ranking.query, ranking.row), self.pairs(types))
        run = Run(np.searchsorted(ranking.query[kept], np.arange(queries + 1)), ranking.row[kept])
        return evaluate(Qrels.from_table(self.pool.qrels, queries), run, parse_measures(measures))

    def values_by_chance(self, measures: Sequence[str], types: Container[str], seed: int) -> Floats:
        """Return what a random ranking of some types and ``true`` scores, ``[measures, queries]``."""
        queries = len(self.pool.query_rows)
        counts = np.bincount((self.pairs(types) >> np.uint64(32)).astype(np.int64), minlength=queries)
        qrels = Qrels.from_table(self.pool.qrels, queries)
        return by_chance(qrels, counts, parse_measures(measures), seed, _CHANCE_DRAWS)


def lists_pool_task(corpus: Artifact, field: str, split: str, lists: FieldLists) -> Task:
    """Return the task of the pool of one field of a benchmark; the corpus has all papers of the lists."""
    config = ListsConfig(
        field=field,
        size=len(set().union(*map(candidates_of, lists.values()))),
        queries=len(lists),
        seed=0,
        split="validation" if split == "val" else "test",
        drop_same_title=False,
        lists=digest(lists),
        longest=max(len(candidates_of(by_type)) for by_type in lists.values()),
    )

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        entries = [
            (query, paper, name) for query, types in lists.items() for name, ids in types.items() for paper in ids
        ]
        owners, papers, types = map(list, zip(*entries, strict=True))
        rows = Corpus(inputs["corpus"]).rows_of([*lists, *papers])
        if (rows < 0).any():
            query, paper = [*zip(lists, lists, strict=True), *zip(owners, papers, strict=True)][np.argmin(rows)]
            place = f"query {query} of {field}"
            raise InputError(f"{place} needs the text of paper {paper}, got none", "Add it to the data file")
        row_of = dict(zip(lists, rows.tolist(), strict=False))
        query_rows = np.unique(rows[: len(lists)])
        query = np.searchsorted(query_rows, [row_of[query] for query in owners])
        return write_lists_pool(out, field, query_rows, query, rows[len(lists) :], types)

    return Task("pool", 1, POOLS, f"{corpus.manifest.slug}-{field_name(field)}", config, {"corpus": corpus}, run)


def field_name(field: str) -> str:
    """Return a benchmark's field as part of the name of a file or folder."""
    return file_name(field.lower()) or "field"


def write_lists_pool(
    out: Workdir, field: str, query_rows: Rows, query: Rows, row: Rows, types: Sequence[str]
) -> Counts:
    """Write a pool whose queries exclude every candidate that is not in their own list; return its counts.

    ``query_rows`` rise. Each entry has the position of its ``query``, its candidate (``row``) and its type; those of
    type ``true`` are positives.
    """
    candidates = np.unique(row)
    foreign = np.ones((len(query_rows), len(candidates)), bool)
    foreign[query, np.searchsorted(candidates, row)] = False
    excluded, place = np.nonzero(foreign)
    positive = np.array([name == TRUE for name in types], bool)
    judged = np.unique(pairs(query[positive], row[positive]))
    graded = (judged >> np.uint64(32), judged.astype(np.uint32), np.ones(len(judged)))
    write_pool(out, (query_rows, [field] * len(query_rows)), candidates, graded, (excluded, candidates[place]))
    order = np.argsort(query, kind="stable")
    out.arrow("lists.arrow", table(SCHEMA, query[order], row[order], np.array(types, object)[order]), SCHEMA)
    return {
        "queries": len(query_rows),
        "candidates": len(candidates),
        "pairs": int(np.count_nonzero(~foreign)),
        "positives": len(judged),
        "queries_without_positive": len(query_rows) - len(np.unique(judged >> np.uint64(32))),
        "excluded_self": 0,
        "excluded_same_title": 0,
    }


def in_order(packed: npt.NDArray[np.uint64], scores: npt.NDArray[np.float32], queries: int) -> Ranking:
    """Return the ranking of some pairs (:func:`pipeline.measure.inputs.pairs`) in the one total order."""
    query = (packed >> np.uint64(32)).astype(np.int64)
    order = np.lexsort(((packed & np.uint64(0xFFFFFFFF)).astype(np.int64), scores, -query))[::-1]
    return Ranking.from_counts(np.bincount(query, minlength=queries), packed[order].astype(np.uint32), scores[order])
