"""The query browser's data: positives, ranks and the best entries of every ranking, read from the artifacts."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.config import format_count
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import pairs, places
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import bootstrap_means, confidence_interval, interval_kind
from pipeline.report.caption import scope
from pipeline.report.identity import Chosen
from pipeline.report.model import ReportSettings, Scored
from pipeline.report.page.parts import NO_PAPER, Browser, Papers, QueryPool
from pipeline.report.tables import label_of

TOP = 10
"""Entries of each ranking that a page shows; positives have their ranks at any depth."""

ALL = 5_000
"""Ranked queries of all systems up to which a page holds every pool; each takes about 1 kB."""

_Side = tuple[Chosen, Scored]
_Rows = npt.NDArray[np.int64]


class Typed(NamedTuple):
    """The candidates of each query of a pool, with their types.

    Attributes:
        kinds: the types, each with its meaning; the first is that of positives.
        query: int64 ``[entries]``, positions of the queries.
        row: int64 ``[entries]``, candidates.
        kind: int64 ``[entries]``, place of the type in ``kinds``; a candidate of several has several entries.
    """

    kinds: Mapping[str, str]
    query: _Rows
    row: _Rows
    kind: _Rows

    def listed(self) -> tuple[_Rows, _Rows, npt.NDArray[np.uint32]]:
        """Return query, row and types (a bit each) of each candidate, rising."""
        packed, place = np.unique(pairs(self.query, self.row), return_inverse=True)
        types = np.zeros(len(packed), np.uint32)
        np.bitwise_or.at(types, place, np.uint32(1) << self.kind.astype(np.uint32))
        return (packed >> np.uint64(32)).astype(np.int64), packed.astype(np.uint32).astype(np.int64), types


def browser(
    chosen: Sequence[Chosen],
    scored: Sequence[Scored],
    measures: Sequence[str],
    settings: ReportSettings,
    top: int = TOP,
    types: Mapping[str, Typed] | None = None,
    most: int = ALL,
) -> Browser:
    """Return the browser of one table's rankings.

    It holds every pool if they are small, the largest of each field first. Else it holds one a field, and one at the
    dataset level: of those that most systems ranked the largest, its first sample. Pools whose corpus is gone are left
    out.

    Args:
        chosen: what stands in the table.
        scored: the scores of each of them, as :func:`pipeline.report.collect.load` returns them.
        measures: canonical names of the values shown.
        settings: what decides the intervals of differences.
        top: entries of each ranking.
        types: the candidates of each pool by the pool's id, where they have types; rankings have all of them.
        most: ranked queries of all systems and pools, up to which all pools are held.
    """
    by_pool: dict[str, list[_Side]] = {}
    corpora: dict[str, Corpus] = {}
    for each, values in zip(chosen, scored, strict=True):
        if each.corpus is not None:
            by_pool.setdefault(each.pool.id, []).append((each, values))
            corpora.setdefault(values.pool.corpus, Corpus(each.corpus))
    whole = types is None and sum(len(each.queries) for each in scored) <= most
    kept: dict[Any, list[_Side]] = {}
    for pool, sides in by_pool.items():
        place = pool if whole else sides[0][1].pool.setup.field
        if place not in kept or _worth(sides) > _worth(kept[place]):
            kept[place] = sides
    samples = Counter(sides[0][1].pool.setup for sides in kept.values())
    fields = list(dict.fromkeys(sides[0][1].pool.setup.field for sides in kept.values()))
    pools = []
    for sides in sorted(
        kept.values(), key=lambda s: (-fields.index(s[0][1].pool.setup.field), *_worth(s)), reverse=True
    ):
        typed, facts = (types or {}).get(sides[0][0].pool.id), sides[0][1].pool
        own = query_pool(sides, measures, settings, top, corpora[facts.corpus], typed)
        label = f"{own.label}, sample {facts.sample}" if samples[facts.setup] > 1 else own.label
        pools.append(dataclasses.replace(own, label=label))
    left = len(by_pool) - len(pools)
    shown = (
        "Every candidate of each query, with its types"
        if types
        else f"The first {top} entries of each ranking, and the rank of every positive"
    )
    which = (
        f" To stay small, this page holds {len(pools)} of {len(by_pool)} pools: the largest of each field in its first "
        "sample. Choose others by --field and --size of mdcr report."
    )
    shown = f"{shown}.{which}" if left else f"{shown}."
    return Browser("Queries", pools, shown)


def _worth(sides: Sequence[_Side]) -> tuple[int, int, int]:
    pool = sides[0][1].pool
    return len(sides), pool.setup.size, -pool.sample


def query_pool(
    sides: Sequence[_Side],
    measures: Sequence[str],
    settings: ReportSettings,
    top: int,
    corpus: Corpus,
    typed: Typed | None = None,
) -> QueryPool:
    """Return what a page shows of the rankings of one pool (:func:`browser`)."""
    chosen, scored = sides[0]
    pool = Pool(chosen.pool, corpus)
    count, field = len(pool.query_rows), scored.pool.setup.field
    query, row, types = _positives(pool) if typed is None else typed.listed()
    ranks = np.zeros((len(sides), len(row)), np.uint32)
    best = np.full((len(sides), count, top if typed is None else 0), -1, np.int64)
    for number, (each, _) in enumerate(sides):
        ranks[number], best[number] = _read(each, pairs(query, row), count, best.shape[2])
    named, positions = np.unique(np.concatenate([row, best[best >= 0]]), return_inverse=True)
    numbers = np.full(best.shape, NO_PAPER, np.uint32)
    numbers[best >= 0] = positions[len(row) :]
    values = np.stack([_values([values for _, values in sides], name, count) for name in measures])
    return QueryPool(
        label=scope(scored) + (f", {format_count(scored.pool.setup.size)}" if typed is None else ""),
        systems=[values.system for _, values in sides],
        measures=[label_of(name) for name in measures],
        signs=[sign_of(name) for name in measures],
        queries=_queries(pool),
        papers=_papers(corpus, named),
        offsets=np.searchsorted(query, np.arange(count + 1)).astype(np.uint32),
        listed=positions[: len(row)].astype(np.uint32),
        ranks=ranks,
        top=numbers,
        values=values,
        intervals=_intervals(values, settings, field or ""),
        level=settings.level,
        facts=_facts(sides),
        kinds={} if typed is None else typed.kinds,
        types=types,
    )


def _positives(pool: Pool) -> tuple[_Rows, _Rows, npt.NDArray[np.uint32]]:
    """Return query and row of each positive, rising, and no types."""
    qrels = {name: pool.qrels.column(name).to_numpy() for name in ("query", "row", "grade")}
    relevant = qrels["grade"] >= 1
    query, row = qrels["query"][relevant].astype(np.int64), qrels["row"][relevant].astype(np.int64)
    order = np.lexsort((row, query))
    return query[order], row[order], np.empty(0, np.uint32)


def _intervals(values: npt.NDArray[np.float64], settings: ReportSettings, field: str) -> npt.NDArray[np.float32]:
    """Return the interval of the mean difference of each two systems, as :func:`pipeline.report.compare.compare`.

    Returns:
        float32 ``[measures, pairs, 2]``; NaN: a measure or all but one query were not scored.
    """
    first, second = np.array(list(itertools.combinations(range(values.shape[1]), 2)), int).reshape(-1, 2).T
    found = np.full((len(values), len(first), 2), np.nan, np.float32)
    for place, each in enumerate(values):
        scored = each[:, ~np.isnan(each).all(axis=0)]
        whole = ~np.isnan(scored).any(axis=1)
        both = whole[first] & whole[second]
        if interval_kind(scored.shape[1]) == "none" or not both.any():
            continue
        draws = bootstrap_means(np.nan_to_num(scored), seed=settings.seed, item=field, resamples=settings.resamples)
        a, b = first[both], second[both]
        ends = confidence_interval(draws[b] - draws[a], scored[b] - scored[a], level=settings.level)
        found[place, both] = np.stack(ends, axis=1)
    return found


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


def _values(scored: Iterable[Scored], measure: str, queries: int) -> npt.NDArray[np.float64]:
    rows = []
    for each in scored:
        values = np.full(queries, np.nan)
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
