"""A comparison of two systems as tables and as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.core.text import printable
from pipeline.scores.render import render_table
from pipeline.scores.tables import Column, Table, TableRow, label_of

_TITLE = 64
"""Characters of a title."""

_POSITIVES = 10
"""Relevant papers of a query; JSON has all."""


def pool_of(row: Mapping[str, Any]) -> str:
    """Return scope and size of a row of differences."""
    return f"{row['scope']} {format_count(row['size'])}"


def difference_table(differences: pl.DataFrame, title: str) -> Table:
    """Return differences (:data:`pipeline.scores.compare.DIFFERENCES`) as a table, a row for each pool and measure."""
    rows = differences.rows(named=True)
    some, several = rows[0], differences.select("field", "size").unique().height > 1
    lines = [
        TableRow(
            f"{pool_of(row)}, {label_of(row['measure'])}" if several else label_of(row["measure"]),
            (
                *(f"{100 * row[name]:.1f}" for name in ("first_value", "second_value")),
                f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]",
                f"{row['p_value']:.4f}",
                *(f"{row[name]:,}" for name in ("wins", "ties", "losses")),
            ),
        )
        for row in rows
    ]
    labels = (some["first"], some["second"], "difference", "p", "better", "same", "worse")
    kinds = " or ".join(sorted(set(differences["interval"])))
    notes = (
        f"Percent; differences in points, {some['second']} less {some['first']}. Brackets: {some['level']:.0%} "
        f"interval over queries ({kinds}). p: paired permutation test, not corrected for several rows. better: queries "
        f"on which {some['second']} is better.",
    )
    corner = "pool, measure" if several else "measure"
    return Table(title, corner, tuple(Column("", label) for label in labels), tuple(lines), notes)


def as_records(differences: pl.DataFrame, queries: pl.DataFrame) -> list[dict[str, Any]]:
    """Return differences and the queries that differ most as plain data, a record for each field and size."""
    records = []
    for part in differences.partition_by("field", "size", maintain_order=True):
        some = part.row(0, named=True)
        own = queries.filter(queries["field"].eq_missing(some["field"]), queries["size"] == some["size"])
        shared = ("first", "second", "field", "scope", "size", "pools", "queries", "interval", "level")
        figures = part.drop(shared, "changes").rename({"first_value": "first", "second_value": "second"})
        told = {"differences": figures.rows(named=True), "most_different": own.drop("field", "size").rows(named=True)}
        records.append({name: some[name] for name in shared} | told)
    return records


def as_text(differences: pl.DataFrame, queries: pl.DataFrame) -> str:
    """Return the comparison of one field and size for a terminal; ``queries`` are those that differ most."""
    some = differences.row(0, named=True)
    first, second = some["first"], some["second"]
    pools = f"{some['scope']}, {some['size']:,} candidates, {some['queries']:,} queries"
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
