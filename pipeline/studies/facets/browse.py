"""The queries one by one: their sentences, figures, and each candidate's grade and ranks."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline.corpus.pool import Pool
from pipeline.scores.page.parts import Mark, Spans, TextBrowser, TextEntry, TextTable
from pipeline.scores.tables import label_of, percent
from pipeline.sources.csfcube import FACETS
from pipeline.studies.facets.analyses import Rankings, cited_of
from pipeline.studies.facets.pools import Collection, facet_query_ids


def browser(pools: Mapping[str, Pool], collection: Collection, rankings: Rankings, values: pl.DataFrame) -> TextBrowser:
    """Return the browser of a study's queries; ``values`` are of :func:`pipeline.studies.facets.scoring.values_of`."""
    sentences, folds = collection.sentences, collection.folds
    entries: list[TextEntry] = []
    for facet, pool in pools.items():
        texts = {paper: _spans(labelled, facet) for paper, labelled in sentences.items()}
        figures = _figures(values.filter(facet=facet))
        for (name,), candidates in _candidates(pool, facet, rankings).group_by("query", maintain_order=True):
            query = str(name)
            paper = query.rpartition("_")[0]
            (title,) = pool.corpus.take(pool.corpus.rows_of([paper]), ["title"]).column(0).to_pylist()
            relevance = f"{len(candidates)} candidates: grade, whether the query cites it, and rank by each system"
            shown = candidates.drop("query", "paper")
            opened = [texts.get(candidate, ()) for candidate in candidates["paper"]]
            facts = {"query": query, "folds": ", ".join(fold for fold in folds if query in folds[fold])}
            facts = {fact: value for fact, value in facts.items() if value}
            listings = [figures[query], TextTable(relevance, shown.columns, shown.rows(), opened)]
            entries.append(TextEntry([facet], title or paper, texts[paper], listings, facts))
    note = "A candidate opens its abstract. Ranks are within the judged pool."
    return TextBrowser("Queries", ["Facet"], {"bold": "sentences of the facet"}, entries, note)


def _spans(sentences: list[tuple[str, str]], facet: str) -> Spans:
    pieces: list[tuple[str, Mark]] = []
    for label, text in sentences:
        pieces += [(text, "bold" if label in FACETS[facet] else ""), (" ", "")]
    return pieces


def _figures(values: pl.DataFrame) -> dict[str, TextTable]:
    """Return a row for each system with all measures, by query."""
    wide = values.pivot("measure", index=["query", "system", "form"], values="value", maintain_order=True)
    columns = ["system", *map(label_of, wide.columns[3:])]
    rows: dict[str, list[list[str]]] = {}
    for query, system, form, *figures in wide.iter_rows():
        rows.setdefault(query, []).append([f"{system}, {form}", *map(percent, figures)])
    return {query: TextTable("Figures of the query (%)", columns, lines) for query, lines in rows.items()}


def _candidates(pool: Pool, facet: str, rankings: Rankings) -> pl.DataFrame:
    """Return query, paper and what is shown of each judged candidate as text, highest grade of a query first."""
    papers = pl.DataFrame(pl.from_arrow(pool.corpus.take(pool.candidates, ["paper_id", "title"])))
    title = pl.when(pl.col("title").fill_null("") == "").then("paper_id").otherwise("title")
    papers = papers.select(paper="paper_id", candidate=title, row=pl.Series(pool.candidates))
    judged = pl.DataFrame(pl.from_arrow(pool.qrels)).with_columns(cited=pl.Series(cited_of(pool)))
    judged = judged.sort("query", "grade", "row", descending=[False, True, False])
    judged = judged.with_columns(query=pl.Series(facet_query_ids(pool)).gather(judged["query"]))
    cited = pl.when("cited").then(pl.lit("yes")).otherwise(pl.lit("–"))
    candidates = judged.join(papers, on="row", maintain_order="left").select(
        "query", "row", "paper", "candidate", pl.col("grade").cast(pl.String), cited.alias("cited")
    )
    for (system, form, of_facet), (ranked, ranking) in rankings.items():
        if of_facet == facet:
            query = pl.Series(facet_query_ids(ranked)).gather(ranking.query)
            ranks = {"query": query, "row": ranking.row, f"{system}, {form}": ranking.rank.astype(str)}
            candidates = candidates.join(pl.DataFrame(ranks), on=["query", "row"], how="left", maintain_order="left")
    return candidates.drop("row")
