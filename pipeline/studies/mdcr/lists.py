"""Candidate lists: pools in which each query ranks its own list, measures of them, and means over fields."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
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
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Mask, Qrels, Run, pairs
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import Floats
from pipeline.retrieve.base import Ranking
from pipeline.scores.page.browse import Typed
from pipeline.studies.mdcr.layout import TRUE, candidates_of
from pipeline.studies.pools import ExternalPoolConfig, write_pool

Places = npt.NDArray[np.int64]
OfField = Mapping[str, Mapping[str, Sequence[str]]]
"""Candidate ids by query id and candidate type."""

MEASURES = ("map", "ndcg", "recall@5")
"""What the benchmark reports, over the whole list but for recall."""

DEPTH = 5
"""Where recall is cut; it is 1 by construction in a field whose lists are all as short."""

MEANINGS = {
    "graph": "near the query in the citation graph, not cited",
    "most_cited": "among the most cited of the field, not cited",
    "random": "any paper, not cited",
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
        table = pool.artifact.arrow("lists.arrow")
        self.query, self.row = (table.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
        self.type = np.array(table.column("type").to_pylist(), object)

    @property
    def types(self) -> list[str]:
        """The types of negatives, in order of first appearance."""
        return [name for name in dict.fromkeys(self.type) if name != TRUE]

    def typed(self) -> Typed:
        """Return the candidates with their types for a page."""
        names = [TRUE, *self.types]
        kinds = {"positive": "cited by the query"}
        kinds |= {name: MEANINGS.get(name, f"ranked high by {name}, not cited") for name in self.types}
        place = {name: number for number, name in enumerate(names)}
        return Typed(kinds, self.query, self.row, np.array([place[name] for name in self.type], np.int64))

    def pairs(self, types: Container[str] | None = None) -> npt.NDArray[np.uint64]:
        """Return the pairs of query and candidate of some types and of ``true``, rising; None: of all types."""
        kept = [types is None or name == TRUE or name in types for name in self.type]
        return np.unique(pairs(self.query[kept], self.row[kept]))

    def values(self, ranking: Ranking, measures: Sequence[str], types: Container[str] | None = None) -> Floats:
        """Return measures of a ranking of complete lists, of some types and ``true``: ``[measures, queries]``."""
        queries = len(self.pool.query_rows)
        kept: Mask = np.isin(pairs(ranking.query, ranking.row), self.pairs(types))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(ranking.query[kept], minlength=queries))])
        run = Run(offsets.astype(np.int64), ranking.row[kept])
        return evaluate(Qrels.from_table(self.pool.qrels, queries), run, parse_measures(measures))


def lists_pool_task(corpus: Artifact, field: str, split: str, lists: OfField) -> Task:
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
        opened = Corpus(inputs["corpus"])
        entries = [(q, c, t) for q, by_type in lists.items() for t, ids in by_type.items() for c in ids]
        names = [*lists, *(candidate for _, candidate, _ in entries)]
        rows = opened.rows_of(names)
        if (rows < 0).any():
            absent = int(np.flatnonzero(rows < 0)[0])
            place = f"query {names[absent] if absent < len(lists) else entries[absent - len(lists)][0]} of {field}"
            raise InputError(f"{place} needs the text of paper {names[absent]}, got none", "Add it to the data file")
        query_rows = np.unique(rows[: len(lists)])
        place_of = dict(zip(lists, np.searchsorted(query_rows, rows[: len(lists)]).tolist(), strict=True))
        query = np.array([place_of[q] for q, _, _ in entries], np.int64)
        return write_lists_pool(out, field, query_rows, query, rows[len(lists) :], [t for _, _, t in entries])

    return Task("pool", 1, POOLS, f"{corpus.manifest.slug}-{field_name(field)}", config, {"corpus": corpus}, run)


def field_name(field: str) -> str:
    """Return a benchmark's field as part of the name of a file or folder."""
    return file_name(field.lower()) or "field"


def write_lists_pool(
    out: Workdir, field: str, query_rows: Places, query: Places, row: Places, types: Sequence[str]
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


def in_order(packed: np.ndarray, scores: np.ndarray, queries: int) -> Ranking:
    """Return the ranking of some pairs (:func:`pipeline.measure.inputs.pairs`) in the one total order."""
    query = (packed >> np.uint64(32)).astype(np.int64)
    order = np.lexsort(((packed & np.uint64(0xFFFFFFFF)).astype(np.int64), scores, -query))[::-1]
    rows = packed[order].astype(np.uint32)
    return Ranking.from_counts(np.bincount(query, minlength=queries), rows, scores[order])
