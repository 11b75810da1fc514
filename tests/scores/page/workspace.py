"""A workspace whose papers have titles that would break a careless page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.measure.design import Draws
from pipeline.scores.choose import choose
from pipeline.scores.page.parts import Page
from pipeline.scores.page.report import Report, page_of
from pipeline.scores.store import scores_of, stored
from pipeline.scores.summary import summarise
from tests.builders import made_up_paper, make_corpus
from tests.measure.cases import Run
from tests.scores import published as made

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'> & \"β–α\""
CONTEXT = "a query as long as a citation context " * 12
CITED = {0: (3, 5), 1: (3,), 2: (7,)}
RUNS: dict[str, Run] = {
    "bm25": [{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}],
    "lsa": [{4: 2.0}, {6: 1.0, 3: 0.5}, {7: 1.0}],
}
POOLS: list[dict[str, Any]] = [{"field": "Art"}, {"field": "Physics"}, {"candidates": 7}, {}, {"sample": 2}]


def title(row: int) -> str:
    texts = {0: f"0 {CONTEXT}".strip(), 1: f"1 {EVIL}", 3: f"3 {EVIL}"}
    return texts.get(row) or str(made_up_paper(row)["title"])


def scored(
    root: Path, pools: Sequence[Mapping[str, Any]] = POOLS, systems: Mapping[str, Run] = RUNS
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rankings and the scores of systems on pools: of two fields, and of two sizes at the dataset level."""
    edges = [(f"{query:05d}", f"{row:05d}") for query, rows in CITED.items() for row in rows]
    corpus = make_corpus(root, [{**made_up_paper(row), "title": title(row)} for row in range(8)], edges)
    for settings in pools:
        pool = made.pool(root, corpus, **settings)
        for system, run in systems.items():
            made.score(root, corpus, pool, system, run, "map,ndcg,recall@30", name=system)
    runs = choose(stored(root), root)
    return runs, scores_of(runs)


def report_page(runs: pl.DataFrame, scores: pl.DataFrame) -> Page:
    """The page of a report on these scores."""
    draws = Draws(resamples=50)
    summary = summarise(scores, baseline="bm25", draws=draws)
    return page_of(Report(runs, scores, summary, ["map", "ndcg", "recall@30"], draws))


def ranked(system: str, query: int) -> list[int]:
    return [row for row, _ in sorted(RUNS[system][query].items(), key=lambda item: (item[1], item[0]), reverse=True)]
