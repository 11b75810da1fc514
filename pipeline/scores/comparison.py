"""A comparison of two systems as tables and as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.core.text import printable
from pipeline.scores.average import AVERAGE
from pipeline.scores.render import render_table
from pipeline.scores.tables import Column, Table, TableRow, label_of

_TITLE = 64
"""Characters of a title."""

_POSITIVES = 10
"""Relevant papers of a query; JSON has all."""


def pool_of(row: Mapping[str, Any]) -> str:
    """Return scope and size of a row of differences; pools of several sizes have none."""
    return row["scope"] if row["size"] is None else f"{row['scope']} {format_count(row['size'])}"


def difference_table(differences: pl.DataFrame, title: str) -> Table:
    """Return differences (:data:`pipeline.scores.compare.DIFFERENCES`) as a table, a row for each pool and measure."""
    rows, margin = differences.rows(named=True), differences["margin"][0]
    some, several = rows[0], differences.select("field", "size").unique().height > 1
    lines = [
        TableRow(
            f"{pool_of(row)}, {label_of(row['measure'])}" if several else label_of(row["measure"]),
            (*(f"{100 * row[name]:.1f}" for name in ("first_value", "second_value")), *_figures(row)),
        )
        for row in rows
    ]
    alike = () if margin is None else ("p, equivalent",)
    labels = (some["first"], some["second"], "difference", "effect", "p", *alike, "wins", "ties", "losses", "finding")
    corner = "pool, measure" if several else "measure"
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
        f"Percent; differences in points{less}. Brackets: {some['level']:.0%} interval over queries ({kinds}). Effect: "
        "mean difference over the standard deviation of the differences. p: paired permutation test"
        f"{corrected}{averages}. wins: queries on which {winner} is better.",
    ]
    if margin is not None:
        notes.append(f"p, equivalent: the difference lies within {100 * margin:g} points, by two one-sided t-tests.")
    return tuple(notes)


def pair_tables(differences: pl.DataFrame) -> list[Table]:
    """Return the differences of all pairs of several systems as tables, one for each pool and measure."""
    tables = []
    for part in differences.partition_by("field", "size", "measure", maintain_order=True):
        rows = part.rows(named=True)
        some, margin = rows[0], rows[0]["margin"]
        lines = [TableRow(f"{row['second']} less {row['first']}", _figures(row)) for row in rows]
        alike = () if margin is None else ("p, equivalent",)
        labels = ("difference", "effect", "p", *alike, "wins", "ties", "losses", "finding")
        title = f"All pairs, {label_of(some['measure'])} ({pool_of(some)}, {some['queries']:,} queries)"
        tables.append(Table(title, "pair", tuple(Column("", label) for label in labels), tuple(lines), _notes(part)))
    return tables


def as_records(differences: pl.DataFrame, queries: pl.DataFrame) -> list[dict[str, Any]]:
    """Return differences and the queries that differ most as plain data, a record for each field and size."""
    records = []
    for part in differences.partition_by("field", "size", maintain_order=True):
        some = part.row(0, named=True)
        of_pool = queries.filter(queries["field"].eq_missing(some["field"]), queries["size"] == some["size"])
        shared = ("first", "second", "field", "scope", "size", "pools", "queries", "interval", "level")
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
