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

from pipeline.core import schema
from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.fields import FIELD_BIT
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
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
    shard_rows: int = schema.SHARD_ROWS,
    query_texts: Mapping[str, str] | None = None,
    judgements: Iterable[tuple[str, str, int]] = (),
) -> Artifact:
    """Publish a corpus in the workspace ``root`` and give it a name.

    Args:
        papers: one mapping a paper with ``paper_id`` and any of ``title``, ``abstract``, ``year``, ``fields``,
            ``n_outbound``, ``n_inbound``; or how many papers to make up (ids ``00000``, ``00001``, ...).
        citations: (citing id, cited id), both in the corpus.
        query_texts: queries that are no papers, text by query id, as a BEIR release brings them.
        judgements: (query id, paper id, grade) of those queries; the corpus may lack the paper of a positive.
    """
    if isinstance(papers, int):
        papers = [made_up_paper(number) for number in range(papers)]
    unknown = {name for paper in papers for name in paper} - set(schema.PAPERS.names)
    if unknown:
        raise TypeError(f"papers have no {unknown}")
    usual = {"title": "", "abstract": "", "year": None, "fields": []}
    ids = sorted(paper["paper_id"] for paper in papers)
    row_of = {paper: row for row, paper in enumerate(ids)}
    edges = sorted({(row_of[a], row_of[b]) for a, b in citations if a != b})
    citing, cited = (Counter(ids[edge[end]] for edge in edges) for end in (0, 1))
    rows = [
        {**usual, "n_outbound": citing[paper["paper_id"]], "n_inbound": cited[paper["paper_id"]], **paper}
        for paper in sorted(papers, key=lambda paper: paper["paper_id"])
    ]
    texts = sorted((query_texts or {}).items())
    position = {query_id: number for number, (query_id, _) in enumerate(texts)}
    judgements = list(judgements)
    judged = sorted((position[query], row_of[paper], grade) for query, paper, grade in judgements if paper in row_of)
    missing = sorted((position[query], grade) for query, paper, grade in judgements if paper not in row_of)

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        del inputs, resources
        for number, start in enumerate(range(0, max(len(rows), 1), shard_rows)):
            part = rows[start : start + shard_rows]
            out.arrow(f"papers-{number:05d}.arrow", pa.Table.from_pylist(part, schema.PAPERS), schema.PAPERS)
        out.arrow("attributes.arrow", _attributes(rows), schema.ATTRIBUTES)
        for kind, pairs in (("outgoing", edges), ("incoming", sorted((b, a) for a, b in edges))):
            sources = np.array([a for a, _ in pairs], np.int64)
            offsets = np.searchsorted(sources, np.arange(len(rows) + 1))
            out.arrow(f"{kind}-indptr.arrow", pa.table([offsets], schema.INDPTR), schema.INDPTR)
            _write(out, f"{kind}-indices", schema.INDICES, [(b,) for _, b in pairs])
        if query_texts is not None:
            table = pa.Table.from_pylist([{"query_id": q, "text": t} for q, t in texts], schema.QUERY_TEXTS)
            out.arrow("queries.arrow", table, schema.QUERY_TEXTS)
            _write(out, "judgements", schema.JUDGEMENTS, judged)
            _write(out, "missing", schema.MISSING, missing)
        return {"papers": len(rows), "references_in_corpus": len(edges)}

    config = {"source": "test", "content": digest([rows, edges, texts, judged, shard_rows, *missing])}
    artifact = Runner(root, Resources(workers=1)).make(Task("corpus", 1, CORPORA, name, config, {}, write))
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
    """Publish a pool in the workspace ``root``.

    Args:
        queries: papers; None: the corpus's query texts, all of them.
        candidates: papers; None: every paper.
        qrels: (query, candidate, grade); None: what the queries cite among the candidates with grade 1, or the
            corpus's judgements of its query texts. A query text is named by its position.
        exclusions: (query, candidate) removed from that query's ranking; None: the query itself, if it is a candidate.
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
        _write(out, "queries", schema.POOL_QUERIES, [(row, field) for row in query_rows])
        _write(out, "candidates", schema.CANDIDATES, [(row,) for row in rows])
        _write(out, "qrels", schema.JUDGEMENTS, judged)
        _write(out, "exclusions", schema.EXCLUSIONS, removed)
        if queries is None:
            out.arrow("missing.arrow", reader.missing, schema.MISSING)
        return {"queries": len(query_rows), "candidates": len(rows), "positives": len(judged)}

    content = digest([query_rows, rows, judged, removed, field])
    settings = {"queries_are": "texts" if queries is None else "papers", "content": content, **config}
    task = Task("pool", 1, POOLS, slug, settings, {"corpus": corpus}, write)
    return Runner(root, Resources(workers=1)).make(task)


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


def _attributes(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {
        "key": id_keys([paper["paper_id"] for paper in rows]),
        "title_key": title_keys([paper["title"] for paper in rows]),
        "fields": [sum(1 << FIELD_BIT[name] for name in set(paper["fields"]) & FIELD_BIT.keys()) for paper in rows],
        "year": [schema.NO_YEAR if paper["year"] is None else paper["year"] for paper in rows],
        "n_outbound": [paper["n_outbound"] for paper in rows],
        "n_inbound": [paper["n_inbound"] for paper in rows],
        "title_chars": [len(paper["title"]) for paper in rows],
        "abstract_chars": [len(paper["abstract"]) for paper in rows],
        "doi_key": [0] * len(rows),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in schema.ATTRIBUTES], schema.ATTRIBUTES)


def _write(out: Workdir, name: str, of: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(of)
    table = pa.table([pa.array(values, f.type) for values, f in zip(columns, of, strict=True)], of)
    out.arrow(f"{name}.arrow", table, of)


def _resolve(corpus: Corpus, papers: Sequence[Paper]) -> list[int]:
    found = [int(corpus.rows_of([paper])[0]) if isinstance(paper, str) else paper for paper in papers]
    if min(found, default=0) < 0:
        raise ValueError(f"the corpus lacks one of {papers!r}")
    return found
