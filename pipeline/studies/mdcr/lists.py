"""Candidate lists: the published layout, pools in which each query ranks its own list, and measures of rankings.

The layout is ``mdcr_SPLIT.json`` (candidate ids by field, query id and type) and ``mdcr_SPLIT_data.jsonl`` (texts).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, Floats, InputError, Pool, Ranking, pack

Rows = npt.NDArray[np.int64]

TRUE, GRAPH, MOST_CITED, RANDOM = "true", "graph", "most_cited", "random"
"""Types of candidates: cited papers, and three of the types of negatives."""

FieldLists = Mapping[str, Mapping[str, Sequence[str]]]
"""Candidate ids by query id and candidate type."""

BenchmarkLists = Mapping[str, FieldLists]
"""Candidate ids by field, query id and candidate type."""

SPLITS = ("val", "test")

_AS_PUBLISHED = "Give mdcr_SPLIT.json as published"


def candidates_of(by_type: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the candidates of a query, each once."""
    return {paper for ids in by_type.values() for paper in ids}


def file_names(split: str) -> tuple[str, str]:
    """Return the names of the files of a split: candidates; ``paper_id``, ``title`` and ``abstract`` of its papers."""
    return f"mdcr_{split}.json", f"mdcr_{split}_data.jsonl"


def read_lists(folder: Path, split: str) -> BenchmarkLists:
    """Read the candidate lists of one split, published or home-built."""
    kit.require_known(split, SPLITS, f"the split of a benchmark must be val or test, got {split!r}")
    path = existing(folder, file_names(split)[0])
    lists: BenchmarkLists = kit.given_json(path)
    if not isinstance(lists, dict) or not lists:
        raise InputError(f"{path} must map fields to queries", _AS_PUBLISHED)
    for field, queries in lists.items():
        if not isinstance(queries, dict):
            raise InputError(f"{path}: {field} must map query ids to candidates", _AS_PUBLISHED)
        for query, by_type in queries.items():
            location = f"{path}: query {query} of {field}"
            ids_of = by_type.values() if isinstance(by_type, dict) else [0]
            if not all(isinstance(ids, list) and all(isinstance(paper, str) for paper in ids) for ids in ids_of):
                raise InputError(f"{location} must map candidate types to lists of ids", "Correct the file")
            if not by_type.get(TRUE):
                raise InputError(f"{location} has no candidate of type {TRUE!r}", "Leave the query out")
            if query in by_type[TRUE]:
                raise InputError(f"{location} has itself as candidate of type {TRUE!r}", "Leave the candidate out")
    return lists


def existing(folder: Path, name: str) -> Path:
    """Return a file of a benchmark; InputError if it is missing."""
    if not (folder / name).is_file():
        raise InputError(f"a benchmark must have {name}, got none in {folder}", "Give the folder with its files")
    return folder / name


MEASURES = ("map", "ndcg", "recall@5")
"""Measures of the benchmark; all but recall use the whole list."""

DEPTH = 5
"""Rank at which recall is cut; recall is 1 by construction in a field whose lists are all that short."""

SCHEMA = pa.schema(
    [pa.field(n, t, nullable=False) for n, t in (("query", pa.uint32()), ("row", pa.uint32()), ("type", pa.string()))]
)
"""``lists.arrow`` of a pool: the candidates of each query (its position in the pool) with their type."""


