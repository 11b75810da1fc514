"""A collection and its pools, each with the queries of one facet.

The candidates of a judged pool are those of all its queries; candidates that are not judged for a query are excluded
from its ranking. So every engine ranks within judged pools, and they are scored like any other pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, Corpus, InputError, Pool, csfcube

FOLDER = "corpora/facets"
SPLITS = "evaluation_splits.json"
_FILE = "facets.json"

FACET, WHOLE = "facet", "whole"
"""Forms of a query: the sentences of the facet, or the whole paper."""

_QUERIES = {FACET: "texts", WHOLE: "papers"}


def collection_task(corpus: Artifact, release: csfcube.Csfcube) -> kit.Task:
    """Return the task that reads a collection (:func:`read_collection`).

    Raises:
        InputError: once run: the splits name a query that does not exist; the query is named.
    """
    splits = release.folder / SPLITS
    split_checksums = kit.fingerprint([splits], release.folder) if splits.is_file() else {}

    def run(_inputs: kit.Inputs, out: kit.Workdir, _resources: kit.Resources) -> kit.Counts:
        queries = release.query_facets()
        annotations = {facet: csfcube.read_annotations(path) for facet, path in release.annotations().items()}
        judged = {paper for by_paper in annotations.values() for lists in by_paper.values() for paper in lists["cands"]}
        documents = release.documents(judged.union(paper for paper, _ in queries))
        folds = _folds(splits, {csfcube.query_id(*query) for query in queries}) if splits.is_file() else {}
        sentences = {paper: document.sentences for paper, document in sorted(documents.items())}
        content = {"folds": folds, "sentences": sentences, "annotations": annotations}
        with out.file(_FILE) as (path, _):
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return {"queries": len(queries), "papers": len(documents), "folds": len(folds)}

    config = {"files": {**release.identity()["files"], **split_checksums}}
    return kit.Task("facets", 2, FOLDER, corpus.manifest.slug, config, {"corpus": corpus}, run)


def read_collection(artifact: Artifact) -> dict[str, Any]:
    """Return ``folds`` (test queries, if there are any), ``sentences`` (label and text, by paper) and ``annotations``.

    Annotations are the candidates and grades of every annotator, by facet.
    """
    content: dict[str, Any] = json.loads(artifact.file(_FILE).read_text(encoding="utf-8"))
    return content


def _folds(path: Path, queries: set[str]) -> dict[str, list[str]]:
    folds: dict[str, list[str]] = {}
    try:
        splits = kit.given_json(path)
        for facet in csfcube.FACETS:
            for name, members in splits.get(facet, {}).items():
                if name.endswith("_test"):
                    folds[name] = folds.get(name, []) + members
        unknown = sorted({query for members in folds.values() for query in members} - queries)
    except (AttributeError, TypeError) as error:
        raise InputError(f"{path} must name queries by facet and fold ({error})", "Fetch it again") from error
    if unknown:
        raise InputError(f"{path} names query {unknown[0]}, which is not judged", kit.nearest(unknown[0], queries))
    return folds


def facet_pool_task(corpus: Artifact, facet: str, form: str, relevant: int) -> kit.Task:
    """Return the task that makes the pools of one facet, with queries of a ``form`` (:data:`FACET` or :data:`WHOLE`).

    Queries without a candidate of the grade ``relevant`` or higher are left out and counted.

    Raises:
        InputError: once run: no query has this facet, or none has a relevant candidate.
    """
    kind = _QUERIES[form]

    def build(inputs: kit.Inputs, out: kit.Workdir) -> kit.Counts:
        corpus = Corpus(inputs["corpus"])
        texts = pl.DataFrame({"id": corpus.query_texts.column("query_id").to_pylist()}).with_row_index("text")
        texts = texts.with_columns(facet=pl.col("id").str.extract("([^_]*)$"), paper=pl.col("id").str.extract("(.*)_"))
        of_facet = texts.filter(facet=facet)
        if of_facet.is_empty():
            facets = ", ".join(texts["facet"].unique().sort())
            raise InputError(f"the facet must be one of {facets}, got {facet}", "Set facets in the recipe")
        judged = pl.DataFrame(pl.from_arrow(corpus.judgements)).rename({"query": "text"})
        queries = of_facet.join(judged.filter(pl.col("grade") >= relevant), on="text", how="semi")
        if queries.is_empty():
            problem = f"no query of facet {facet} has a candidate of grade {relevant} or more"
            raise InputError(problem, "Grade the candidates (relevance_adju), or lower relevant")
        queries = queries.with_columns(paper_row=pl.Series(corpus.rows_of(queries["paper"].to_list())).cast(pl.UInt32))
        key = "text" if kind == "texts" else "paper_row"
        queries = queries.sort(key).with_row_index("query")
        judged = judged.join(queries, on="text").select("query", "row", "grade").sort("query", "row")
        candidates = judged.select("row").unique().sort("row")
        excluded = queries.select("query").join(candidates, how="cross")
        excluded = excluded.join(judged, on=["query", "row"], how="anti", maintain_order="left")
        rows = candidates["row"].to_numpy()
        kit.write_pool(out, (queries[key], [facet] * len(queries)), rows, judged.get_columns(), excluded.get_columns())
        out.arrow("missing.arrow", kit.MISSING.empty_table(), kit.MISSING)
        return {
            "queries": len(queries),
            "queries_without_relevant": len(of_facet) - len(queries),
            "positives": judged.filter(pl.col("grade") > 0).height,
            "relevant": judged.filter(pl.col("grade") >= relevant).height,
            "judgements": len(judged),
            "candidates": len(candidates),
            "candidates_without_text": int(np.count_nonzero(without_text(corpus)[rows])),
        }

    slug, own = f"{corpus.manifest.slug}-judged-{facet}-{kind}", {"relevant": relevant}
    return kit.own_pool(slug, build, {"corpus": corpus}, version=3, own=own, field=facet, queries_are=kind)


def without_text(corpus: Corpus) -> npt.NDArray[np.bool_]:
    """Return which papers have neither title nor abstract, bool ``[papers]``."""
    attributes = corpus.attributes
    return np.asarray((attributes["title_chars"] + attributes["abstract_chars"]) == 0)


def ranked_rows(pool: Pool) -> Iterator[npt.NDArray[Any]]:
    """Yield the candidates that each query ranks, rising rows."""
    for query in range(len(pool.query_rows)):
        yield np.setdiff1d(pool.candidates, pool.excluded(query), assume_unique=True)


def facet_of(pool: Pool) -> str:
    """Return the facet by which a pool was judged: ``background``, ``method`` or ``result``."""
    return str(pool.artifact.manifest.config["field"])


def query_papers(pool: Pool) -> list[str]:
    """Return the paper of each query, whatever the form of the queries."""
    return [query if pool.queries_are_papers else query.rpartition("_")[0] for query in pool.query_ids()]


def judgements_of(pool: Pool) -> pl.DataFrame:
    """Return ``query``, ``row`` and ``grade`` of each judgement, with the ``paper`` of the query."""
    qrels = pl.DataFrame(pl.from_arrow(pool.qrels))
    return qrels.with_columns(paper=pl.Series(query_papers(pool), dtype=pl.String).gather(qrels["query"]))


def facet_query_ids(pool: Pool) -> list[str]:
    """Return the ids of the queries, ``PAPER_FACET``, whatever their form."""
    return [csfcube.query_id(paper, facet_of(pool)) for paper in query_papers(pool)]
