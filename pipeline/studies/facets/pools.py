"""A collection and its pools, each with the queries of one facet.

The candidates of a judged pool are those of all its queries; candidates that are not judged for a query are excluded
from its ranking. So every engine ranks within judged pools, and they are scored like any other pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import MISSING
from pipeline.core.settings import required
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import write_pool
from pipeline.corpus.reader import Corpus, Rows
from pipeline.sources.base import fingerprint
from pipeline.sources.csfcube import FACETS, Annotations, Csfcube, query_id, read_annotations
from pipeline.stages.corpus import corpus_task
from pipeline.studies.common import ExternalPoolConfig, require_made

FOLDER = "corpora/facets"
SPLITS = "evaluation_splits.json"
_FILE = "facets.json"

FACET, WHOLE = "facet", "whole"
"""Forms of a query: the sentences of the facet, or the whole paper."""

_QUERIES: Mapping[str, Literal["papers", "texts"]] = {FACET: "texts", WHOLE: "papers"}


@dataclass(frozen=True, kw_only=True)
class CollectionRecipe:
    """Settings that every recipe of a collection has."""

    corpus: str = required("name of the corpus to make")
    input: str = required("folder of the collection")

    @property
    def release(self) -> Csfcube:
        """The collection's files."""
        return Csfcube(Path(self.input).expanduser())

    @property
    def corpus_task(self) -> Task:
        """The task that makes the corpus."""
        return corpus_task(self.corpus, self.release)

    def require_corpus(self, workspace: Workspace) -> Artifact:
        """Return the corpus, which must have been made."""
        return require_made(workspace, self.corpus_task)


@dataclass(frozen=True)
class CollectionConfig:
    """Settings of the artifact: the checksums of the files, by name."""

    files: Mapping[str, str]


class Collection(msgspec.Struct):
    """The folds, labelled sentences and annotations of a collection.

    Attributes:
        folds: test queries of each fold; empty if the collection has no folds.
        sentences: label and text of each sentence, by paper (queries and candidates).
        annotations: candidates and grades of every annotator, by facet.
    """

    folds: dict[str, list[str]]
    sentences: dict[str, list[tuple[str, str]]]
    annotations: dict[str, Annotations]

    @classmethod
    def read(cls, artifact: Artifact) -> Collection:
        """Read the artifact of :func:`collection_task`."""
        return msgspec.convert(files.read_json(artifact.file(_FILE)), cls)


def collection_task(corpus: Artifact, release: Csfcube) -> Task:
    """Return the task that reads the folds, sentences and annotations of a collection.

    Raises:
        InputError: once run: the splits name a query that does not exist; the query is named.
    """
    splits = release.folder / SPLITS
    split_checksums = fingerprint([splits], release.folder) if splits.is_file() else {}

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        queries = release.query_facets()
        annotations = {facet: read_annotations(path) for facet, path in release.annotations().items()}
        judged = {paper for by_paper in annotations.values() for lists in by_paper.values() for paper in lists["cands"]}
        documents = release.documents(judged.union(paper for paper, _ in queries))
        folds = _folds(splits, {query_id(*query) for query in queries}) if splits.is_file() else {}
        sentences = {paper: document.sentences for paper, document in sorted(documents.items())}
        content = {"folds": folds, "sentences": sentences, "annotations": annotations}
        with out.file(_FILE) as (path, _):
            files.write_text(path, json.dumps(content, ensure_ascii=False))
        return {"queries": len(queries), "papers": len(documents), "folds": len(folds)}

    config = CollectionConfig({**release.identity()["files"], **split_checksums})
    return Task("facets", 2, FOLDER, corpus.manifest.slug, config, {"corpus": corpus}, run)


def _folds(path: Path, queries: set[str]) -> dict[str, list[str]]:
    try:
        splits = msgspec.convert(files.given_json(path), dict[str, dict[str, list[str]]])
    except msgspec.ValidationError as error:
        raise InputError(f"{path} must name queries by facet and fold ({error})", "Fetch it again") from error
    folds: dict[str, list[str]] = {}
    for facet in FACETS:
        for name, members in splits.get(facet, {}).items():
            if name.endswith("_test"):
                folds[name] = folds.get(name, []) + members
    for query in sorted({query for members in folds.values() for query in members} - queries)[:1]:
        raise InputError(f"{path} names query {query}, which is not judged", nearest(query, queries))
    return folds


