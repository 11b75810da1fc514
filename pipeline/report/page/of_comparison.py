"""The page of a comparison: differences by pool, their distribution over queries, and the queries one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.core.provenance import code_version
from pipeline.report import longcsv
from pipeline.report.caption import listing
from pipeline.report.compare import Pair
from pipeline.report.comparison import ComparedQuery, Comparison, Positive, differences, pool_of
from pipeline.report.model import ReportSettings
from pipeline.report.page.browse import browser
from pipeline.report.page.parts import Chart, Page, Part, Series, TablePart
from pipeline.report.render import render_table
from pipeline.report.tables import Column, Line, Table, label_of, percent

_POINTS = 201
"""Points of a curve over queries."""

_POSITIVES = 3
"""Relevant papers whose ranks a table shows; the browser has all."""


def page_of(comparisons: Sequence[Comparison], pairs: Sequence[Pair], settings: ReportSettings) -> Page:
    """Return the page of a comparison.

    Args:
        comparisons: of :func:`pipeline.report.compare.compare`.
        pairs: what they were made from.
        settings: of the intervals and tests.
    """
    some = comparisons[0]
    source = (
        f"corpus {pairs[0][0].scored.corpus}; pools {', '.join(p for each in comparisons for p in each.pools)}; "
        f"bootstrap over queries: {settings.resamples:,} resamples; paired permutation test: "
        f"{settings.permutations:,} permutations; seed {settings.seed}"
    )
    measures = [each.measure for each in some.differences]
    tables = [TablePart("differences", *_differences(comparisons), source)]
    if any(each.most_different for each in comparisons):
        tables.append(TablePart("queries", *_most_different(comparisons), source))
    sides = [side for number in (0, 1) for side in (pair[number] for pair in pairs)]
    found = browser([side.chosen for side in sides], [side.scored for side in sides], measures, settings)
    parts: list[Part] = [tables[0], *_charts(comparisons, source), *tables[1:], found]
    largest = max(comparisons, key=lambda each: each.size)
    of = largest.differences[0]
    name, value = (some.first, of.first) if of.first > of.second else (some.second, of.second)
    best = f"{name}: {label_of(of.measure)} {percent(value)} ({pool_of(largest)})"
    what = ", ".join(map(pool_of, comparisons)) if len(comparisons) < 4 else f"{len(comparisons)} pools"
    return Page(
        f"{some.second} against {some.first}",
        f"{what}; {sum({each.field: each.queries for each in comparisons}.values()):,} queries.",
        parts,
        {"figures": source, "code": code_version()},
        listing(pairs[0][0].scored, (some.first, some.second), best),
    )


def _differences(comparisons: Sequence[Comparison]) -> tuple[Table, dict[str, str]]:
    rows = [
        {"first": each.first, "second": each.second, "field": each.field, "size": each.size, **dataclasses.asdict(of)}
        for each in comparisons
        for of in each.differences
    ]
    return _with_files(differences(comparisons, "Differences"), rows)


def _with_files(table: Table, rows: Sequence[dict[str, object]]) -> tuple[Table, dict[str, str]]:
    return table, {"csv": longcsv.as_csv(rows), "tex": render_table(table, "latex")}


def _most_different(comparisons: Sequence[Comparison]) -> tuple[Table, dict[str, str]]:
    some = comparisons[0]
    measure = label_of(some.differences[0].measure)
    pools = {name: pool_of(each) + f", sample {n}" * (len(each.pools) > 1)
             for each in comparisons for n, name in enumerate(each.pools, 1)}  # fmt: skip
    found = [query for each in comparisons for query in each.most_different]
    found.sort(key=lambda query: -abs(query.second - query.first))
    lines = [
        Line(
            query.title or query.query_id,
            (
                *(f"{100 * value:.1f}" for value in (query.first, query.second)),
                f"{100 * (query.second - query.first):+.1f}",
                _ranks(query),
                pools[query.pool],
                "–" if query.year is None else str(query.year),
            ),
        )
        for query in found
    ]
    labels = (some.first, some.second, "difference", "ranks of its positives", "pool", "year")
    notes = (f"Ranks: by {some.first} → by {some.second}; –: not retrieved. All are in the queries below.",)
    table = Table(
        f"Queries that differ most in {measure}",
        "query",
        tuple(Column("", each) for each in labels),
        tuple(lines),
        notes,
    )
    rows = [
        {**{name: getattr(query, name) for name in ("query_id", "title", "year", "pool", "first", "second")},
         "positives": [f"{each.paper_id} {_rank(each)}" for each in query.positives]}
        for query in found
    ]  # fmt: skip
    return _with_files(table, rows)


def _ranks(query: ComparedQuery) -> str:
    shown = list(map(_rank, query.positives[:_POSITIVES]))
    left = len(query.positives) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def _rank(positive: Positive) -> str:
    return f"{positive.first_rank or '–'} → {positive.second_rank or '–'}"


def _charts(comparisons: Sequence[Comparison], source: str) -> Iterator[Chart]:
    """Yield the differences by pool, where there are several, and how they are spread over queries."""
    some = comparisons[0]
    label = f"{some.second} less {some.first}"
    measures = {label_of(each.measure): number for number, each in enumerate(some.differences)}
    if len(comparisons) > 1:
        yield Chart(
            title="Difference by pool",
            x_label="",
            unit=f"points, {label}",
            views={name: [_by_pool(comparisons, number, label)] for name, number in measures.items()},
            categories=list(map(pool_of, comparisons)),
            provenance=source,
        )
    yield Chart(
        title="Difference by query",
        x_label="queries by rising difference (%)",
        unit=f"points, {label}",
        views={name: [_curve(each, number) for each in comparisons] for name, number in measures.items()},
        provenance=source,
    )


def _by_pool(comparisons: Sequence[Comparison], measure: int, label: str) -> Series:
    of = [each.differences[measure] for each in comparisons]
    places = list(map(float, range(len(of))))
    return Series(label, places, [d.difference for d in of], [d.low for d in of], [d.high for d in of])


def _curve(comparison: Comparison, measure: int) -> Series:
    shares = np.linspace(0, 1, min(comparison.queries, _POINTS))
    return Series(
        pool_of(comparison), (100 * shares).tolist(), np.quantile(comparison.changes[measure], shares).tolist()
    )
