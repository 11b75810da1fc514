"""Charts of a summary, drawn by pages and matplotlib: curves over pool size, and figures by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipeline.core.config import file_name, format_count
from pipeline.scores.average import AVERAGE
from pipeline.scores.caption import common_size, provenance, scope
from pipeline.scores.layout import runs_behind
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.tables import label_of


def charts(summary: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Chart]:
    """Yield the curves over pool size, also of the average over fields, then the figures by field."""
    tables = summary.partition_by("table", maintain_order=True)
    averages = summary.filter(pl.col("field") == AVERAGE, pl.col("size").is_not_null())
    for curves in (*(table for table in tables if table["over"][0] == "sizes"), averages):
        if curves["size"].n_unique() > 1:
            yield by_size(curves, runs)
    yield from (by_field(table, runs) for table in tables if table["over"][0] == "fields")


def chart_of(table: pl.DataFrame, runs: pl.DataFrame) -> Chart:
    """Return the chart of one table of a summary."""
    return (by_size if table["over"][0] == "sizes" else by_field)(table, runs)


def by_size(table: pl.DataFrame, runs: pl.DataFrame) -> Chart:
    """Return each measure against the number of candidates: a line and a band for each system."""
    field = AVERAGE if table["field"][0] == AVERAGE else scope(runs_behind(table, runs).row(0, named=True))
    sizes = [int(size) for size in table["size"].unique().sort()]
    return Chart(
        title=f"Score against pool size ({'mean over fields' if field == AVERAGE else field})",
        x_label="candidates",
        unit="%",
        views=views(table.with_columns(pl.col("size").alias("x"))),
        log=True,
        ticks={size: format_count(size) for size in sizes},
        provenance=provenance(table, runs),
    )


def by_field(table: pl.DataFrame, runs: pl.DataFrame) -> Chart:
    """Return each measure by field: a dot with its interval for each system."""
    fields = list(table["field"].unique(maintain_order=True))
    number = pl.col("field").replace_strict({name: number for number, name in enumerate(fields)}, return_dtype=pl.Int64)
    return Chart(
        title=f"Score by field{_size_suffix(table)}",
        x_label="",
        unit="%",
        views=views(table.with_columns(number.alias("x"))),
        categories=_field_labels(fields),
        provenance=provenance(table, runs_behind(table, runs)),
    )


def views(table: pl.DataFrame) -> Mapping[str, Sequence[Series]]:
    """Return the series of each measure: a system's ``value`` with its interval at each ``x``."""
    return {
        label_of(measure): [
            Series(label, *of_label.select("x", "value", "low", "high").to_dict(as_series=False).values())
            for (label,), of_label in of_measure.sort("x", maintain_order=True).group_by("label", maintain_order=True)
        ]
        for (measure,), of_measure in table.group_by("measure", maintain_order=True)
    }


def file_stem(table: pl.DataFrame) -> str:
    """Return the stem of the file names of a table's figures."""
    if table["over"][0] == "fields":
        size = common_size(table)
        return "fields" if size is None else f"fields-{format_count(size)}"
    return f"sizes-{file_name((table['field'][0] or 'dataset').lower())}"


def figures(summary: pl.DataFrame, runs: pl.DataFrame) -> Iterator[tuple[str, Chart, str]]:
    """Yield the file name (without suffix) of each figure, its chart, and the view of the chart."""
    for table in summary.partition_by("table", maintain_order=True):
        chart = chart_of(table, runs)
        for measure in table["measure"].unique(maintain_order=True):
            yield f"{file_stem(table)}-{measure.replace('@', '-at-')}", chart, label_of(measure)


def _field_labels(fields: Sequence[str | None]) -> list[str]:
    return ["mean" if field == AVERAGE else str(field) for field in fields]


def _size_suffix(table: pl.DataFrame) -> str:
    size = common_size(table)
    return "" if size is None else f" ({format_count(size)} candidates)"
