"""The page of a report: tables, charts, and a browser of its queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from pipeline.core.config import counted, format_count
from pipeline.core.provenance import code_version
from pipeline.measure.design import Draws
from pipeline.scores.average import AVERAGE, PROTOCOL
from pipeline.scores.caption import collection, pool_text, provenance, scope
from pipeline.scores.charts import charts
from pipeline.scores.findings import findings
from pipeline.scores.layout import build_tables, select_measures, table_of
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Page, Part
from pipeline.scores.render import render_table
from pipeline.scores.summary import exported, summarise_samples


@dataclass(frozen=True, eq=False)
class Report:
    """Results on one kind of pool.

    Attributes:
        runs: labelled rankings, columns :data:`pipeline.scores.frames.RUNS`.
        scores: scores of their queries, columns :data:`pipeline.scores.frames.VALUES`.
        summary: figures of all measures, columns :data:`pipeline.scores.summary.SUMMARY`.
        measures: measures shown in tables, in order.
        draws: settings of the intervals and tests.
    """

    runs: pl.DataFrame
    scores: pl.DataFrame
    summary: pl.DataFrame
    measures: Sequence[str]
    draws: Draws = PROTOCOL

    @cached_property
    def samples(self) -> pl.DataFrame:
        """The figures of each single sample."""
        return summarise_samples(self.scores, self.runs, self.draws)

    @property
    def shown(self) -> pl.DataFrame:
        """The figures of the measures shown."""
        return select_measures(self.summary, self.measures)

    @property
    def figures(self) -> pl.DataFrame:
        """All figures, then those of each single sample."""
        return exported(pl.concat([self.summary, self.samples]))

    def text(self, output: str = "terminal", **look: Any) -> str:
        """Return the tables of the measures shown (:func:`pipeline.scores.render.render_table`)."""
        return "\n".join(render_table(table, output, **look) for table in build_tables(self.shown, self.runs))


def page_of(report: Report) -> Page:
    """Return the page of a report. With one pool, the figures of its table open their provenance."""
    runs, summary, selected = report.runs, report.summary, report.shown
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
    parts: list[Part] = [*_tables(report), *charts(selected, runs)]
    queries = browser(runs, report.scores, report.measures)
    parts += [queries] if queries.pools else []
    shown = findings(selected, runs)
    return Page(f"Retrieval on {collection(corpus)}", about, parts, facts, shown)


def _tables(report: Report) -> Iterator[Part]:
    """Yield each table with all its figures as CSV."""
    runs, tables = report.runs, report.shown.partition_by("table", maintain_order=True)
    for number, table in enumerate(tables, 1):
        pools = table.select("field", "size").unique()
        of_samples = report.samples.join(pools, on=["field", "size"], how="semi", nulls_equal=True)
        figures = report.summary.filter(pl.col("table") == table["table"][0])
        name = f"table-{number}" if len(tables) > 1 else "table"
        own = exported(table).rows(named=True) if len(pools) == len(tables) == 1 else ()
        frame = exported(pl.concat([figures, of_samples]))
        yield replace(table_of(table, runs), name=name, frame=frame, records=own)
