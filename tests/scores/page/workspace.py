"""A workspace whose papers have titles that would break a careless page."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipeline.scores.average import Draws
from pipeline.scores.choose import choose
from pipeline.scores.labels import labelled
from pipeline.scores.page.parts import Page
from pipeline.scores.page.report import page_of
from pipeline.scores.store import stored, values
from pipeline.scores.summary import summarise, summarise_samples
from tests.builders import made_up_paper, make_corpus
from tests.measure.cases import Run
from tests.scores import published as made

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'> & \"β–α\""
CITED = {0: (3, 5), 1: (3,), 2: (7,)}
RUNS: dict[str, Run] = {
    "bm25": [{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}],
    "lsa": [{4: 2.0}, {6: 1.0, 3: 0.5}, {7: 1.0}],
}
POOLS = [{"field": "Art"}, {"field": "Physics"}, {"candidates": 7}, {}, {"sample": 2}]


def title(row: int) -> str:
    return f"{row} {EVIL}" if row in (1, 3) else str(made_up_paper(row)["title"])


def scored(root: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rankings and the scores of two fields, and two sizes at the dataset level, by two systems."""
    edges = [(f"{query:05d}", f"{row:05d}") for query, rows in CITED.items() for row in rows]
    corpus = make_corpus(root, [{**made_up_paper(row), "title": title(row)} for row in range(8)], edges)
    for settings in POOLS:
        pool = made.pool(root, corpus, **settings)
        for system, run in RUNS.items():
            made.score(root, corpus, pool, system, run, "map,ndcg,recall@30", name=system)
    runs = labelled(choose(stored(root), root))
    return runs, values(runs)


def report_page(runs: pl.DataFrame, scores: pl.DataFrame) -> Page:
    """The page of a report on these scores."""
    draws = Draws(resamples=50)
    summary = summarise(scores, baseline="bm25", draws=draws)
    return page_of(runs, scores, summary, summarise_samples(scores, draws), ["map", "ndcg", "recall@30"])


def ranked(system: str, query: int) -> list[int]:
    return [row for row, _ in sorted(RUNS[system][query].items(), key=lambda item: (item[1], item[0]), reverse=True)]
