"""A comparison of two systems: its figures, and its text for a terminal."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.config import format_count
from pipeline.core.text import printable
from pipeline.report.render import render_table
from pipeline.report.tables import Column, Line, Table, label_of

_TITLE = 64
"""Characters of a title."""

_POSITIVES = 10
"""Relevant papers of a query; JSON has all."""


@dataclass(frozen=True)
class Difference:
    """One measure of both systems; values are fractions.

    Attributes:
        first: mean over queries, each with its mean over samples.
        second: likewise.
        difference: second less first.
        low: lower end of the bootstrap interval of the difference, over queries.
        high: upper end.
        p_value: of the paired permutation test, not corrected for several measures.
        wins: queries where the second is better.
        ties: queries where both are the same.
        losses: queries where the first is better.
    """

    measure: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True)
class Positive:
    """A relevant paper, with its ranks from 1; None where it was not retrieved."""

    paper_id: str
    title: str
    year: int | None
    first_rank: int | None
    second_rank: int | None


@dataclass(frozen=True)
class ComparedQuery:
    """A query on one pool, with the value of the leading measure in both rankings."""

    query_id: str
    title: str
    year: int | None
    pool: str
    first: float
    second: float
    positives: tuple[Positive, ...]


@dataclass(frozen=True)
class Comparison:
    """Two systems on the samples of one pool.

    Attributes:
        first: label of a row.
        second: label of another.
        field: of the pools; None at the dataset level.
        scope: what the pools are of (:func:`pipeline.report.caption.scope`).
        size: candidates.
        pools: folder names.
        queries: number of queries.
        interval: kind of interval (:func:`pipeline.measure.statistics.interval_kind`).
        level: of its confidence.
        differences: measure by measure.
        most_different: queries by falling difference of the first measure.
        changes: difference of each query, mean over samples, float64 ``[measures, queries]``.
    """

    first: str
    second: str
    field: str | None
    scope: str
    size: int
    pools: tuple[str, ...]
    queries: int
    interval: str
    level: float
    differences: tuple[Difference, ...]
    most_different: tuple[ComparedQuery, ...]
    changes: npt.NDArray[np.float64] = dataclasses.field(repr=False, compare=False)

    def __str__(self) -> str:
        return as_text(self)


def pool_of(comparison: Comparison) -> str:
    """Return scope and size of a comparison's pools."""
    return f"{comparison.scope} {format_count(comparison.size)}"


def differences(comparisons: Sequence[Comparison], title: str) -> Table:
    """Return the figures of comparisons of two systems as a table, a row for each pool and measure."""
    some, several = comparisons[0], len(comparisons) > 1
    lines = [
        Line(
            f"{pool_of(each)}, {label_of(of.measure)}" if several else label_of(of.measure),
            (
                *(f"{100 * value:.1f}" for value in (of.first, of.second)),
                f"{100 * of.difference:+.1f} [{100 * of.low:+.1f}, {100 * of.high:+.1f}]",
                f"{of.p_value:.4f}",
                *(f"{count:,}" for count in (of.wins, of.ties, of.losses)),
            ),
        )
        for each in comparisons
        for of in each.differences
    ]
    labels = (some.first, some.second, "difference", "p", "better", "same", "worse")
    kinds = " or ".join(sorted({each.interval for each in comparisons}))
    notes = (
        f"Percent; differences in points, {some.second} less {some.first}. Brackets: {some.level:.0%} interval over "
        f"queries ({kinds}). p: paired permutation test, not corrected for several rows. better: queries on which "
        f"{some.second} is better.",
    )
    corner = "pool, measure" if several else "measure"
    return Table(title, corner, tuple(Column("", each) for each in labels), tuple(lines), notes)


def as_text(comparison: Comparison) -> str:
    """Return a comparison for a terminal."""
    first, second = comparison.first, comparison.second
    pools = f"{comparison.scope}, {comparison.size:,} candidates, {comparison.queries:,} queries"
    lines = [render_table(differences([comparison], f"{second} against {first} ({pools})")).rstrip()]
    if comparison.most_different:
        lines += ["", f"Queries that differ most in {label_of(comparison.differences[0].measure)}:"]
    for query in comparison.most_different:
        where = f"  [{query.pool}]" if len(comparison.pools) > 1 else ""
        change = f"{100 * query.first:.1f} -> {100 * query.second:.1f}"
        lines += ["", f"{change}  {_paper(query.query_id, query)}{where}"]
        ranks: list[tuple[str, ...]] = [(printable(first), printable(second), "relevant paper")]
        ranks += [
            (*(str(rank or "-") for rank in (each.first_rank, each.second_rank)), _paper(each.paper_id, each))
            for each in query.positives[:_POSITIVES]
        ]
        lines += [f"    {line}" for line in _aligned(ranks, text=2)]
        left = len(query.positives) - _POSITIVES
        lines += [f"    and {left} more, ranked lower"] if left > 0 else []
    return "\n".join(lines)


def _paper(paper_id: str, paper: Positive | ComparedQuery) -> str:
    year = "" if paper.year is None else f" ({paper.year})"
    return printable(f"{paper_id} {textwrap.shorten(paper.title, _TITLE, placeholder='...')}{year}")


def _aligned(rows: Sequence[tuple[str, ...]], text: int = 0) -> Iterator[str]:
    """Yield rows with their columns aligned to the right, the one of text to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (c.ljust(w) if n == text else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()
