"""The page of a report: leaderboard, charts, tables, and a browser of its queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.core.provenance import code_version
from pipeline.scores.average import AVERAGE, PROTOCOL, Draws
from pipeline.scores.caption import collection, listing, pool_text, provenance, scope
from pipeline.scores.charts import charts, heat
from pipeline.scores.findings import best_row, findings, headline
from pipeline.scores.judged import judged_parts
from pipeline.scores.layout import leaderboard, runs_of, select_measures, table_of
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Page, Part
from pipeline.scores.summary import exported
from pipeline.scores.tables import label_of, percent


def page_of(
    runs: pl.DataFrame,
    scores: pl.DataFrame,
    summary: pl.DataFrame,
    samples: pl.DataFrame,
    measures: Sequence[str],
    draws: Draws = PROTOCOL,
) -> Page:
    """Return the page of a report on one kind of pool; ``samples`` are the figures of each single sample.

    With one pool, its table replaces the leaderboard, and each figure opens its provenance.
    """
    pools = summary.filter(pl.col("field").ne_missing(AVERAGE)).unique(["field", "size"])
    fields = pools["field"].drop_nulls().unique()
    scope_text = f"{len(fields)} fields" if len(fields) > 1 else scope(runs.row(0, named=True))
    sizes = pools["size"].unique().sort().to_list()
    span = format_count(sizes[0]) + (f" to {format_count(sizes[-1])}" if len(sizes) > 1 else "")
    queries = pools.unique("field")["queries"].sum()
    systems = counted(runs["label"].n_unique(), "system")
    about = f"{systems}, {scope_text}, {counted(queries, 'query')}, pools of {span} candidates."
    corpus = runs["corpus"][0]
    facts = {"corpus": corpus, "pool settings": pool_text(runs.row(0, named=True))}
    facts |= {"figures": provenance(summary, runs), "code": code_version()}
    selected = select_measures(summary, measures)
    parts: list[Part] = []
    if len(pools) > 1:
        parts.append(replace(leaderboard(selected, measures), frame=exported(pl.concat([summary, samples]))))
    parts += [*charts(selected, runs), *_tables(selected, summary, samples, runs), *judged_parts(runs)]
    queries = browser(runs, scores, measures, draws)
    parts += [queries] if queries.pools else []
    shown = findings(selected, runs)
    entry = listing(runs, selected["label"].unique(maintain_order=True), best_of(selected, runs))
    return Page(f"Retrieval on {collection(corpus)}", about, parts, facts, entry, shown)


def best_of(summary: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the best system by the first measure: in the mean over fields, else on the largest pool."""
    candidates = headline(summary)
    row = best_row(candidates)
    scope_text = "mean over fields" if row["field"] == AVERAGE else scope(runs_of(candidates, runs).row(0, named=True))
    scope_text += "" if row["size"] is None else f" {format_count(row['size'])}"
    return f"{row['label']}: {label_of(row['measure'])} {percent(row['value'])} ({scope_text})"


def _tables(selected: pl.DataFrame, summary: pl.DataFrame, samples: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Part]:
    """Yield each table with all its figures as CSV; a heat map comes before a table of fields."""
    tables = selected.partition_by("table", maintain_order=True)
    for number, table in enumerate(tables, 1):
        if table["over"][0] == "fields":
            yield heat(table, runs)
        pools = table.select("field", "size").unique()
        of_samples = samples.join(pools, on=["field", "size"], how="semi", nulls_equal=True)
        figures = summary.filter(pl.col("table") == table["table"][0])
        name = f"table-{number}" if len(tables) > 1 else "table"
        own = exported(table).rows(named=True) if len(pools) == len(tables) == 1 else ()
        frame = exported(pl.concat([figures, of_samples]))
        yield replace(table_of(table, runs), name=name, frame=frame, records=own)
