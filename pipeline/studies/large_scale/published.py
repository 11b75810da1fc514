"""Tables 1, 2, 7 and 8 of Medić & Šnajder 2022 in their layout, with differences to the published figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import polars as pl

from pipeline.core.config import file_name, format_count
from pipeline.core.fields import MAG_FIELDS
from pipeline.corpus.prefilter import describe_gaps
from pipeline.scores.average import AVERAGE
from pipeline.scores.facts import Gaps
from pipeline.scores.layout import select_measures
from pipeline.scores.published import published as printed
from pipeline.scores.summary import flat
from pipeline.scores.tables import Table, grid, label_of
from pipeline.stages.systems import TUNED
from pipeline.studies.common import cells_of
from pipeline.studies.large_scale.rankings import DATASET

MEASURES = {"map": 2, "ndcg": 7, "recall@30": 8}
"""Measures of the tables, with the number of each measure's table by field."""

_WHOLE = ("Art", "History", "Philosophy")  # fields whose published pools hold all papers
_POOL = 100_000  # candidates in the published pools of other fields

NOTE = (
    "In parentheses: the difference to the published figure, in points; without, none was published for pools of this "
    "size."
)


def published(system: str, field: str | None, size: int | None, measure: str) -> float | None:
    """Return a published figure, a fraction, or None.

    The published BM25 is tuned. The field ``AVG`` is the average of all 19. The size is not
    compared if it is None, for ``AVG``, or in a field whose published pool holds all papers.
    """
    if field is not None and field not in (AVERAGE, *_WHOLE) and size not in (None, _POOL):
        return None
    experiment = f"dataset-{format_count(size or 0)}" if field is None else f"field-{field}"
    experiment = "fields" if field == AVERAGE else experiment
    if system == "bm25":
        return None
    return printed("bm25" if system == TUNED else system, experiment, measure)


def tables(
    summary: pl.DataFrame, gaps: Mapping[str, Gaps], tuned: Collection[str] = (), *, compared: bool = True
) -> Iterator[Table]:
    """Yield table 1 for each table over sizes, and tables 2, 7 and 8 for each table over fields.

    ``gaps`` are the metadata gaps of the pools, by group, for the notes; ``tuned`` are the labels of tuned BM25. Unless
    ``compared``, as for synthetic papers, there are no published figures. Averages have one if all 19 fields are
    present.
    """
    for table in select_measures(summary, list(MEASURES)).partition_by("table", maintain_order=True):
        frame = flat(table)
        has_all_fields = frame.filter(pl.col("field") != AVERAGE)["field"].n_unique() == len(MAG_FIELDS)
        figures = [
            published(TUNED if system in tuned else system, field, size, measure)
            if compared and (has_all_fields or field != AVERAGE)
            else None
            for system, field, size, measure in frame.select("system", "field", "size", "measure").iter_rows()
        ]
        frame = frame.with_columns(published=pl.Series(figures, dtype=pl.Float64))
        frame = frame.with_columns(difference=pl.col("value") - pl.col("published"))
        groups = frame["field"].fill_null(DATASET).unique(maintain_order=True)
        notes = [f"Percent [{table['level'][0]:.0%} interval over queries]."]
        notes += [NOTE] if compared else []
        notes += filter(None, [describe_gaps(gaps[group] for group in groups if group in gaps)])
        shown = frame.drop("deviation")
        if table["over"][0] == "sizes":
            size = pl.col("size").map_elements(format_count, pl.String)
            by_size = cells_of(shown, "system", pl.col("measure").map_elements(label_of, pl.String), size)
            field = frame["field"][0]
            name = "table-1" if field is None else f"table-1-{file_name(field.lower())}"
            yield grid(name, f"Table 1: {field or 'dataset level'}", "system", by_size, notes, frame)
            continue
        sizes = frame.filter(pl.col("field") != AVERAGE)["size"].drop_nulls().unique().sort()
        of_sizes = " to ".join(dict.fromkeys(format_count(size) for size in (sizes[0], sizes[-1])))
        suffix = f"-{of_sizes}" if len(sizes) == 1 else ""
        for measure, table_number in MEASURES.items():
            by_field = cells_of(shown.filter(measure=measure), "field", "system")
            title = f"Table {table_number}: {label_of(measure)} by field, {of_sizes} candidates"
            of_measure = frame.filter(measure=measure)
            yield grid(f"table-{table_number}{suffix}", title, "field", by_field, notes, of_measure, [AVERAGE])
