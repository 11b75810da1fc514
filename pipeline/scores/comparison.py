"""A comparison of two systems as tables, as text for a terminal, and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.core.provenance import code_version
from pipeline.core.text import printable
from pipeline.measure.measures import sign_of
from pipeline.scores.average import AVERAGE, PROTOCOL, RESAMPLED, Draws
from pipeline.scores.caption import listing
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Chart, Page, Part, Series, TablePart
from pipeline.scores.render import render_table
from pipeline.scores.summary import as_csv
from pipeline.scores.tables import Column, Table, TableRow, label_of, percent

_TITLE = 64
"""Characters of a title."""

_POSITIVES = 10
"""Relevant papers of a query; JSON has all."""


def pool_of(row: Mapping[str, Any]) -> str:
    """Return scope and size of a row of differences; pools of several sizes have none."""
    return row["scope"] if row["size"] is None else f"{row['scope']} {format_count(row['size'])}"


def difference_table(differences: pl.DataFrame, title: str) -> Table:
    """Return differences (:data:`pipeline.scores.compare.DIFFERENCES`) as a table, a row for each pool and measure."""
    several = differences.select("field", "size").unique().height > 1
    rows = {
        f"{pool_of(row)}, {label_of(row['measure'])}" if several else label_of(row["measure"]): row
        for row in differences.iter_rows(named=True)
    }
    values = {differences[name][0]: f"{name}_value" for name in ("first", "second")}
    return _table(title, "pool, measure" if several else "measure", rows, values, differences)


def pair_tables(differences: pl.DataFrame) -> list[Table]:
    """Return the differences of all pairs of several systems as tables, one for each pool and measure."""
    tables = []
    for part in differences.partition_by("field", "size", "measure", maintain_order=True):
        some = part.row(0, named=True)
        title = f"All pairs, {label_of(some['measure'])} ({pool_of(some)}, {some['queries']:,} queries)"
        rows = {f"{row['second']} less {row['first']}": row for row in part.iter_rows(named=True)}
        tables.append(_table(title, "pair", rows, {}, part))
    return tables


def _table(
    title: str, corner: str, rows: Mapping[str, Mapping[str, Any]], values: Mapping[str, str], differences: pl.DataFrame
) -> Table:
    """Return rows of differences as a table; ``values`` are columns of figures before them, by label."""
    alike = () if differences["margin"][0] is None else ("p, equivalent",)
    labels = (*values, "difference", "effect", "p", *alike, "wins", "ties", "losses", "finding")
    lines = [
        TableRow(label, (*(f"{100 * row[name]:.1f}" for name in values.values()), *_figures(row)))
        for label, row in rows.items()
    ]
    return Table(title, corner, tuple(Column("", label) for label in labels), tuple(lines), _notes(differences))


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what tables show of a difference."""
    return (
        f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]",
        "–" if row["effect"] is None else f"{row['effect']:+.2f}",
        f"{row['p_adjusted']:.4f}",
        *(() if row["margin"] is None else (f"{row['p_equivalent']:.4f}",)),
        *(f"{row[name]:,}" for name in ("wins", "ties", "losses")),
        row["finding"],
    )


def _notes(differences: pl.DataFrame) -> tuple[str, ...]:
    some, margin = differences.row(0, named=True), differences["margin"][0]
    several = differences.select("first", "second").n_unique() > 1
    less = "" if several else f", {some['second']} less {some['first']}"
    winner = "the first named" if several else some["second"]
    kinds, tests = " or ".join(sorted(set(differences["interval"]))), max(differences["tests"])
    family = "pairs and pools" if several else "pools"
    corrected = f", Holm's correction over {tests} {family}" if tests > 1 else ""
    averages = "; the mean over fields is tested apart" if tests > 1 and AVERAGE in differences["field"] else ""
    notes = [
        f"Percent; differences in points{less}. Brackets: {some['level']:.0%} interval over "
        f"{RESAMPLED[some['resample']]} ({kinds}). Effect: mean difference over the standard deviation "
        f"of the differences. p: paired permutation test{corrected}{averages}. wins: queries on which {winner} is "
        "better.",
    ]
    if margin is not None:
        notes.append(f"p, equivalent: two one-sided t-tests with margin {100 * margin:g}.")
    return tuple(notes)


