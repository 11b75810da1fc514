"""Comparisons of systems as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.measure.design import RESAMPLED
from pipeline.measure.estimates import POWER
from pipeline.scores.average import AVERAGE
from pipeline.scores.notes import notes_on_systems
from pipeline.scores.tables import Table, label_of, points

_TITLE = 64
"""Maximum characters of a title."""


def pool_of(row: Mapping[str, Any]) -> str:
    """Return scope and size of a row of differences; without size if its pools have several."""
    return row["scope"] if row["size"] is None else f"{row['scope']} {format_count(row['size'])}"


def difference_table(differences: pl.DataFrame, runs: pl.DataFrame) -> Table:
    """Return differences (:data:`pipeline.scores.compare.DIFFERENCES`) as a table: a row a pair, pool and measure.

    ``runs`` are the rankings that are compared. The title and the corner name what does not vary, and what does.
    """
    row = differences.row(0, named=True)
    among = not differences["among_difference"].is_null().all()
    texts: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "pool": pool_of,
        "measure": lambda row: label_of(row["measure"]),
        "pair": lambda row: f"{row['second']} minus {row['first']}",
    }
    keys = {"pool": ["field", "size"], "measure": ["measure"], "pair": ["first", "second"]}
    several = [name for name, columns in keys.items() if differences.select(columns).unique().height > 1] or ["measure"]
    values = {} if "pair" in several else {row[name]: f"{name}_value" for name in ("first", "second")}
    tests = ("effect", "p", "wins", "ties", "losses", "finding", "detectable")
    lines = (
        (
            ", ".join(texts[name](row) for name in several),
            *(f"{100 * row[name]:.1f}" for name in values.values()),
            points(row[name] for name in ("difference", "low", "high")),
            *[points(row[name] for name in ("among_difference", "among_low", "among_high"))] * among,
            "–" if row["effect"] is None else f"{row['effect']:+.2f}",
            f"{row['p_adjusted']:.4f}",
            *(f"{row[name]:,}" for name in ("wins", "ties", "losses")),
            row["finding"],
            "–" if row["detectable"] is None else f"{100 * row['detectable']:.1f}",
        )
        for of_measure in differences.partition_by("field", "size", "measure", maintain_order=True)
        for row in of_measure.iter_rows(named=True)
    )
    pair = "All pairs" if "pair" in several else texts["pair"](row)
    title = pair if "pool" in several else f"{pair} ({pool_of(row)}, {counted(row['queries'], 'query')})"
    notes, labels = (_note(differences), *notes_on_systems(runs, differences)), ["with abstracts"] * among
    frame = differences.drop("scope", "pools", "queries", "interval", "level", "resample")
    columns = (*values, "difference", *labels, *tests)
    return Table.of(title, ", ".join(several), columns, lines, notes, "differences", frame)


def _note(differences: pl.DataFrame) -> str:
    row = differences.row(0, named=True)
    several_pairs = differences.select("first", "second").n_unique() > 1
    minus = "" if several_pairs else f", {row['second']} minus {row['first']}"
    winner = "the first named" if several_pairs else row["second"]
    tests, kinds = max(differences["tests"]), " or ".join(sorted(set(differences["interval"]) - {"none"}))
    brackets = f"Brackets: {row['level']:.0%} interval over {RESAMPLED[row['resample']]} ({kinds})"
    brackets = brackets if kinds else "No interval (fewer than three queries)"
    family = "pairs and pools" if several_pairs else "pools"
    corrected = f", Holm's correction over {tests} {family}" if tests > 1 else ""
    averages = "; the mean over fields is tested apart" if tests > 1 and AVERAGE in differences["field"] else ""
    return (
        f"Percent; differences in points{minus}. {brackets}. Effect: mean difference over the standard deviation "
        f"of the differences. p: paired permutation test{corrected}{averages}. wins: queries on which {winner} is "
        f"better. detectable: smallest true difference they reveal with power {POWER:g} at the corrected level."
    )


_RANKED = 3
"""Relevant papers whose ranks a table shows; JSON has all."""


def queries_table(differences: pl.DataFrame, queries: pl.DataFrame) -> Table:
    """Return the queries that differ most (:data:`pipeline.scores.compare.QUERIES`) as a table."""
    pair = differences.row(0, named=True)
    of_pools = differences.filter(pl.col("field").ne_missing(AVERAGE))
    pools = {
        name: pool_of(pool) + f", sample {sample}" * (len(pool["pools"]) > 1)
        for pool in of_pools.unique(["field", "size"]).iter_rows(named=True)
        for sample, name in enumerate(pool["pools"], 1)
    }
    change = pl.col("second") - pl.col("first")
    rows = queries.sort(change.abs(), descending=True, maintain_order=True).iter_rows(named=True)
    lines = (
        (
            f"{row['query_id']} {textwrap.shorten(row['title'] or '', _TITLE, placeholder='...')}".rstrip(),
            *(f"{100 * row[name]:.1f}" for name in ("first", "second")),
            f"{100 * (row['second'] - row['first']):+.1f}",
            _ranks_text(row["positives"]),
            pools[row["pool"]],
            "–" if row["year"] is None else str(row["year"]),
        )
        for row in rows
    )
    labels = (pair["first"], pair["second"], "difference", "ranks of its positives", "pool", "year")
    notes = (f"Ranks: by {pair['first']} → by {pair['second']}; –: not retrieved.",)
    return Table.of(f"Queries that differ most in {label_of(pair['measure'])}", "query", labels, lines, notes)


def _ranks_text(positives: Sequence[Mapping[str, Any]]) -> str:
    pairs = [f"{paper['first_rank'] or '–'} → {paper['second_rank'] or '–'}" for paper in positives[:_RANKED]]
    hidden = len(positives) - len(pairs)
    return ", ".join(pairs) + (f" and {hidden} more" if hidden else "")