@dataclass(frozen=True)
class FacetPool(ExternalPoolConfig):
    """Settings of the pools of one facet.

    Attributes:
        relevant: lowest relevant grade; queries without a candidate of this grade are left out and counted. None:
            there are no judgements, and every query ranks all other papers with text.
    """

    relevant: int | None = 2

    @property
    def slug(self) -> str:
        """Readable name: ``judged-method-texts``."""
        return f"{'open' if self.relevant is None else 'judged'}-{self.field}-{self.queries_are}"


def facet_pool_task(corpus: Artifact, facet: str, form: str, relevant: int | None) -> Task:
    """Return the task that makes the pools of one facet, with queries of a ``form`` (:data:`FACET` or :data:`WHOLE`).

    The corpus has queries named ``PAPER_FACET`` and their judgements (:mod:`pipeline.sources.csfcube`).

    Raises:
        InputError: once run: no query has this facet, or none has a relevant candidate.
    """
    config = FacetPool(field=facet, queries_are=_QUERIES[form], relevant=relevant)
    run, slug = partial(_build, config), f"{corpus.manifest.slug}-{config.slug}"
    return Task("pool", 3, POOLS, slug, config, {"corpus": corpus}, run)


def _build(config: FacetPool, inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
    corpus = Corpus(inputs["corpus"])
    texts = pl.DataFrame({"id": corpus.query_texts.column("query_id").to_pylist()}).with_row_index("text")
    texts = texts.with_columns(facet=pl.col("id").str.extract("([^_]*)$"), paper=pl.col("id").str.extract("(.*)_"))
    of_facet = texts.filter(facet=config.field)
    if of_facet.is_empty():
        facets = ", ".join(texts["facet"].unique().sort())
        raise InputError(f"the facet must be one of {facets}, got {config.field}", "Set facets in the recipe")
    judged = pl.DataFrame(pl.from_arrow(corpus.judgements)).rename({"query": "text"})
    relevant = config.relevant
    queries = of_facet
    if relevant is not None:
        queries = of_facet.join(judged.filter(pl.col("grade") >= relevant), on="text", how="semi")
    if queries.is_empty():
        raise InputError(
            f"no query of facet {config.field} has a candidate of grade {relevant} or more",
            "Grade the candidates (relevance_adju), or lower relevant",
        )
    queries = queries.with_columns(paper_row=pl.Series(corpus.rows_of(queries["paper"].to_list())).cast(pl.UInt32))
    key = "text" if config.queries_are == "texts" else "paper_row"
    queries = queries.sort(key).with_row_index("query")
    judged = judged.join(queries, on="text").select("query", "row", "grade").sort("query", "row")
    if relevant is None:
        judged = judged.clear()
        candidates = pl.DataFrame({"row": np.flatnonzero(~without_text(corpus))}, {"row": pl.UInt32})
        excluded = queries.select("query", row="paper_row").join(candidates, on="row", how="semi")
    else:
        candidates = judged.select("row").unique().sort("row")
        excluded = queries.select("query").join(candidates, how="cross")
        excluded = excluded.join(judged, on=["query", "row"], how="anti", maintain_order="left")
    rows = candidates["row"].to_numpy()
    write_pool(out, (queries[key], [config.field] * len(queries)), rows, judged.get_columns(), excluded.get_columns())
    out.arrow("missing.arrow", MISSING.empty_table(), MISSING)
    return {
        "queries": len(queries),
        "queries_without_relevant": len(of_facet) - len(queries),
        "positives": judged.filter(pl.col("grade") > 0).height,
        "relevant": judged.filter(pl.col("grade") >= (relevant or 0)).height,
        "judgements": len(judged),
        "candidates": len(candidates),
        "candidates_without_text": int(np.count_nonzero(without_text(corpus)[rows])),
    }


def without_text(corpus: Corpus) -> npt.NDArray[np.bool_]:
    """Return which papers have neither title nor abstract, bool ``[papers]``."""
    attributes = corpus.attributes
    return np.asarray((attributes["title_chars"] + attributes["abstract_chars"]) == 0)


def ranked_rows(pool: Pool) -> Iterator[Rows]:
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
    return [query_id(paper, facet_of(pool)) for paper in query_papers(pool)]
