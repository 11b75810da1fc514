"""Comparisons of systems as tables, and that of two as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.core.provenance import code_version
from pipeline.measure.design import RESAMPLED, Draws
from pipeline.measure.estimates import POWER
from pipeline.measure.permutation import least_p_value, patterns_text
from pipeline.scores.average import AVERAGE, PROTOCOL, drawn
from pipeline.scores.notes import notes_on_systems
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Page, Part
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
    notes, labels = (*_notes(differences), *notes_on_systems(runs, differences)), ["with abstracts"] * among
    frame = differences.drop("scope", "pools", "queries", "interval", "level", "resample")
    columns = (*values, "difference", *labels, *tests)
    return Table.of(title, ", ".join(several), columns, lines, notes, "differences", frame)


def _notes(differences: pl.DataFrame) -> tuple[str, ...]:
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
        f"better. detectable: smallest true difference they reveal with power {POWER:g} at the corrected level.",
        *_bound(differences),
    )


def _bound(differences: pl.DataFrame) -> Iterator[str]:
    """Yield the note on tests whose smallest possible p-value cannot be significant after the correction."""
    few = differences.select("queries", "permutations", "tests", "level").unique().sort("queries").iter_rows()
    for queries, permutations, tests, level in few:
        least = least_p_value(queries, permutations)
        if least * tests >= 1 - level:
            yield (
                f"{counted(queries, 'query')} cannot show a difference: their smallest p-value is {least:.2g}, "
                f"which the correction multiplies by up to {tests}."
            )


_RANKED = 3
"""Relevant papers whose ranks a table shows; JSON and the browser of the page have all."""


def page_of(
    differences: pl.DataFrame, queries: pl.DataFrame, runs: pl.DataFrame, scores: pl.DataFrame, draws: Draws = PROTOCOL
) -> Page:
    """Return the page of a comparison: differences (:data:`pipeline.scores.compare.DIFFERENCES`) and queries.

    ``runs`` and ``scores`` are the rankings and scores of both systems.
    """
    row = differences.row(0, named=True)
    pools = _pools_only(differences).unique(["field", "size"], maintain_order=True).rows(named=True)
    draws = drawn(draws)
    seed = draws.seed_of(runs)
    source = (
        f"corpus {runs['corpus'][0]}; pools {', '.join(name for pool in pools for name in pool['pools'])}; "
        f"bootstrap over {RESAMPLED[draws.resample]}: {draws.resamples:,} resamples, seed {seed}; "
        f"paired permutation test: {patterns_text(differences['queries'], differences['permutations'].max(), seed)}"
    )
    measures = differences["measure"].unique(maintain_order=True).to_list()
    parts: list[Part] = [replace(difference_table(differences, runs), source=source)]
    if len(queries):
        parts.append(replace(queries_table(differences, queries), source=source))
    parts.append(browser(runs, scores, measures))
    scope_text = ", ".join(map(pool_of, pools)) if len(pools) < 4 else counted(len(pools), "pool")
    count = sum({pool["field"]: pool["queries"] for pool in pools}.values())
    facts = {"figures": source, "code": code_version()}
    title, about = f"{row['second']} against {row['first']}", f"{scope_text}; {counted(count, 'query')}."
    return Page(title, about, parts, facts)


def _pools_only(differences: pl.DataFrame) -> pl.DataFrame:
    """Return the differences without those of the mean over fields."""
    return differences.filter(pl.col("field").ne_missing(AVERAGE))


def queries_table(differences: pl.DataFrame, queries: pl.DataFrame) -> Table:
    """Return the queries that differ most (:data:`pipeline.scores.compare.QUERIES`) as a table."""
    pair = differences.row(0, named=True)
    measure = label_of(pair["measure"])
    pools = {
        name: pool_of(pool) + f", sample {sample}" * (len(pool["pools"]) > 1)
        for pool in _pools_only(differences).unique(["field", "size"]).iter_rows(named=True)
        for sample, name in enumerate(pool["pools"], 1)
    }
    change = pl.col("second") - pl.col("first")
    rows = queries.sort(change.abs(), descending=True, maintain_order=True).rows(named=True)
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
    title = f"Queries that differ most in {measure}"
    ranks = [[f"{p['paper_id']} {_rank_pair(p)}" for p in row["positives"]] for row in rows]
    columns = {name: [row[name] for row in rows] for name in ("query_id", "title", "year", "pool", "first", "second")}
    frame = pl.DataFrame(columns | {"positives": ranks})
    return Table.of(title, "query", labels, lines, notes, "queries", frame)


def _ranks_text(positives: Sequence[Mapping[str, Any]]) -> str:
    pairs = list(map(_rank_pair, positives[:_RANKED]))
    hidden = len(positives) - len(pairs)
    return ", ".join(pairs) + (f" and {hidden} more" if hidden else "")


def _rank_pair(positive: Mapping[str, Any]) -> str:
    return f"{positive['first_rank'] or '–'} → {positive['second_rank'] or '–'}"
