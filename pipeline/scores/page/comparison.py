"""The page of a comparison: differences by pool, their distribution over queries, and the queries one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.provenance import code_version
from pipeline.measure.measures import sign_of
from pipeline.scores.average import AVERAGE, PROTOCOL, Draws
from pipeline.scores.caption import listing
from pipeline.scores.comparison import difference_table, pool_of
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Chart, Page, Part, Series, TablePart
from pipeline.scores.records import as_csv
from pipeline.scores.render import render_table
from pipeline.scores.tables import Column, Table, TableRow, label_of, percent

_POINTS = 201
"""Points of a curve over queries."""

_POSITIVES = 3
"""Relevant papers whose ranks a table shows; the browser has all."""


def page_of(
    differences: pl.DataFrame, queries: pl.DataFrame, runs: pl.DataFrame, scores: pl.DataFrame, draws: Draws = PROTOCOL
) -> Page:
    """Return the page of a comparison.

    Args:
        differences: of :func:`pipeline.scores.compare.compare`.
        queries: of :func:`pipeline.scores.compare.most_different`.
        runs: the rankings of both systems, columns :data:`pipeline.scores.store.RUNS`.
        scores: their scores.
        draws: of the intervals and tests.
    """
    some = differences.row(0, named=True)
    places = _of_pools(differences).unique(["field", "size"], maintain_order=True).rows(named=True)
    source = (
        f"corpus {runs['corpus'][0]}; pools {', '.join(name for place in places for name in place['pools'])}; "
        f"bootstrap over queries: {draws.resamples:,} resamples; paired permutation test: "
        f"{draws.permutations:,} permutations; seed {draws.seed_of(runs)}"
    )
    measures = differences["measure"].unique(maintain_order=True).to_list()
    rows = differences.drop("changes", "scope", "pools", "queries", "interval", "level").rows(named=True)
    parts: list[Part] = [_part("differences", difference_table(differences, "Differences"), rows, source)]
    parts += _charts(differences, source)
    if len(queries):
        parts.append(_part("queries", *_most_different(differences, queries), source))
    parts.append(browser(runs, scores, measures, draws))
    what = ", ".join(map(pool_of, places)) if len(places) < 4 else f"{len(places)} pools"
    count = sum({place["field"]: place["queries"] for place in places}.values())
    facts = {"figures": source, "code": code_version()}
    listed = listing(runs, (some["first"], some["second"]), _best(differences))
    return Page(f"{some['second']} against {some['first']}", f"{what}; {count:,} queries.", parts, facts, listed)


def _of_pools(differences: pl.DataFrame) -> pl.DataFrame:
    """Return the differences without those of the mean over fields."""
    return differences.filter(pl.col("field").ne_missing(AVERAGE))


def _best(differences: pl.DataFrame) -> str:
    """Return the better row by the first measure: of the mean over fields, else on the largest pool."""
    first = differences.filter(measure=differences["measure"][0])
    rows = first.filter(field=AVERAGE).rows(named=True) or first.rows(named=True)
    row = max(rows, key=lambda row: row["size"] or 0)
    second = row["difference"] * sign_of(row["measure"]) > 0
    name, value = (row["second"], row["second_value"]) if second else (row["first"], row["first_value"])
    return f"{name}: {label_of(row['measure'])} {percent(value)} ({pool_of(row)})"


def _part(name: str, table: Table, rows: Sequence[Mapping[str, Any]], source: str) -> TablePart:
    return TablePart(name, table, {"csv": as_csv(rows), "tex": render_table(table, "latex")}, source)


def _most_different(differences: pl.DataFrame, queries: pl.DataFrame) -> tuple[Table, list[dict[str, Any]]]:
    some = differences.row(0, named=True)
    measure = label_of(some["measure"])
    pools = {
        name: pool_of(place) + f", sample {number}" * (len(place["pools"]) > 1)
        for place in _of_pools(differences).unique(["field", "size"]).iter_rows(named=True)
        for number, name in enumerate(place["pools"], 1)
    }
    change = pl.col("second") - pl.col("first")
    rows = queries.sort(change.abs(), descending=True, maintain_order=True).rows(named=True)
    lines = [
        TableRow(
            row["title"] or row["query_id"],
            (
                *(f"{100 * row[name]:.1f}" for name in ("first", "second")),
                f"{100 * (row['second'] - row['first']):+.1f}",
                _ranks(row["positives"]),
                pools[row["pool"]],
                "–" if row["year"] is None else str(row["year"]),
            ),
        )
        for row in rows
    ]
    labels = (some["first"], some["second"], "difference", "ranks of its positives", "pool", "year")
    notes = (f"Ranks: by {some['first']} → by {some['second']}; –: not retrieved. All are in the queries below.",)
    title = f"Queries that differ most in {measure}"
    table = Table(title, "query", tuple(Column("", label) for label in labels), tuple(lines), notes)
    kept = ("query_id", "title", "year", "pool", "first", "second")
    records = [
        {**{name: row[name] for name in kept}, "positives": [f"{p['paper_id']} {_rank(p)}" for p in row["positives"]]}
        for row in rows
    ]
    return table, records


def _ranks(positives: Sequence[Mapping[str, Any]]) -> str:
    shown = list(map(_rank, positives[:_POSITIVES]))
    left = len(positives) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def _rank(positive: Mapping[str, Any]) -> str:
    return f"{positive['first_rank'] or '–'} → {positive['second_rank'] or '–'}"


def _charts(differences: pl.DataFrame, source: str) -> Iterator[Chart]:
    """Yield the differences by pool, where there are several, and how they are spread over queries."""
    some = differences.row(0, named=True)
    label = f"{some['second']} less {some['first']}"
    by_measure = differences.partition_by("measure", maintain_order=True)
    if by_measure[0].height > 1:
        yield Chart(
            title="Difference by pool",
            x_label="",
            unit=f"points, {label}",
            views={
                label_of(part["measure"][0]): [
                    Series(
                        label,
                        [float(place) for place in range(len(part))],
                        *(part[name].to_list() for name in ("difference", "low", "high")),
                    )
                ]
                for part in by_measure
            },
            categories=[pool_of(row) for row in by_measure[0].iter_rows(named=True)],
            provenance=source,
        )
    yield Chart(
        title="Difference by query",
        x_label="queries by rising difference (%)",
        unit=f"points, {label}",
        views={
            label_of(part["measure"][0]): [_curve(row) for row in _of_pools(part).iter_rows(named=True)]
            for part in by_measure
        },
        provenance=source,
    )


def _curve(row: Mapping[str, Any]) -> Series:
    shares = np.linspace(0, 1, min(row["queries"], _POINTS))
    return Series(pool_of(row), (100 * shares).tolist(), np.quantile(row["changes"], shares).tolist())
