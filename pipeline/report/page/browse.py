"""The query browser's data: positives, ranks and the best entries of every ranking, read from the artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.config import format_count
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import pairs, places
from pipeline.report.caption import DATASET
from pipeline.report.identity import Chosen
from pipeline.report.model import Scored
from pipeline.report.page.parts import NO_PAPER, Browser, Papers, QueryPool
from pipeline.report.tables import label_of

TOP = 10
"""Entries of each ranking that a page shows; positives have their ranks at any depth."""

_Side = tuple[Chosen, Scored]
_Rows = npt.NDArray[np.int64]


def browser(chosen: Sequence[Chosen], scored: Sequence[Scored], measures: Sequence[str], top: int = TOP) -> Browser:
    """Return the browser of one table's rankings.

    It holds one pool a field, and one at the dataset level: of those that most systems ranked the largest, its first
    sample. Pools whose corpus is gone are left out.

    Args:
        chosen: what stands in the table.
        scored: the scores of each of them, as :func:`pipeline.report.collect.load` returns them.
        measures: canonical names of the values shown.
        top: entries of each ranking.
    """
    by_pool: dict[str, list[_Side]] = {}
    for each, values in zip(chosen, scored, strict=True):
        if each.corpus is not None:
            by_pool.setdefault(each.pool.id, []).append((each, values))
    kept: dict[str | None, list[_Side]] = {}
    for sides in by_pool.values():
        field = sides[0][1].pool.setup.field
        if field not in kept or _worth(sides) > _worth(kept[field]):
            kept[field] = sides
    opened: dict[str, Corpus] = {}
    pools = [query_pool(sides, measures, top, opened) for sides in kept.values()]
    left = len(by_pool) - len(pools)
    note = (
        f"The first {top} entries of each ranking, and the rank of every positive. "
        + (f"Of {len(by_pool)} pools, the largest of each field in its first sample." if left else "")
    ).strip()
    return Browser("Queries", pools, note)


def _worth(sides: Sequence[_Side]) -> tuple[int, int, int]:
    pool = sides[0][1].pool
    return len(sides), pool.setup.size, -pool.sample


def query_pool(sides: Sequence[_Side], measures: Sequence[str], top: int, opened: dict[str, Corpus]) -> QueryPool:
    """Return what a page shows of the rankings of one pool; ``opened`` keeps corpora open by identity."""
    chosen, scored = sides[0]
    assert chosen.corpus is not None  # noqa: S101 -- for mypy; the caller leaves such pools out
    corpus = opened.setdefault(chosen.corpus.id, Corpus(chosen.corpus))
    pool = Pool(chosen.pool, corpus)
    count = len(pool.query_rows)
    qrels = {name: pool.qrels.column(name).to_numpy() for name in ("query", "row", "grade")}
    relevant = qrels["grade"] >= 1
    query, row = qrels["query"][relevant].astype(np.int64), qrels["row"][relevant].astype(np.int64)
    order = np.lexsort((row, query))
    query, row = query[order], row[order]
    ranks = np.zeros((len(sides), len(row)), np.uint32)
    best = np.full((len(sides), count, top), -1, np.int64)
    for number, (each, _) in enumerate(sides):
        ranks[number], best[number] = _read(each, pairs(query, row), count, top)
    named, positions = np.unique(np.concatenate([row, best[best >= 0]]), return_inverse=True)
    numbers = np.full(best.shape, NO_PAPER, np.uint32)
    numbers[best >= 0] = positions[len(row) :]
    return QueryPool(
        label=f"{scored.pool.setup.field or DATASET}, {format_count(scored.pool.setup.size)}",
        systems=[values.system for _, values in sides],
        measures=[label_of(name) for name in measures],
        queries=_queries(pool),
        papers=_papers(corpus, named),
        offsets=np.searchsorted(query, np.arange(count + 1)).astype(np.uint32),
        positives=positions[: len(row)].astype(np.uint32),
        ranks=ranks,
        top=numbers,
        values=np.stack([_values([values for _, values in sides], name, count) for name in measures]),
        facts=_facts(sides),
    )


def _read(chosen: Chosen, judged: npt.NDArray[Any], queries: int, top: int) -> tuple[npt.NDArray[np.uint32], _Rows]:
    """Return the rank of each judged pair (0: none), and the rows of the best entries, -1 where there are fewer."""
    table = chosen.ranking.arrow("ranking.arrow")
    query, row, rank = (table.column(name).to_numpy().astype(np.int64) for name in ("query", "row", "rank"))
    ranks = np.zeros(len(judged), np.uint32)
    place = places(pairs(query, row), judged)
    ranks[place[place >= 0]] = rank[place >= 0]
    best = np.full((queries, top), -1, np.int64)
    first = rank <= top
    best[query[first], rank[first] - 1] = row[first]
    return ranks, best


def _values(scored: Iterable[Scored], measure: str, queries: int) -> npt.NDArray[np.float32]:
    rows = []
    for each in scored:
        values = np.full(queries, np.nan, np.float32)
        if measure in each.measures:
            values[each.queries] = each.values[each.measures.index(measure)]
        rows.append(values)
    return np.stack(rows)


def _queries(pool: Pool) -> Papers:
    if pool.queries_are_papers:
        return _papers(pool.corpus, pool.query_rows)
    texts = [text.title for block in pool.query_texts() for text in block]
    return Papers(pool.query_ids(), texts, np.zeros(len(texts), np.int16))


def _papers(corpus: Corpus, rows: npt.NDArray[Any]) -> Papers:
    table = corpus.take(rows, ["paper_id", "title", "year"])
    years = np.maximum(table.column("year").fill_null(0).to_numpy(), 0).astype(np.int16)
    return Papers(table.column("paper_id").to_pylist(), table.column("title").to_pylist(), years)


def _facts(sides: Sequence[_Side]) -> Mapping[str, str]:
    chosen, scored = sides[0]
    known = {"corpus": chosen.corpus_name, "pool": chosen.pool.name}
    rankings = {f"ranking of {values.system}": each.ranking.name for each, values in sides}
    return {**known, "pool settings": str(scored.identity["pool_settings"]), **rankings}
