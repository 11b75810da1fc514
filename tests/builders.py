"""Small corpora and pools for tests, published as the real stages publish them.

    corpus = make_corpus(tmp_path, [{"paper_id": "7", "title": "A title", "year": 2019, "fields": ["Physics"]}, ...],
                         citations=[("7", "3")])
    pool = make_pool(tmp_path, corpus, queries=["7"])            # candidates: every paper; qrels: what "7" cites
    Corpus(corpus), Pool(pool, Corpus(corpus))                   # read them

Papers are sorted by id on the way in: find a paper's row with ``Corpus(corpus).rows_of(["7"])``. Where a function takes
papers, a ``str`` is a paper id and an ``int`` a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.fields import FIELD_BIT
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import (
    ATTRIBUTES,
    CANDIDATES,
    EXCLUSIONS,
    INDICES,
    INDPTR,
    JUDGEMENTS,
    MISSING,
    NO_YEAR,
    PAPERS,
    POOL_QUERIES,
    QUERY_TEXTS,
    SHARD_ROWS,
)
from pipeline.core.task import Inputs, Task
from pipeline.core.text import id_keys, title_keys
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA, POOLS, name_corpus
from pipeline.corpus.reader import Corpus

Paper = str | int


def make_corpus(
    root: Path,
    papers: Sequence[Mapping[str, Any]] | int,
    citations: Iterable[tuple[str, str]] = (),
    *,
    name: str = "tiny",
    shard_rows: int = SHARD_ROWS,
    query_texts: Mapping[str, str] | None = None,
    judgements: Iterable[tuple[str, str, int]] = (),
) -> Artifact:
    """Publish a corpus below ``root`` and give it a name.

    Args:
        root: workspace folder.
        papers: one mapping a paper with ``paper_id`` and any of ``title``, ``abstract``, ``year``, ``fields``,
            ``n_outbound``, ``n_inbound``; or how many papers to make up (ids ``00000``, ``00001``, ...).
        citations: (citing id, cited id), both in the corpus.
        name: what users call it.
        shard_rows: papers a shard, small to get several shards.
        query_texts: queries that are no papers, text by query id, as a BEIR release brings them.
        judgements: (query id, paper id, grade) of those queries; the corpus may lack the paper of a positive.
    """
    if isinstance(papers, int):
        papers = [made_up_paper(number) for number in range(papers)]
    rows = sorted((_with_defaults(paper) for paper in papers), key=lambda paper: paper["paper_id"])
    row_of = {paper["paper_id"]: row for row, paper in enumerate(rows)}
    edges = sorted({(row_of[a], row_of[b]) for a, b in citations if a != b})
    _count_citations(rows, edges)
    texts = sorted((query_texts or {}).items())
    position = {query_id: number for number, (query_id, _) in enumerate(texts)}
    judgements = list(judgements)
    judged = sorted((position[query], row_of[paper], grade) for query, paper, grade in judgements if paper in row_of)
    missing = sorted((position[query], grade) for query, paper, grade in judgements if paper not in row_of)

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        del inputs, resources
        for number, start in enumerate(range(0, max(len(rows), 1), shard_rows)):
            part = rows[start : start + shard_rows]
            out.arrow(f"papers-{number:05d}.arrow", pa.Table.from_pylist(part, PAPERS), PAPERS)
        out.arrow("attributes.arrow", _attributes(rows), ATTRIBUTES)
        for kind, pairs in (("outgoing", edges), ("incoming", sorted((b, a) for a, b in edges))):
            sources = np.array([a for a, _ in pairs], np.int64)
            offsets = np.searchsorted(sources, np.arange(len(rows) + 1))
            out.arrow(f"{kind}-indptr.arrow", pa.table([offsets], INDPTR), INDPTR)
            out.arrow(f"{kind}-indices.arrow", _rows(INDICES, [(b,) for _, b in pairs]), INDICES)
        if query_texts is not None:
            table = pa.Table.from_pylist([{"query_id": q, "text": t} for q, t in texts], QUERY_TEXTS)
            out.arrow("queries.arrow", table, QUERY_TEXTS)
            out.arrow("judgements.arrow", _rows(JUDGEMENTS, judged), JUDGEMENTS)
            out.arrow("missing.arrow", _rows(MISSING, missing), MISSING)
        return {"papers": len(rows), "references_in_corpus": len(edges)}

    config = {"source": "test", "content": digest([rows, edges, texts, judged, shard_rows, *missing])}
    artifact = _make(root, Task("corpus", 1, CORPORA, name, config, {}, write))
    name_corpus(root, name, artifact)
    return artifact


def make_pool(
    root: Path,
    corpus: Artifact,
    queries: Sequence[Paper] | None = None,
    candidates: Sequence[Paper] | None = None,
    *,
    qrels: Iterable[tuple[Paper, Paper, int]] | None = None,
    exclusions: Iterable[tuple[Paper, Paper]] | None = None,
    field: str | None = None,
    slug: str = "pool",
    **config: Any,
) -> Artifact:
    """Publish a pool below ``root``.

    Args:
        root: workspace folder.
        corpus: the corpus its rows number.
        queries: papers; None: the corpus's query texts, all of them.
        candidates: papers; None: every paper.
        qrels: (query, candidate, grade); None: what the queries cite among the candidates with grade 1, or the
            corpus's judgements of its query texts. A query text is named by its position.
        exclusions: (query, candidate) removed from that query's ranking; None: the query itself, if it is a candidate.
        field: field of every query.
        slug: readable part of the folder name.
        config: further entries of the manifest's config, such as ``size=5``.
    """
    reader = Corpus(corpus)
    everyone = list(range(len(reader)))
    rows = sorted(everyone if candidates is None else _resolve(reader, candidates))
    among = set(rows)
    if queries is None:
        query_rows = list(range(len(reader.query_texts)))
        table = reader.judgements
        known = [tuple(row.values()) for row in table.to_pylist() if row["row"] in among]
        own: list[tuple[int, int]] = []
    else:
        query_rows = sorted(_resolve(reader, queries))
        known = [(q, int(r), 1) for q in query_rows for r in reader.outgoing.of(q) if int(r) in among]
        own = [(q, q) for q in query_rows if q in among]
    place = {row: number for number, row in enumerate(query_rows)}
    if qrels is not None:
        known = [(*_resolve(reader, (query, paper)), grade) for query, paper, grade in qrels]
    if exclusions is not None:
        own = [(a, b) for a, b in (_resolve(reader, pair) for pair in exclusions)]
    judged = sorted((place[q], row, grade) for q, row, grade in known)
    removed = sorted((place[q], row) for q, row in own)

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        del inputs, resources
        out.arrow("queries.arrow", _rows(POOL_QUERIES, [(row, field) for row in query_rows]), POOL_QUERIES)
        out.arrow("candidates.arrow", _rows(CANDIDATES, [(row,) for row in rows]), CANDIDATES)
        out.arrow("qrels.arrow", _rows(JUDGEMENTS, judged), JUDGEMENTS)
        out.arrow("exclusions.arrow", _rows(EXCLUSIONS, removed), EXCLUSIONS)
        if queries is None:
            out.arrow("missing.arrow", reader.missing, MISSING)
        return {"queries": len(query_rows), "candidates": len(rows), "positives": len(judged)}

    content = digest([query_rows, rows, judged, removed, field])
    settings = {"queries_are": "texts" if queries is None else "papers", "content": content, **config}
    return _make(root, Task("pool", 1, POOLS, slug, settings, {"corpus": corpus}, write))


def made_up_paper(number: int) -> dict[str, Any]:
    """Return a paper whose title and abstract hold words of its own and words it shares with others."""
    words = [f"word{number % modulus}of{modulus}" for modulus in (2, 3, 5, 7, 11)]
    return {
        "paper_id": f"{number:05d}",
        "title": f"Paper number{number} on {words[number % 5]}",
        "abstract": " ".join(words[: 1 + number % 5] * (1 + number % 3)) + f" unique{number}.",
        "year": 2000 + number % 20,
        "fields": [("Physics", "Medicine", "Art")[number % 3]],
    }


def _with_defaults(paper: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(paper) - set(PAPERS.names)
    if unknown:
        raise TypeError(f"papers have no {unknown}")
    return {"title": "", "abstract": "", "year": None, "fields": [], **paper}


def _count_citations(rows: list[dict[str, Any]], edges: list[tuple[int, int]]) -> None:
    for column, counted in (("n_outbound", Counter(a for a, _ in edges)), ("n_inbound", Counter(b for _, b in edges))):
        for row, paper in enumerate(rows):
            paper.setdefault(column, counted[row])


def _attributes(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {
        "key": id_keys([paper["paper_id"] for paper in rows]),
        "title_key": title_keys([paper["title"] for paper in rows]),
        "fields": [sum(1 << FIELD_BIT[name] for name in set(paper["fields"]) & FIELD_BIT.keys()) for paper in rows],
        "year": [NO_YEAR if paper["year"] is None else paper["year"] for paper in rows],
        "n_outbound": [paper["n_outbound"] for paper in rows],
        "n_inbound": [paper["n_inbound"] for paper in rows],
        "title_chars": [len(paper["title"]) for paper in rows],
        "abstract_chars": [len(paper["abstract"]) for paper in rows],
        "doi_key": [0] * len(rows),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in ATTRIBUTES], ATTRIBUTES)


def _rows(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)], schema)


def _resolve(corpus: Corpus, papers: Sequence[Paper]) -> list[int]:
    found = [int(corpus.rows_of([paper])[0]) if isinstance(paper, str) else paper for paper in papers]
    for paper, row in zip(papers, found, strict=True):
        if row < 0:
            raise ValueError(f"the corpus has no paper {paper!r}")
    return found


def _make(root: Path, task: Task) -> Artifact:
    return Runner(root, Resources(workers=1)).make(task)
