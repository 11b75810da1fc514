"""The queries one by one: their sentences, figures, and each candidate's grade and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.corpus.pool import Pool
from pipeline.measure.measures import parse_measures
from pipeline.scores.page.parts import Mark, Spans, TextBrowser, TextEntry, TextTable
from pipeline.scores.tables import percent
from pipeline.sources.csfcube import FACETS
from pipeline.stages.search import read_ranking
from pipeline.studies.facets.agreement import cited_of
from pipeline.studies.facets.collection import Collection
from pipeline.studies.facets.pools import facet_query_ids
from pipeline.studies.facets.report import Rankings

_Ranks = Mapping[str, Mapping[tuple[str, int], int]]
"""Ranks by system, and by query and row."""


def browser(pools: Mapping[str, Pool], collection: Collection, rankings: Rankings, values: pl.DataFrame) -> TextBrowser:
    """Return the browser of a study's queries; ``values`` are of :func:`pipeline.studies.facets.scoring.values_of`."""
    sentences, folds = collection.sentences, collection.folds
    readings: list[TextEntry] = []
    for facet, pool in pools.items():
        texts = {paper: _spans(found, facet) for paper, found in sentences.items()}
        ranks = {f"{key[0]}, {key[1]}": _ranks(*found) for key, found in rankings.items() if key[2] == facet}
        figures = _figures(values.filter(facet=facet))
        for query, listing in _candidates(pool, texts, ranks):
            paper = query.rpartition("_")[0]
            (title,) = pool.corpus.take(pool.corpus.rows_of([paper]), ["title"]).column(0).to_pylist()
            facts = {"query": query, "folds": ", ".join(name for name in folds if query in folds[name])}
            kept = {name: value for name, value in facts.items() if value}
            readings.append(TextEntry([facet], title or paper, texts[paper], [figures[query], listing], kept))
    note = "A candidate opens its abstract. Ranks are within the judged pool."
    return TextBrowser("Queries", ["Facet"], {"bold": "sentences of the facet"}, readings, note)


def _spans(sentences: list[tuple[str, str]], facet: str) -> Spans:
    pieces: list[tuple[str, Mark]] = []
    for label, text in sentences:
        pieces += [(text, "bold" if label in FACETS[facet] else ""), (" ", "")]
    return pieces


def _ranks(pool: Pool, artifact: Artifact) -> Mapping[tuple[str, int], int]:
    found, ids = read_ranking(artifact), facet_query_ids(pool)
    rows = zip(found.query.tolist(), found.row.tolist(), found.rank.tolist(), strict=True)
    return {(ids[query], row): rank for query, row, rank in rows}


def _figures(values: pl.DataFrame) -> dict[str, TextTable]:
    """Return a row for each system with all measures, by query."""
    names = values["measure"].unique(maintain_order=True).to_list()
    columns = ["system", *(each.label for each in parse_measures(names))]
    wide = values.pivot("measure", index=["query", "system", "form"], values="value", maintain_order=True)
    rows: dict[str, list[list[str]]] = {}
    for query, system, form, *figures in wide.iter_rows():
        rows.setdefault(query, []).append([f"{system}, {form}", *map(percent, figures)])
    return {query: TextTable("Figures of the query (%)", columns, found) for query, found in rows.items()}


def _candidates(pool: Pool, texts: Mapping[str, Spans], ranks: _Ranks) -> Iterator[tuple[str, TextTable]]:
    """Yield each query with its candidates, highest grade first."""
    papers = pool.corpus.take(pool.candidates, ["paper_id", "title"]).to_pylist()
    known = dict(zip(pool.candidates.tolist(), papers, strict=True))
    judged = pl.DataFrame(pl.from_arrow(pool.qrels)).with_columns(pl.Series("cited", cited_of(pool)))
    ordered = judged.sort(["query", "grade", "row"], descending=[False, True, False])
    for (number,), own in ordered.group_by("query", maintain_order=True):
        query = pool.query_ids()[number]
        rows, opened = [], []
        for row, grade, is_cited in own.select("row", "grade", "cited").iter_rows():
            paper = known[row]
            places = [str(found[query, row]) for found in ranks.values()]
            rows.append([paper["title"] or paper["paper_id"], str(grade), "yes" if is_cited else "–", *places])
            opened.append(texts.get(paper["paper_id"], ()))
        relevance = f"{len(rows)} candidates: grade, whether the query cites it, and rank by each system"
        yield query, TextTable(relevance, ["candidate", "grade", "cited", *ranks], rows, opened)