class Lists:
    """The lists of one ``pool``.

    The entries have the position of the ``query`` in the pool, the ``row`` of the candidate and its ``type``.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        entries = pool.artifact.arrow("lists.arrow")
        self.query, self.row = (entries.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
        self.type = np.array(entries.column("type").to_pylist(), object)

    @property
    def field(self) -> str:
        """The field whose queries the lists are of, one of the 19 of MAG."""
        return str(self.pool.artifact.manifest.config["field"])

    @property
    def types(self) -> list[str]:
        """The types of negatives, in order of first appearance."""
        return [name for name in dict.fromkeys(self.type) if name != TRUE]

    def pairs(self, types: Container[str] | None = None) -> npt.NDArray[np.uint64]:
        """Return the (query, candidate) pairs of ``types`` (None: all types) and of type ``true``, rising uint64."""
        is_kept = [types is None or name == TRUE or name in types for name in self.type]
        return np.unique(pack(self.query[is_kept], self.row[is_kept]))

    def values(self, ranking: Ranking, measures: Sequence[str], types: Container[str] | None = None) -> Floats:
        """Return measures of a ranking of the candidates of ``types`` and ``true``, float64 ``[measures, queries]``."""
        queries = len(self.pool.query_rows)
        is_kept = np.isin(pack(ranking.query, ranking.row), self.pairs(types))
        run = kit.RankedRun(np.searchsorted(ranking.query[is_kept], np.arange(queries + 1)), ranking.row[is_kept])
        return kit.evaluate_all(kit.Qrels.from_table(self.pool.qrels, queries), run, kit.parse_measures(measures))

    def scores(self, ranking: Ranking) -> dict[str, float]:
        """Return the scores of a ranking in the published layout, by ``queryid_candidateid``; higher is better."""
        queries, papers = self.pool.query_ids(), self.pool.corpus.ids(ranking.row)
        entries = zip(ranking.query.tolist(), papers, ranking.score.tolist(), strict=True)
        return {f"{queries[query]}_{paper}": score for query, paper, score in entries}


def lists_pool_task(corpus: Artifact, field: str, split: str, lists: FieldLists) -> kit.Task:
    """Return the task of the pool of one field of a benchmark; the corpus has all papers of the lists.

    Its settings have the kit.digest of the ``lists``, and the number of candidates of the ``longest`` one.
    """

    def build(inputs: kit.Inputs, out: kit.Workdir) -> kit.Counts:
        entries = [
            (query, paper, name) for query, types in lists.items() for name, ids in types.items() for paper in ids
        ]
        owners, papers, types = map(list, zip(*entries, strict=True))
        rows = kit.Corpus(inputs["corpus"]).rows_of([*lists, *papers])
        if (rows < 0).any():
            query, paper = [*zip(lists, lists, strict=True), *zip(owners, papers, strict=True)][np.argmin(rows)]
            location = f"query {query} of {field}"
            raise InputError(f"{location} needs the text of paper {paper}, got none", "Add it to the data file")
        row_of = dict(zip(lists, rows.tolist(), strict=False))
        query_rows = np.unique(rows[: len(lists)])
        query = np.searchsorted(query_rows, [row_of[query] for query in owners])
        return write_lists_pool(out, field, query_rows, query, rows[len(lists) :], types)

    return kit.own_pool(
        f"{corpus.manifest.slug}-{kit.file_name(field.lower()) or 'field'}",
        build,
        {"corpus": corpus},
        own={"lists": kit.digest(lists), "longest": max(len(candidates_of(by_type)) for by_type in lists.values())},
        field=field,
        size=len(set().union(*map(candidates_of, lists.values()))),
        queries=len(lists),
        seed=0,
        split="validation" if split == "val" else "test",
        drop_same_title=False,
    )


def write_lists_pool(
    out: kit.Workdir, field: str, query_rows: Rows, query: Rows, row: Rows, types: Sequence[str]
) -> kit.Counts:
    """Write a pool whose queries exclude every candidate that is not in their own list; return its counts.

    ``query_rows`` are rising. An entry has the position of its ``query``, its candidate (``row``) and its type; type
    ``true`` means positive.
    """
    candidates = np.unique(row)
    is_foreign = np.ones((len(query_rows), len(candidates)), bool)
    is_foreign[query, np.searchsorted(candidates, row)] = False
    excluded, position = np.nonzero(is_foreign)
    positive = np.array([name == TRUE for name in types], bool)
    judged = np.unique(pack(query[positive], row[positive]))
    judgements = (judged >> np.uint64(32), judged.astype(np.uint32), np.ones(len(judged)))
    kit.write_pool(
        out, (query_rows, [field] * len(query_rows)), candidates, judgements, (excluded, candidates[position])
    )
    order = np.argsort(query, kind="stable")
    entries = {"query": query[order].astype(np.uint32), "row": row[order].astype(np.uint32)}
    out.arrow("lists.arrow", pa.table({**entries, "type": np.array(types, object)[order]}, SCHEMA), SCHEMA)
    return {
        "queries": len(query_rows),
        "candidates": len(candidates),
        "pairs": int(np.count_nonzero(~is_foreign)),
        "positives": len(judged),
        "queries_without_positive": len(query_rows) - len(np.unique(judged >> np.uint64(32))),
        "excluded_self": 0,
        "excluded_same_title": 0,
    }


def in_order(packed: npt.NDArray[np.uint64], scores: npt.NDArray[np.float32], queries: int) -> Ranking:
    """Return the ranking of some pairs (:func:`pipeline.core.csr.pack`) in the one total order."""
    query = (packed >> np.uint64(32)).astype(np.int64)
    order = np.lexsort(((packed & np.uint64(0xFFFFFFFF)).astype(np.int64), scores, -query))[::-1]
    return Ranking.from_counts(np.bincount(query, minlength=queries), packed[order].astype(np.uint32), scores[order])