def as_records(differences: pl.DataFrame, queries: pl.DataFrame) -> list[dict[str, Any]]:
    """Return differences and the queries that differ most as plain data, a record for each field and size."""
    records = []
    for part in differences.partition_by("field", "size", maintain_order=True):
        some = part.row(0, named=True)
        of_pool = queries.filter(queries["field"].eq_missing(some["field"]), queries["size"] == some["size"])
        shared = ("first", "second", "field", "scope", "size", "pools", "queries", "interval", "level", "resample")
        figures = part.drop(shared, "changes").rename({"first_value": "first", "second_value": "second"})
        parts = {
            "differences": figures.rows(named=True),
            "most_different": of_pool.drop("field", "size").rows(named=True),
        }
        records.append({name: some[name] for name in shared} | parts)
    return records


def as_text(differences: pl.DataFrame, queries: pl.DataFrame) -> str:
    """Return the comparison of one field and size for a terminal; ``queries`` are those that differ most."""
    some = differences.row(0, named=True)
    first, second = some["first"], some["second"]
    size = "pools of several sizes" if some["size"] is None else f"{some['size']:,} candidates"
    pools = f"{some['scope']}, {size}, {some['queries']:,} queries"
    lines = [render_table(difference_table(differences, f"{second} against {first} ({pools})")).rstrip()]
    if len(queries):
        lines += ["", f"Queries that differ most in {label_of(some['measure'])}:"]
    for query in queries.iter_rows(named=True):
        where = f"  [{query['pool']}]" if len(some["pools"]) > 1 else ""
        change = f"{100 * query['first']:.1f} -> {100 * query['second']:.1f}"
        lines += ["", f"{change}  {_paper(query['query_id'], query)}{where}"]
        ranks: list[tuple[str, ...]] = [(printable(first), printable(second), "relevant paper")]
        ranks += [
            (*(str(paper[name] or "-") for name in ("first_rank", "second_rank")), _paper(paper["paper_id"], paper))
            for paper in query["positives"][:_POSITIVES]
        ]
        lines += [f"    {line}" for line in _aligned(ranks, text=2)]
        left = len(query["positives"]) - _POSITIVES
        lines += [f"    and {left} more, ranked lower"] if left > 0 else []
    return "\n".join(lines)


def _paper(paper_id: str, paper: Mapping[str, Any]) -> str:
    year = "" if paper["year"] is None else f" ({paper['year']})"
    return printable(f"{paper_id} {textwrap.shorten(paper['title'], _TITLE, placeholder='...')}{year}")


def _aligned(rows: Sequence[tuple[str, ...]], text: int = 0) -> Iterator[str]:
    """Yield rows with their columns aligned to the right, the one of text to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (c.ljust(w) if n == text else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


_POINTS = 201
"""Points of a curve over queries."""

_RANKED = 3
"""Relevant papers whose ranks a table shows; the browser has all."""


def page_of(
    differences: pl.DataFrame, queries: pl.DataFrame, runs: pl.DataFrame, scores: pl.DataFrame, draws: Draws = PROTOCOL
) -> Page:
    """Return the page of a comparison: :data:`pipeline.scores.compare.DIFFERENCES`, and the queries that differ most.

    ``runs`` and ``scores`` are of both systems.
    """
    some = differences.row(0, named=True)
    places = _of_pools(differences).unique(["field", "size"], maintain_order=True).rows(named=True)
    source = (
        f"corpus {runs['corpus'][0]}; pools {', '.join(name for place in places for name in place['pools'])}; "
        f"bootstrap over {RESAMPLED[draws.resample]}: {draws.resamples:,} resamples; paired permutation test: "
        f"{draws.permutations:,} permutations; seed {draws.seed_of(runs)}"
    )
    measures = differences["measure"].unique(maintain_order=True).to_list()
    rows = differences.drop("changes", "scope", "pools", "queries", "interval", "level", "resample").rows(named=True)
    parts: list[Part] = [TablePart("differences", difference_table(differences, "Differences"), as_csv(rows), source)]
    parts += _charts(differences, source)
    if len(queries):
        table, records = _most_different(differences, queries)
        parts.append(TablePart("queries", table, as_csv(records), source))
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
        {
            **{name: row[name] for name in kept},
            "positives": [f"{p['paper_id']} {_both_ranks(p)}" for p in row["positives"]],
        }
        for row in rows
    ]
    return table, records


def _ranks(positives: Sequence[Mapping[str, Any]]) -> str:
    shown = list(map(_both_ranks, positives[:_RANKED]))
    left = len(positives) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def _both_ranks(positive: Mapping[str, Any]) -> str:
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
